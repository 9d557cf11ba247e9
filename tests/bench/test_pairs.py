"""`bench pairs` on real ranks, across hosts whose network the kernel slows down."""

import subprocess
import sys

import pytest

from job import job
from pair_faults import (
    COMMAND,
    delayed_link,
    healthy,
    slow_link,
    slow_node,
    slow_rank,
    slow_receiver,
    slow_sender,
)

pytestmark = pytest.mark.needs("torch")


def prove(case):
    verdict = case.run()
    assert case.said(verdict.report) == "right", str(verdict)
    assert verdict.gone(), str(verdict)
    return verdict


@pytest.mark.needs("netns")
def test_healthy_hosts_are_healthy_and_the_table_is_complete():
    pairs = prove(healthy(4)).report["data"]["pairs"]
    assert pairs["names"] == [f"node{i}" for i in range(4)]
    for figures in (pairs["GBps"], pairs["latency_us"]):
        for i in range(4):
            assert [value is None for value in figures[i]] == [i == j for j in range(4)]
    assert pairs["inside"] == []


@pytest.mark.needs("netns")
@pytest.mark.smoke
def test_a_host_that_sends_slowly_is_named():
    prove(slow_sender(2, 3))


@pytest.mark.needs("netns")
def test_a_host_that_receives_slowly_is_named():
    prove(slow_receiver(0, 3))


@pytest.mark.needs("netns")
def test_a_slow_link_is_named_by_both_ends():
    verdict = prove(slow_link(0, 2, 3))
    (finding,) = verdict.report["findings"]
    assert finding["who"]["kind"] == "link"
    assert finding["evidence"][0]["value"] < finding["evidence"][0]["median"]


@pytest.mark.needs("netns")
def test_a_delayed_link_shows_as_latency_and_not_twice():
    verdict = prove(delayed_link(0, 2, 3))
    (finding,) = verdict.report["findings"]
    assert finding["evidence"][0]["unit"] == "us"


@pytest.mark.needs("netns")
def test_of_two_hosts_only_the_link_is_named_and_with_low_confidence():
    (finding,) = prove(slow_sender(0, 2)).report["findings"]
    assert finding["confidence"]["level"] == "low"


def test_ranks_of_one_host_meet_each_other():
    verdict = job(3, command=COMMAND, deadline=60)
    pairs = verdict.report["data"]["pairs"]
    assert pairs["names"] == ["rank 0", "rank 1", "rank 2"], str(verdict)
    assert sum(value is None for line in pairs["GBps"] for value in line) == 3
    assert verdict.gone()
    assert "GB/s, from row to column" in verdict.output


@pytest.mark.needs("netns")
def test_healthy_hosts_of_two_ranks_have_a_matrix_between_them_and_one_inside_each():
    case = healthy(6, on_host=2)
    verdict = case.run()
    # Inside a host other work is noise; then no rank may be named.
    assert case.said(verdict.report) in ("right", "nobody named"), str(verdict)
    pairs = verdict.report["data"]["pairs"]
    assert len(pairs["names"]) == len(pairs["GBps"]) == 3
    assert [one["names"] for one in pairs["inside"]] == [
        ["rank 0", "rank 1"],
        ["rank 2", "rank 3"],
        ["rank 4", "rank 5"],
    ]


@pytest.mark.needs("netns")
def test_a_host_is_named_whose_ranks_share_a_slow_way_out():
    (finding,) = prove(slow_node(1, nodes=3, on_host=2)).report["findings"]
    assert (finding["who"]["kind"], finding["who"]["host"]) == ("node", "node1")


@pytest.mark.needs("netns")
def test_a_rank_is_named_that_sends_slowly_while_others_of_its_host_have_the_rest():
    (finding,) = prove(slow_rank(3, nodes=3, on_host=2)).report["findings"]
    assert finding["who"]["kind"] == "rank"


def test_a_rank_that_dies_between_two_partners_is_named():
    inject = "kill:rank=2,stage=pairs,step=done"
    verdict = job(4, command=COMMAND, inject=inject, deadline=60)
    assert verdict.names(rank=2, stage="pairs"), str(verdict)
    assert verdict.report["data"]["pairs"] is None
    assert verdict.gone()


def test_a_rank_that_comes_no_further_is_named_though_others_have_rested():
    """With three ranks each rests in one round, and makes as many marks there as in the others."""
    inject = "sleep:rank=1,stage=pairs,step=done"
    verdict = job(3, command=COMMAND, inject=inject, deadline=40)
    assert verdict.names(rank=1, stage="pairs"), str(verdict)
    assert verdict.gone()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "needs two ranks"),
        (("--size", "lots"), "is not a size"),
        (("--size", "1M:2M"), "write one size, as in 16M"),
        (("--effect", "200%"), "not a share"),
        (("--effect", "nan"), "is not a percentage"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_exit_code_2(options, says):
    command = [sys.executable, "-m", "oddrank", "bench", "pairs", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr


def test_messages_that_no_memory_can_hold_are_refused_in_one_line():
    verdict = job(2, command=("bench", "pairs", "--size", "512G"), deadline=90)
    assert verdict.report is None
    assert verdict.output.count("has no memory for messages this large") == 1
