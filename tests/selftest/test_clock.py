"""Wrong wall clocks: each node has one vote; of two nodes neither is named."""

from types import SimpleNamespace

from made_up import context, run_by_node
from oddrank.selftest import Options
from oddrank.selftest.nodes import NodeLeaders
from oddrank.selftest.stages import clock
from selftest.said import check

NOW = 1_790_000_000_000_000_000


def judged(*ahead, error=0.001, **changes):
    """Returns the findings. ahead: seconds of each node's clock; None if it could not be read."""
    measured = [
        {"unread": "no answer"} if seconds is None else
        {"epoch_ns": NOW + int(seconds * 1e9), "error_ns": int(error * 1e9)}
        for seconds in ahead
    ]  # fmt: skip
    return clock.stage(Options()).conclude(run_by_node("clock", measured, **changes))


SAID = {
    "suspicious wrong-clock: node 4-5": {"ahead": judged(0, 0, 4.2), "behind": judged(0, 0, -4.2)},
    "suspicious wrong-clock: node 6-7, node 2-3": {"the worst first": judged(0, 3, 0, -700, 0, 0)},
    "unknown clocks-disagree: nobody": {
        "of two": judged(0, 4.2), "of two that could be read": judged(0, 5, None),
        "three clocks": judged(0, 5, 10), "two of four": judged(0, 0, 5, 5),
        "two of four agree": judged(0, 0, 5, 10),
    },
    "": {
        "near": judged(0, 0.01, -0.3, 0.2), "two": judged(0, 0.01), "unread": judged(0, 0, None),
        "not known well enough": judged(0, 0, 1.5, error=0.4),
    },
}  # fmt: skip


def test_a_wrong_clock_is_named_where_most_nodes_agree(golden):
    """Of real nodes it is in test_reach.py."""
    check(SAID, golden)
    many = judged(*(9.0 if node % 100 == 7 else 0.001 for node in range(10_000)), per_node=1)
    assert len(many) == 100


def test_a_reading_is_that_of_the_fastest_of_many(monkeypatch):
    ticks = iter([0, 5_000, 1_000, 1_400, *range(0, 12_000_000, 1_000_000)])
    clocks = {"monotonic_ns": lambda: next(ticks), "time_ns": lambda: NOW + 1_200}
    monkeypatch.setattr(clock, "time", SimpleNamespace(**clocks))
    given = context(NodeLeaders.among([0]).pack(), sync_clock=lambda seconds: (100, 7))
    read = {"epoch_ns": NOW - 100, "error_ns": 407}
    assert clock.stage(Options()).measure(given) == read
