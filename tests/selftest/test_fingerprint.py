"""Exact bits: a rank is broken if its bits differ from the known ones, or from most peers."""

import os
import struct
from types import SimpleNamespace

import pytest

from figures import run_of
from findings_shown import check
from oddrank.selftest import Options
from oddrank.selftest.probes import gpu, host, prints
from oddrank.selftest.probes.cublas import hash_of as hash_products
from oddrank.selftest.probes.cublas import numbers
from oddrank.selftest.stages import fingerprint

GOLDEN = {"fp32": 1, "fp64": 2}


def healthy(**changes):
    places = [(f"core {i}", repeat, dict(GOLDEN)) for i in range(4) for repeat in range(5)]
    return {**prints.summary("x86_64", GOLDEN, places), **changes}


def unlike(fp64=9, **changes):
    return healthy(hashes={"fp32": f"{1:016x}", "fp64": f"{fp64:016x}"}, **changes)


def wrong_once():
    seen = [(f"core {i}", repeat, dict(GOLDEN)) for i in range(4) for repeat in range(5)]
    seen[7][2]["fp32"] = 5
    return prints.summary("x86_64", GOLDEN, seen)


def products(bf16=5, fp8=6, kind="H200, cuBLAS 13.1", odd=None):
    """Returns a rank's hashes of products: no bits are known beforehand."""
    usual = {"cublas_bf16": bf16, "cublas_fp8": fp8}
    seen = [("the GPU", repeat, dict(usual)) for repeat in range(9)]
    if odd:
        seen[4][2].update(odd)
    return prints.summary(kind, {}, seen)


def judged(*ranks, scope="host"):
    run = run_of([1] * len(ranks))
    run.results["fingerprint"] = {rank: {scope: one} for rank, one in enumerate(ranks)}
    return fingerprint.stage(Options()).conclude(run)


def multiplied(*ranks):
    return judged(*ranks, scope="products")


UNKNOWN = healthy(golden={})  # of a GPU without known bits
LACKS_FP8 = prints.summary("H200, cuBLAS 13.1", {}, [("the GPU", 0, {"cublas_bf16": 5})])
NAMED, DIFFER = "broken wrong-arithmetic: ", "unknown bits-differ: "
SAID = {
    "other bits": (judged(healthy(), unlike(), healthy()), f"{NAMED}1"),
    "of two, bits are known": (judged(healthy(), unlike()), f"{NAMED}1"),
    "alone, bits are known": (judged(unlike()), f"{NAMED}0"),
    "a core is wrong once": (judged(healthy(), wrong_once()), f"{NAMED}1"),
    "bits are not known": (
        judged(UNKNOWN, UNKNOWN, unlike(golden={}), scope="gpu"), f"{NAMED}2"
    ),
    "of two, bits are not known": (judged(UNKNOWN, unlike(golden={}), scope="gpu"), f"{DIFFER}0-1"),
    "half have other bits": (judged(*[healthy()] * 2, *[unlike()] * 2), f"{DIFFER}0-3"),
    "most have other bits than known": (judged(healthy(), unlike(), unlike()), f"{DIFFER}0-2"),
    "a GPU's products": (multiplied(*[products()] * 3, products(bf16=9)), f"{NAMED}3"),
    "products of two": (multiplied(products(), products(bf16=9)), f"{DIFFER}0-1"),
    "a product is wrong once": (
        multiplied(products(odd={"cublas_fp8": 1}), *[products()] * 3), f"{NAMED}0"
    ),
}  # fmt: skip
OTHERS = {
    "equal": (judged(*[healthy()] * 4), ""),
    "another kind": (judged(UNKNOWN, unlike(golden={}, kind="sm_90"), scope="gpu"), ""),
    "two with different other bits": (
        judged(healthy(), healthy(), unlike(), unlike(8)), f"{NAMED}2, 3"
    ),
    "products of half": (
        multiplied(*[products()] * 2, *[products(bf16=9)] * 2), f"{DIFFER}0-3"
    ),
    "products of three": (multiplied(*(products(bf16=one) for one in (5, 7, 9))), f"{DIFFER}0-2"),
    "products of another library": (
        multiplied(products(), products(), products(bf16=9, kind="H200, cuBLAS 12.9")), ""
    ),
    "a product of the only GPU": (multiplied(products(odd={"cublas_fp8": 1})), f"{NAMED}0"),
    # A format that some GPUs lack is compared among the others.
    "some lack a format": (
        multiplied(*[products()] * 3, LACKS_FP8, products(fp8=1)), f"{NAMED}4"
    ),
}  # fmt: skip


def test_a_rank_whose_bits_are_not_the_known_ones_or_those_of_most_peers_is_named(golden):
    check(SAID, golden)
    check(OTHERS)


@pytest.mark.parametrize("depth", ["quick", "normal", "full"])
def test_all_fingerprints_of_a_rank_end_within_the_stages_limit(depth, monkeypatch):
    stage, took = fingerprint.stage(Options(depth)), []

    def compute(launch, seconds):
        took.append(seconds + 20)  # a kernel may be that late

    for probe in (host, gpu):
        monkeypatch.setattr(probe, "FINGERPRINTS", dict.fromkeys(probe.FINGERPRINTS, compute))
    plan = {"device": "GPU", "seconds": fingerprint._SECONDS[depth]}
    context = SimpleNamespace(parameters=plan, launch=None, step=lambda text: None)
    assert stage.measure(context) == {}
    assert len(took) == 3
    assert sum(took) <= stage.seconds


def test_a_format_that_some_gpus_lack_is_compared_among_the_others():
    lacking = prints.summary("H200, cuBLAS 13.1", {}, [("the GPU", 0, {"cublas_bf16": 5})])
    (found,) = judged(*[products()] * 3, lacking, products(fp8=1), scope="products")
    assert found.who.ranks == (4,)


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
