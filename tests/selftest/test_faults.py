"""The self-test finds whoever is hurt, on real ranks: a part of `make soak`'s matrix.

Every kind of fault and every stage is here at least once, rank 0 and others in turn.
"""

import signal
from contextlib import nullcontext

import pytest

from faults import Case, cut_link, healthy, hurt_node, hurt_rank, never_started, wrong_local_rank
from job import job
from netns import two_hosts

pytestmark = pytest.mark.needs("torch")


def prove(case: Case) -> None:
    with two_hosts() if case.needs_hosts else nullcontext(()) as hosts:
        verdict = case.run(hosts)
    assert case.right(verdict), str(verdict)
    assert verdict.gone(), str(verdict)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_healthy_ranks_are_healthy(ranks):
    prove(healthy(ranks))


@pytest.mark.parametrize(
    ("kind", "rank", "stage"),
    [
        ("kill", 2, "join"),
        ("stop", 0, "environment"),
        ("segfault", 2, "device"),
        ("raise", 1, "all_reduce"),
        ("exit0", 2, "barrier"),
        ("sleep", 2, "all_reduce"),
        ("gil", 0, "device"),
    ],
)
def test_the_rank_that_is_hurt_is_named_with_its_stage(kind, rank, stage):
    prove(hurt_rank(kind, rank, stage))


@pytest.mark.needs("netns")
def test_two_healthy_nodes_are_healthy():
    prove(healthy(4, nodes=2))


@pytest.mark.needs("netns")
@pytest.mark.parametrize(("kind", "rank"), [("kill", 3), ("stop", 0)])
def test_a_rank_is_named_across_two_nodes(kind, rank):
    prove(hurt_rank(kind, rank, "all_reduce", nodes=2))


@pytest.mark.needs("netns")
@pytest.mark.parametrize(("node", "number"), [(0, signal.SIGKILL), (1, signal.SIGSTOP)])
def test_a_node_that_is_killed_or_stopped_is_named(node, number):
    prove(hurt_node(node, number, "all_reduce"))


@pytest.mark.needs("netns")
def test_a_cut_link_is_named_and_both_sides_end():
    prove(cut_link("device"))


def test_the_rank_with_the_wrong_local_rank_is_named_and_not_the_one_whose_number_it_has():
    prove(wrong_local_rank(2, 1))


def test_a_rank_that_was_never_started_is_missing():
    prove(never_started(1, 2))


def test_without_rank_0_the_others_end_by_themselves_and_say_so():
    verdict = job(2, launcher="env", absent=[0], deadline=6)
    assert verdict.report is None
    assert "rank 1 finds no rank 0" in verdict.output
    assert verdict.gone(), str(verdict)


def test_a_rank_that_puts_wrong_values_into_a_sum_is_found_out():
    spoilt = "value:rank=2,stage=all_reduce;value:rank=2,stage=localise"
    verdict = job(inject=spoilt, deadline=30)
    assert verdict.names(rank=2, stage="all_reduce"), str(verdict)
    assert verdict.causes == {"wrong-contribution"}


def test_wrong_sums_that_nobody_can_be_blamed_for_name_nobody():
    verdict = job(inject="value:rank=2,stage=all_reduce", deadline=30)
    assert verdict.report["verdict"] == "unknown", str(verdict)
    assert verdict.names(rank=[], stage="all_reduce")
    (finding,) = verdict.report["findings"]
    assert "gathered" in finding["confidence"]["why"]
    assert [e["text"].split(":")[0] for e in finding["evidence"][:4]] == [
        f"rank {rank}" for rank in range(4)
    ]


def test_the_verdict_comes_once_and_before_the_launchers_own_words():
    verdict = job(inject="kill:rank=1,stage=device", deadline=10)
    assert verdict.output.count("selftest: odd") == 1
    assert verdict.output.index("selftest: odd") < verdict.output.index("ChildFailedError")
    assert verdict.codes == (1,)
