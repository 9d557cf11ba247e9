"""Exact bits: a rank is broken if its bits differ from the known ones, or from most peers."""

import os
from types import SimpleNamespace

from figures import run_of
from made_up import context
from oddrank.selftest import Options
from oddrank.selftest.probes import gpu, host, summary
from oddrank.selftest.stages import fingerprint
from selftest.said import check

GOLDEN = {"fp32": 1, "fp64": 2}


def told(seen, kind="x86_64", golden=GOLDEN, odd=None):
    """Returns a rank's result. odd: (which of 20 prints, what differs in it)."""
    places = [(f"core {i % 4}", i // 4, dict(seen)) for i in range(20)]
    if odd:
        places[odd[0]][2].update(odd[1])
    return summary(kind, golden, places)


def strange(bf16=5, int8=6, kind="sm_140", odd=None):
    """Returns the hashes of a GPU whose bits are not known beforehand."""
    return told({"tensor_bf16": bf16, "tensor_int8": int8}, kind, {}, odd)


def judged(*ranks, scope="host"):
    run = run_of([1] * len(ranks))
    run.results["fingerprint"] = {rank: {scope: one} for rank, one in enumerate(ranks)}
    return fingerprint.stage(Options()).conclude(run)


def on_gpus(*ranks):
    return judged(*ranks, scope="gpu")


HEALTHY, UNLIKE = told(GOLDEN), told({**GOLDEN, "fp64": 9})
UNKNOWN, OTHER = (told({**GOLDEN, "fp64": bits}, golden={}) for bits in (2, 9))  # of some GPU
ODD, WRONG_ONCE = strange(bf16=9), strange(odd=(4, {"tensor_int8": 1}))
LACKS_INT8 = told({"tensor_bf16": 5}, "sm_140", {})
NAMED, DIFFER = "broken wrong-arithmetic: ", "unknown bits-differ: "
SAID = {
    f"{NAMED}1": {
        "other bits": judged(HEALTHY, UNLIKE, HEALTHY),
        "of two, bits are known": judged(HEALTHY, UNLIKE),
        "a core is wrong once": judged(HEALTHY, told(GOLDEN, odd=(6, {"fp32": 5}))),
    },
    f"{NAMED}0": {
        "alone, bits are known": judged(UNLIKE),
        "an unknown unit is wrong once": on_gpus(WRONG_ONCE, *[strange()] * 3),
    },
    f"{NAMED}2": {"bits are not known": judged(UNKNOWN, UNKNOWN, OTHER, scope="gpu")},
    f"{NAMED}3": {"a GPU unlike three others": on_gpus(*[strange()] * 3, ODD)},
    f"{DIFFER}0-1": {
        "of two, bits are not known": judged(UNKNOWN, OTHER, scope="gpu"),
        "two strange GPUs": on_gpus(strange(), ODD),
    },
    f"{DIFFER}0-2": {"most have other bits than known": judged(HEALTHY, UNLIKE, UNLIKE)},
    f"{DIFFER}0-3": {"half have other bits": judged(HEALTHY, HEALTHY, UNLIKE, UNLIKE)},
}
OTHERS = {
    "": {
        "equal": judged(*[HEALTHY] * 4),
        "another kind": judged(UNKNOWN, told({"fp64": 9}, "sm_90", {}), scope="gpu"),
        "another strange kind": on_gpus(strange(), strange(), strange(9, kind="sm_150")),
    },
    f"{NAMED}2, 3": {"two differ": judged(HEALTHY, HEALTHY, UNLIKE, told({**GOLDEN, "fp64": 8}))},
    f"{NAMED}0": {"wrong once on the only GPU": on_gpus(WRONG_ONCE)},
    f"{NAMED}4": {"some lack a unit": on_gpus(*[strange()] * 3, LACKS_INT8, strange(int8=1))},
    f"{DIFFER}0-2": {"three strange GPUs": on_gpus(*map(strange, (5, 7, 9)))},
    f"{DIFFER}0-3": {"half of four": on_gpus(strange(), strange(), ODD, ODD)},
}


def test_a_rank_whose_bits_are_not_the_known_ones_or_those_of_most_peers_is_named(golden):
    check(SAID, golden)
    check(OTHERS)


def test_all_fingerprints_of_a_rank_end_within_the_stages_limit(monkeypatch):
    def compute(launch, seconds):
        took.append(seconds + 20)  # a kernel may be that late

    for probe in (host, gpu):
        monkeypatch.setattr(probe, "fingerprint", compute)
    for depth in ("quick", "normal", "full"):
        stage, took = fingerprint.stage(Options(depth)), []
        plan = {"device": "GPU", "seconds": fingerprint._SECONDS[depth]}
        assert stage.measure(context(plan)) == {"host": None, "gpu": None}
        assert len(took) == 2
        assert sum(took) <= stage.seconds, depth


def test_this_machine_computes_the_known_bits_and_its_ranks_share_the_cores():
    before, places = os.sched_getaffinity(0), 0
    for rank in range(2):
        found = host.fingerprint(SimpleNamespace(local_rank=rank, local_world=2), 0.05)
        assert os.sched_getaffinity(0) == before
        assert found["hashes"] == found["golden"]
        assert found["odd_count"] == 0
        places += found["places"]
    assert places == max(2, len(before))
