"""Stage train: the rank that caused wrong values is named, not the ranks that received them."""

import math
import time

from findings_shown import brief, check
from made_up import run_by_rank
from oddrank.selftest import Options
from oddrank.selftest.stages import train

STEPS = 4
NAN = math.nan.hex()


def healthy(ranks):
    return {
        rank: {
            "kind": "H200",
            "loss": [float(step).hex() for step in range(STEPS)],
            "gradients": [f"g{step}" for step in range(STEPS)],
            "sound": [True] * STEPS,
            "parameters": [f"p{step}" for step in range(STEPS + 1)],
        }
        for rank in range(ranks)
    }


def judged(ranks, *changes, kinds=(), **results):
    """Returns the findings. changes: (ranks, name, value, since which step).

    kinds: ranks on another kind of device. results: of other stages.
    """
    said = healthy(ranks)
    for rank in kinds:
        said[rank]["kind"] = "H100"
    for who, name, value, since in changes:
        for rank in who:
            said[rank][name][since:] = [value] * len(said[rank][name][since:])
    run = run_by_rank({"train": said, **results}, ranks=ranks)
    return train.stage(Options()).conclude(run)


def seen_in_collectives(*mismatches):
    return {rank: {"mismatches": [*mismatches]} for rank in range(4)}


MOST = ([0, 1, 3], "gradients", "wrong", 0)
LATER_SPOILT = [
    (range(4), "parameters", "nan", 1), (range(4), "loss", NAN, 1), (range(4), "sound", False, 1)
]  # fmt: skip
OTHER_KIND = [
    (range(4, 8), "gradients", "other kind", 0), (range(4, 8), "parameters", "other kind", 1)
]  # fmt: skip
SAID = {
    "other gradients": (
        judged(4, ([2], "gradients", "wrong", 1), (range(4), "parameters", "spoilt", 2)),
        "different other-gradients: 2",
    ),
    # After wrong values in collectives the rank that differs may be the only good one.
    "after wrong values": (
        judged(4, MOST, collectives=seen_in_collectives({"observer": 0})),
        "unknown gradients-differ: nobody",
    ),
    "after right values": (
        judged(4, MOST, collectives=seen_in_collectives()), "different other-gradients: 2"
    ),
    "what comes later is a consequence": (
        judged(4, ([2], "parameters", "wrong", 2), ([2], "loss", "0x1p+0", 2),
               ([0], "gradients", "wrong", 3)),
        "mismatch other-parameters: 2",
    ),
    "before the first step": (
        judged(3, ([1], "parameters", "wrong", 0)), "mismatch other-parameters: 1"
    ),
    "another loss": (judged(4, ([2], "loss", "0x1p+0", 2)), "different other-gradients: 2"),
    "gradients of half": (
        judged(2, ([1], "gradients", "wrong", 0)), "unknown gradients-differ: nobody"
    ),
    "replicas of half": (
        judged(4, ([2, 3], "parameters", "wrong", 1)), "unknown replicas-differ: nobody"
    ),
    "no number, of two": (
        judged(2, ([1], "loss", NAN, 1), ([1], "sound", False, 1), (range(2), "sound", False, 2)),
        "broken not-finite: 1",
    ),
    "gradients that make all infinite": (
        judged(4, ([3], "sound", False, 0), *LATER_SPOILT), "broken not-finite: 3"
    ),
    "most have no number at once": (
        judged(4, (range(4), "loss", NAN, 2), (range(4), "sound", False, 2)),
        "unknown not-finite-anywhere: nobody",
    ),
    "one among its own kind": (
        judged(8, *OTHER_KIND, ([6], "gradients", "wrong", 2), kinds=range(4, 8)),
        "different other-gradients: 6",
    ),
}  # fmt: skip
OTHERS = {
    "equal": (judged(4), ""),
    "alone": (judged(1), ""),
    "two kinds": (judged(8, *OTHER_KIND, kinds=range(4, 8)), ""),
    "gradients of two of four": (
        judged(4, ([2, 3], "gradients", "wrong", 0)), "unknown gradients-differ: nobody"
    ),
    "gradients of a third": (
        judged(6, ([0, 5], "gradients", "wrong", 0)), "unknown gradients-differ: nobody"
    ),
    "replicas of a third": (
        judged(6, ([0, 5], "parameters", "wrong", 1)), "unknown replicas-differ: nobody"
    ),
}  # fmt: skip


def test_the_rank_that_caused_wrong_values_is_named_and_none_that_received_them(golden):
    check(SAID, golden)
    check(OTHERS)
    assert {one.stage for found, _ in SAID.values() for one in found} == {"train"}


def test_ten_thousand_ranks_are_judged_in_ten_times_the_time_of_a_thousand():
    took = {}
    for ranks in (1_000, 10_000):
        began = time.thread_time()
        found = judged(ranks, ([ranks - 1], "parameters", "wrong", STEPS))
        assert brief(found) == f"mismatch other-parameters: {ranks - 1}"
        took[ranks] = time.thread_time() - began
    assert took[10_000] < 50 * took[1_000]  # looking at all pairs would take 100 times as long
