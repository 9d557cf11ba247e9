"""After wrong values a rank is named only if its whole group sees its values wrong."""

import pytest

from job import job
from launchers import Order, Plan, env
from made_up import run_by_rank
from oddrank.bench.verify import mismatch_evidence
from oddrank.selftest import Options
from oddrank.selftest.stages import collectives
from selftest.said import check

STAGE = collectives.localise(Options())


def mismatch(observer, among):
    return {
        "observer": observer, "case": "all_reduce float32 8 B", "index": 1, "expected": 4.0,
        "got": 5.0, "wrong": 1, "element": 1, "turn": 7, "among": among,
        "asked": ["all_reduce", "float32", 8],
    }  # fmt: skip


def judged(views, *, seen_by, among="world"):
    """Returns the findings. views: the ranks that each rank saw wrong in the gather afterwards."""
    views = dict(enumerate(views))
    said = {r: {"mismatches": [mismatch(r, among)] * (r in seen_by)} for r in views}
    gathered = dict(views)
    run = run_by_rank({"collectives": said, "localise": gathered}, ranks=len(views))
    assert STAGE.plan(run)["among"] == among
    return STAGE.conclude(run)


NAMED = "broken wrong-contribution: "
SAID = {
    f"{NAMED}2": {
        "wrong in the eyes of all": judged([[2]] * 4, seen_by=range(4)),
        # Across nodes the ranks of one place have to agree.
        "across nodes": judged([[2], [], [2], []], seen_by=[0, 2], among="across"),
    },
    # In groups of a node its own ranks have to agree, and the others have no say.
    f"{NAMED}3": {"of a node": judged([[], [], [3], [3]], seen_by=[2, 3], among="node")},
    "unknown wrong-values: nobody": {
        "one sees all wrong: it receives badly": judged([[], [0, 1, 2, 3], [], []], seen_by=[1]),
        "half are wrong": judged([[0, 1]] * 4, seen_by=range(4)),
        "right again": judged([[]] * 4, seen_by=[0]),
        "of another node": judged([[1], [1], [], []], seen_by=[2, 3], among="node"),
    },
}


def test_after_wrong_values_a_rank_that_its_whole_group_sees_wrong_is_named(golden):
    check(SAID, golden)


def test_observers_of_the_same_wrong_value_are_one_evidence():
    seen = [mismatch(rank, "world") for rank in range(6)]
    seen[4]["got"] = 6.0
    seen.insert(1, {**mismatch(0, "world"), "case": "broadcast float32 8 B"})
    told = [one.text.partition(": all_reduce")[0] for one in mismatch_evidence(seen)]
    assert told == ["ranks 0-3, 5", "rank 4", told[2]]
    assert told[2].startswith("rank 0: broadcast ")


def test_sizes_that_memory_has_no_room_for_are_left_out():
    stage = collectives.stage(Options())
    connected = {r: {"backend": "gloo", "free": free} for r, free in enumerate((1e12, 8 << 20))}
    run = run_by_rank({"connect": connected}, ranks=2)
    assert stage.plan(run) == [8, 4 << 10, 1 << 20]
    connected[1]["free"] = 0.0
    assert stage.plan(run) == [8]


def on_uneven_nodes(order: Order) -> Plan:
    """Plans the last rank alone on a host of another name."""
    *plan, (node, line, environ) = env(order)
    places = ({"LOCAL_RANK": str(k), "LOCAL_WORLD_SIZE": str(len(plan))} for k in range(len(plan)))
    return [
        *((n, own, {**at, **place}) for (n, own, at), place in zip(plan, places, strict=True)),
        (
            node,
            ["unshare", "--uts", "sh", "-c", 'hostname other && exec "$@"', "sh", *line],
            {**environ, "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
        ),
    ]


@pytest.mark.needs("torch", "netns")
def test_nodes_of_different_sizes_meet_in_all_of_their_groups():
    command = ("selftest", "--quick", "--only", "collectives")
    verdict = job(3, launcher=on_uneven_nodes, deadline=60, command=command)
    assert verdict.healthy(), str(verdict)
    assert verdict.report["world"]["nodes"] == 2
    assert verdict.gone()
