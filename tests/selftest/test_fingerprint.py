"""Exact bits: a rank is broken if its bits differ from the known ones, or from most peers."""

import os
import struct
from types import SimpleNamespace

import pytest

from figures import run_of
from made_up import context
from oddrank.selftest import Options
from oddrank.selftest.probes import gpu, host, summary
from oddrank.selftest.probes.gpu import hash_of as hash_products
from oddrank.selftest.probes.gpu import numbers
from oddrank.selftest.stages import fingerprint
from selftest.said import check

GOLDEN = {"fp32": 1, "fp64": 2}


def told(seen, kind="x86_64", golden=GOLDEN, odd=None):
    """Returns a rank's result. odd: (which of 20 prints, what differs in it)."""
    places = [(f"core {i % 4}", i // 4, dict(seen)) for i in range(20)]
    if odd:
        places[odd[0]][2].update(odd[1])
    return summary(kind, golden, places)


def products(bf16=5, fp8=6, kind="H200, cuBLAS 13.1", odd=None):
    """Returns a rank's hashes of products: no bits are known beforehand."""
    return told({"cublas_bf16": bf16, "cublas_fp8": fp8}, kind, {}, odd)


def judged(*ranks, scope="host"):
    run = run_of([1] * len(ranks))
    run.results["fingerprint"] = {rank: {scope: one} for rank, one in enumerate(ranks)}
    return fingerprint.stage(Options()).conclude(run)


def multiplied(*ranks):
    return judged(*ranks, scope="products")


HEALTHY, UNLIKE = told(GOLDEN), told({**GOLDEN, "fp64": 9})
UNKNOWN, OTHER = (told({**GOLDEN, "fp64": bits}, golden={}) for bits in (2, 9))  # of some GPU
ODD, WRONG_ONCE = products(bf16=9), products(odd=(4, {"cublas_fp8": 1}))
LACKS_FP8 = told({"cublas_bf16": 5}, "H200, cuBLAS 13.1", {})
NAMED, DIFFER = "broken wrong-arithmetic: ", "unknown bits-differ: "
SAID = {
    f"{NAMED}1": {
        "other bits": judged(HEALTHY, UNLIKE, HEALTHY),
        "of two, bits are known": judged(HEALTHY, UNLIKE),
        "a core is wrong once": judged(HEALTHY, told(GOLDEN, odd=(6, {"fp32": 5}))),
    },
    f"{NAMED}0": {
        "alone, bits are known": judged(UNLIKE),
        "a product is wrong once": multiplied(WRONG_ONCE, *[products()] * 3),
    },
    f"{NAMED}2": {"bits are not known": judged(UNKNOWN, UNKNOWN, OTHER, scope="gpu")},
    f"{NAMED}3": {"a GPU's products": multiplied(*[products()] * 3, ODD)},
    f"{DIFFER}0-1": {
        "of two, bits are not known": judged(UNKNOWN, OTHER, scope="gpu"),
        "products of two": multiplied(products(), ODD),
    },
    f"{DIFFER}0-2": {"most have other bits than known": judged(HEALTHY, UNLIKE, UNLIKE)},
    f"{DIFFER}0-3": {"half have other bits": judged(HEALTHY, HEALTHY, UNLIKE, UNLIKE)},
}
OTHERS = {
    "": {
        "equal": judged(*[HEALTHY] * 4),
        "another kind": judged(UNKNOWN, told({"fp64": 9}, "sm_90", {}), scope="gpu"),
        "another library": multiplied(products(), products(), products(9, kind="cuBLAS 12.9")),
    },
    f"{NAMED}2, 3": {"two differ": judged(HEALTHY, HEALTHY, UNLIKE, told({**GOLDEN, "fp64": 8}))},
    f"{NAMED}0": {"a product of the only GPU": multiplied(WRONG_ONCE)},
    f"{NAMED}4": {"some lack a format": multiplied(*[products()] * 3, LACKS_FP8, products(fp8=1))},
    f"{DIFFER}0-2": {"products of three": multiplied(*map(products, (5, 7, 9)))},
    f"{DIFFER}0-3": {"products of half": multiplied(products(), products(), ODD, ODD)},
}


def test_a_rank_whose_bits_are_not_the_known_ones_or_those_of_most_peers_is_named(golden):
    check(SAID, golden)
    check(OTHERS)


def test_all_fingerprints_of_a_rank_end_within_the_stages_limit(monkeypatch):
    def compute(launch, seconds):
        took.append(seconds + 20)  # a kernel may be that late

    for probe in (host, gpu):
        monkeypatch.setattr(probe, "FINGERPRINTS", dict.fromkeys(probe.FINGERPRINTS, compute))
    for depth in ("quick", "normal", "full"):
        stage, took = fingerprint.stage(Options(depth)), []
        plan = {"device": "GPU", "seconds": fingerprint._SECONDS[depth]}
        assert stage.measure(context(plan)) == {}
        assert len(took) == 3
        assert sum(took) <= stage.seconds, depth


@pytest.mark.needs("torch")
def test_the_hash_of_a_product_changes_with_any_bit_and_any_place():
    import torch

    matrix = torch.randn(16, 16)
    right = hash_products(torch, matrix)
    assert hash_products(torch, matrix.clone()) == right
    for place in range(256):
        wrong = matrix.clone()
        wrong.view(torch.int32).flatten()[place] ^= 1 << (place % 31)
        assert hash_products(torch, wrong) != right
    assert hash_products(torch, matrix.t()) != right
    assert hash_products(torch, matrix.to(torch.bfloat16)) != right


def number_at(index):
    """Returns the number at an index of the first matrix, by Python's whole numbers."""

    def wrapped(value):
        return (value + 2**63) % 2**64 - 2**63

    mixed = wrapped(index * 0x2545F4914F6CDD1D)
    mixed = wrapped((mixed ^ (mixed >> 29)) * 0x2545F4914F6CDD1D)
    return (mixed >> 40) / 2**23


@pytest.mark.needs("torch")
def test_the_numbers_that_are_multiplied_are_the_same_bits_everywhere():
    import torch

    first, second = (numbers(torch, torch.device("cpu"), 64, seed) for seed in range(2))
    assert -1 <= float(first.min()) < -0.9
    assert 0.9 < float(first.max()) < 1
    assert first.unique().numel() > 4000
    assert not torch.equal(first, second)
    expected = [number_at(index) for index in range(64 * 64)]
    assert first.flatten().tolist() == expected
    bits = struct.unpack(f"<{len(expected)}i", struct.pack(f"<{len(expected)}f", *expected))
    known = sum((2 * i + 1) * one for i, one in enumerate(bits)) % 2**64
    assert hash_products(torch, first) == known


def test_this_machine_computes_the_known_bits_and_its_ranks_share_the_cores():
    before, places = os.sched_getaffinity(0), 0
    for rank in range(2):
        found = host.fingerprint(SimpleNamespace(local_rank=rank, local_world=2), 0.05)
        assert os.sched_getaffinity(0) == before
        assert found["hashes"] == found["golden"]
        assert found["odd_count"] == 0
        places += found["places"]
    assert places == max(2, len(before))
