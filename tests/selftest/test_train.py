"""Stage train: the rank that caused wrong values is named, not the ranks that received them."""

import math

from findings_shown import brief
from made_up import run_by_rank
from oddrank.selftest import Options
from oddrank.selftest.stages import train
from selftest.said import check, takes_one_pass

STEPS = 4
NAN = math.nan.hex()


def judged(ranks, *changes, kinds=(), **results):
    """Returns the findings. changes: (ranks, name, value, since which step).

    kinds: ranks on another kind of device. results: of other stages.
    """
    said = {
        rank: {
            "kind": "H200", "loss": [float(step).hex() for step in range(STEPS)],
            "gradients": [f"g{step}" for step in range(STEPS)], "sound": [True] * STEPS,
            "parameters": [f"p{step}" for step in range(STEPS + 1)],
        }
        for rank in range(ranks)
    }  # fmt: skip
    for rank in kinds:
        said[rank]["kind"] = "H100"
    for who, name, value, since in changes:
        for rank in who:
            said[rank][name][since:] = [value] * len(said[rank][name][since:])
    run = run_by_rank({"train": said, **results}, ranks=ranks)
    return train.stage(Options()).conclude(run)


def seen_in_collectives(*mismatches):
    return {rank: {"mismatches": [*mismatches]} for rank in range(4)}


def differs(ranks, name, *who, since=0):
    return judged(ranks, (who, name, "wrong", since))


ALL, UNSOUND = range(4), (range(4), "sound", False)
MOST = ([0, 1, 3], "gradients", "wrong", 0)
LATER_SPOILT = [(ALL, "parameters", "nan", 1), (ALL, "loss", NAN, 1), (*UNSOUND, 1)]
OTHER_KIND = [
    (range(4, 8), "gradients", "other kind", 0), (range(4, 8), "parameters", "other kind", 1)
]  # fmt: skip
GRADIENTS, PARAMETERS = "different other-gradients: ", "mismatch other-parameters: "
DIFFER, REPLICAS = "unknown gradients-differ: nobody", "unknown replicas-differ: nobody"
SAID = {
    f"{GRADIENTS}2": {
        "other gradients": judged(
            4, ([2], "gradients", "wrong", 1), (ALL, "parameters", "spoilt", 2)
        ),
        "after right values": judged(4, MOST, collectives=seen_in_collectives()),
        "another loss": judged(4, ([2], "loss", "0x1p+0", 2)),
    },
    DIFFER: {
        # After wrong values in collectives the rank that differs may be the only good one.
        "after wrong values": judged(4, MOST, collectives=seen_in_collectives({"observer": 0})),
        "gradients of half": differs(2, "gradients", 1),
    },
    f"{PARAMETERS}2": {
        "what comes later is a consequence": judged(
            4, ([2], "parameters", "wrong", 2), ([2], "loss", "0x1p+0", 2),
            ([0], "gradients", "wrong", 3),
        )
    },
    f"{PARAMETERS}1": {"before the first step": differs(3, "parameters", 1)},
    REPLICAS: {"replicas of half": differs(4, "parameters", 2, 3, since=1)},
    "broken not-finite: 1": {
        "no number, of two": judged(
            2, ([1], "loss", NAN, 1), ([1], "sound", False, 1), (range(2), "sound", False, 2)
        )
    },
    "broken not-finite: 3": {
        "gradients that make all infinite": judged(4, ([3], "sound", False, 0), *LATER_SPOILT)
    },
    "unknown not-finite-anywhere: nobody": {
        "most have no number at once": judged(4, (ALL, "loss", NAN, 2), (*UNSOUND, 2))
    },
    f"{GRADIENTS}6": {
        "one among its own kind": judged(
            8, *OTHER_KIND, ([6], "gradients", "wrong", 2), kinds=range(4, 8)
        )
    },
}  # fmt: skip
OTHERS = {
    "": {
        "equal": judged(4), "alone": judged(1),
        "two kinds": judged(8, *OTHER_KIND, kinds=range(4, 8)),
    },
    DIFFER: {
        "gradients of two of four": differs(4, "gradients", 2, 3),
        "gradients of a third": differs(6, "gradients", 0, 5),
    },
    REPLICAS: {"replicas of a third": differs(6, "parameters", 0, 5, since=1)},
}  # fmt: skip


def test_the_rank_that_caused_wrong_values_is_named_and_none_that_received_them(golden):
    check(SAID, golden)
    check(OTHERS)


def test_ten_thousand_ranks_are_judged_in_ten_times_the_steps_of_a_thousand():
    def one_differs(ranks):
        found = differs(ranks, "parameters", ranks - 1, since=STEPS)
        assert brief(found) == f"{PARAMETERS}{ranks - 1}"

    takes_one_pass(one_differs)
