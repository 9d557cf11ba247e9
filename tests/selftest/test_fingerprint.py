"""Exact bits: a rank is broken if its bits differ from the known ones, or from most peers."""

import os
from types import SimpleNamespace

from figures import run_of
from oddrank.selftest import Options
from oddrank.selftest.probes import host, prints
from oddrank.selftest.stages import fingerprint

GOLDEN = {"fp32": 1, "fp64": 2}


def healthy(**changes):
    places = [(f"core {i}", repeat, dict(GOLDEN)) for i in range(4) for repeat in range(5)]
    return {**prints.summary("x86_64", GOLDEN, places), **changes}


def judged(*ranks, scope="host"):
    run = run_of([1] * len(ranks))
    run.results["fingerprint"] = {rank: {scope: one} for rank, one in enumerate(ranks)}
    return fingerprint.stage(Options()).conclude(run)


def hashes(fp64):
    return {"fp32": f"{1:016x}", "fp64": f"{fp64:016x}"}


def test_equal_bits_everywhere_are_healthy():
    assert not judged(*[healthy()] * 4)


def test_a_rank_with_other_bits_is_broken_and_its_unit_is_told():
    (found,) = judged(healthy(), healthy(hashes=hashes(9)), healthy())
    assert (found.condition, found.cause) == ("broken", "wrong-arithmetic")
    assert (found.who.ranks, found.confidence.level) == ((1,), "high")
    assert "fp64" in found.what
    assert found.evidence[0].text == "fp64: 0000000000000009 instead of 0000000000000002"


def test_what_is_known_beforehand_decides_between_two_and_judges_one():
    for ranks in ([healthy(), healthy(hashes=hashes(9))], [healthy(hashes=hashes(9))]):
        (found,) = judged(*ranks)
        assert found.who.ranks == (len(ranks) - 1,)


def test_a_core_that_is_wrong_once_is_told_with_its_place():
    seen = [(f"core {i}", repeat, dict(GOLDEN)) for i in range(4) for repeat in range(5)]
    seen[7][2]["fp32"] = 5
    (found,) = judged(healthy(), prints.summary("x86_64", GOLDEN, seen))
    assert found.who.ranks == (1,)
    assert found.evidence[0].text.startswith("fp32 on core 1, repeat 2: 0000000000000005 instead")


def test_without_known_bits_the_majority_is_right_and_two_are_unknown():
    unknown = healthy(golden={})
    other = healthy(golden={}, hashes=hashes(9))
    (found,) = judged(unknown, unknown, other, scope="gpu")
    assert (found.condition, found.who.ranks) == ("broken", (2,))
    (found,) = judged(unknown, other, scope="gpu")
    assert (found.condition, found.cause) == ("unknown", "bits-differ")


def test_ranks_of_another_kind_are_not_compared():
    other = healthy(golden={}, hashes=hashes(9), kind="sm_90")
    assert not judged(healthy(golden={}), other, scope="gpu")


def test_where_half_have_the_same_other_bits_nobody_is_named():
    odd = healthy(hashes=hashes(9))
    (found,) = judged(healthy(), healthy(), odd, odd)
    assert (found.condition, found.cause) == ("unknown", "bits-differ")
    assert len(judged(healthy(), healthy(), odd, healthy(hashes=hashes(8)))) == 2


def test_if_most_ranks_differ_from_what_is_known_nobody_is_named():
    odd = healthy(hashes=hashes(9))
    (found,) = judged(healthy(), odd, odd)
    assert found.condition == "unknown"


def test_this_machine_computes_the_known_bits_on_every_core():
    here = SimpleNamespace(local_rank=0, local_world=1)
    before = os.sched_getaffinity(0)
    found = host.fingerprint(here, 0.05)
    assert os.sched_getaffinity(0) == before
    assert found["places"] == len(before)
    assert found["hashes"] == found["golden"]
    assert found["odd_count"] == 0


def test_the_ranks_of_a_host_share_its_cores():
    cores = os.sched_getaffinity(0)
    shares = [
        set(host._own_cores(SimpleNamespace(local_rank=rank, local_world=2))) for rank in range(2)
    ]
    assert set().union(*shares) == cores
