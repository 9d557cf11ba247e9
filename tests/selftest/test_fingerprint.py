"""Exact bits: a rank is broken if its bits differ from the known ones, or from most peers."""

import os
import struct
from types import SimpleNamespace

import pytest

from figures import run_of
from oddrank.selftest import Options
from oddrank.selftest.probes import gpu, host, prints
from oddrank.selftest.probes.cublas import hash_of as hash_products
from oddrank.selftest.probes.cublas import numbers
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


def products(bf16=5, fp8=6, kind="H200, cuBLAS 13.1", odd=None):
    """Returns a rank's hashes of products: no bits are known beforehand."""
    usual = {"cublas_bf16": bf16, "cublas_fp8": fp8}
    seen = [("the GPU", repeat, dict(usual)) for repeat in range(9)]
    if odd:
        seen[4][2].update(odd)
    return prints.summary(kind, {}, seen)


def test_a_gpu_whose_products_differ_from_most_of_its_kind_is_broken():
    (found,) = judged(*[products()] * 3, products(bf16=9), scope="products")
    assert (found.condition, found.cause, found.who.ranks) == ("broken", "wrong-arithmetic", (3,))
    assert "its gpu computes cublas_bf16 wrongly" in found.what
    assert found.confidence.why == "exact bits, and most of its peers agree on others"


def test_products_that_differ_without_a_majority_name_nobody():
    for ranks in ([5, 9], [5, 5, 9, 9], [5, 7, 9]):
        (found,) = judged(*(products(bf16=one) for one in ranks), scope="products")
        assert (found.condition, found.cause) == ("unknown", "bits-differ")


def test_products_of_another_gpu_or_library_are_not_compared():
    other = products(bf16=9, kind="H200, cuBLAS 12.9")
    assert not judged(products(), products(), other, scope="products")


def test_a_product_that_is_wrong_once_is_told_with_its_repeat_even_of_one_gpu():
    for peers in (0, 3):
        (found,) = judged(products(odd={"cublas_fp8": 1}), *[products()] * peers, scope="products")
        assert found.who.ranks == (0,)
        assert found.evidence[0].text.startswith("cublas_fp8 on the GPU, repeat 4: 00000000000000")


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
