"""The self-test's kernels on a real GPU: memory bandwidth, transfers, fingerprints, products."""

from types import SimpleNamespace

import pytest

from oddrank import OddrankError, _native
from oddrank.selftest import metrics
from oddrank.selftest.probes import cublas, gpu

pytestmark = [pytest.mark.gpu, pytest.mark.needs("cuda-build")]

MIB = 1 << 20
HERE = SimpleNamespace(rank=0, local_rank=0, local_world=1)
UNITS = (
    "fp32", "fp64", "integer", "shared",
    "tensor_fp16", "tensor_bf16", "tensor_tf32", "tensor_int8",
)  # fmt: skip


def test_memory_is_read_written_and_copied_at_rates_that_make_sense():
    times = _native.cuda().time_device_memory(0, 256 * MIB, 5)
    assert times["bytes"] == 256 * MIB
    for way in ("read", "write", "copy"):
        rates = [times["bytes"] / seconds for seconds in times[way]]
        assert len(rates) == 5
        assert all(1e9 < rate < 1e14 for rate in rates), way


def test_sizes_are_rounded_down_to_whole_tiles():
    assert _native.cuda().time_device_memory(0, 100_000, 1)["bytes"] == 98_304
    with pytest.raises(OddrankError, match="at least 32 KiB"):
        _native.cuda().time_device_memory(0, 1000, 1)


def test_transfers_go_both_ways():
    times = _native.cuda().time_transfers(0, 64 * MIB, 4)
    for way in ("to_device", "to_host"):
        assert len(times[way]) == 4
        assert all(1e8 < times["bytes"] / seconds < 1e12 for seconds in times[way])


@pytest.mark.parametrize(
    "call",
    [
        lambda cuda: cuda.time_device_memory(0, 4096 * MIB, 50, seconds=0.0),
        lambda cuda: cuda.time_transfers(0, 256 * MIB, 50, seconds=0.0),
        lambda cuda: cuda.gpu_fingerprint(0, 0.0, seconds=0.0),
    ],
)
def test_a_deadline_that_has_passed_ends_it_and_the_next_call_works(call):
    with pytest.raises(OddrankError, match="did not finish before the deadline; device 0"):
        call(_native.cuda())
    assert _native.cuda().time_device_memory(0, MIB, 1)["read"]


@pytest.mark.parametrize(
    "call",
    [
        lambda cuda: cuda.time_device_memory(0, 1 << 50, 1),
        lambda cuda: cuda.time_transfers(0, 1 << 50, 1),
    ],
)
def test_what_cannot_be_had_is_an_error_in_words_and_the_next_call_works(call):
    with pytest.raises(OddrankError, match="failed with cudaErrorMemoryAllocation"):
        call(_native.cuda())
    assert _native.cuda().time_device_memory(0, MIB, 1)["read"]


@pytest.mark.parametrize("damage_pass", range(6))
def test_each_pattern_finds_a_flipped_bit(damage_pass):
    result = _native.cuda().verify_memory(
        0, 64 * MIB, 7, thorough=True, damage=4321, damage_pass=damage_pass
    )
    mismatches = result["mismatches"]
    assert (mismatches["count"], mismatches["index"], mismatches["bits"]) == (1, 4321, 1)
    assert mismatches["got"] == mismatches["expected"] ^ 1
    assert mismatches["pass"]


def test_every_multiprocessor_computes_what_is_known_beforehand():
    told = _native.cuda().gpu_fingerprint(0, 0.0)
    lacking = {"tensor_bf16", "tensor_tf32"} if told["code"] < 80 else set()
    assert tuple(told["golden"]) == tuple(unit for unit in UNITS if unit not in lacking)
    assert len({sm for sm, _, _ in told["seen"]}) == told["multiprocessors"]
    for sm, _, hashes in told["seen"]:
        assert hashes == told["golden"], f"SM {sm}"


def test_its_first_units_have_the_bits_of_the_host():
    golden = _native.cuda().gpu_fingerprint(0, 0.0)["golden"]
    assert _native.core().host_fingerprint().items() <= golden.items()


def test_a_fingerprint_is_the_same_a_thousand_times():
    cuda, computed, repeats = _native.cuda(), 0, 0
    while repeats < 1000:
        told = cuda.gpu_fingerprint(0, 2.0, seconds=60)
        assert all(hashes == told["golden"] for _, _, hashes in told["seen"])
        computed += told["computed"]
        repeats = computed // (6 * told["multiprocessors"])


@pytest.mark.parametrize("unit", UNITS)
def test_one_wrong_bit_of_one_thread_is_found_with_its_multiprocessor(unit):
    told = _native.cuda().gpu_fingerprint(0, 0.0, spoil=unit)
    wrong = {(sm, name) for sm, _, hashes in told["seen"] for name, value in hashes.items()
             if value != told["golden"][name]}  # fmt: skip
    assert len(wrong) == 1
    assert {name for _, name in wrong} == {unit}


def test_a_spoilt_multiprocessor_is_in_what_a_rank_publishes(monkeypatch):
    cuda = _native.cuda()
    healthy = gpu.fingerprint(HERE, 0.0)
    assert healthy["odd_count"] == 0
    assert healthy["hashes"] == healthy["golden"]
    assert healthy["places"] == healthy["places_there"]

    class Spoilt:
        def gpu_fingerprint(self, *arguments, **options):
            return cuda.gpu_fingerprint(*arguments, **options, spoil="fp64")

        def __getattr__(self, name):
            return getattr(cuda, name)

    monkeypatch.setattr(_native, "cuda", Spoilt)
    spoilt = gpu.fingerprint(HERE, 0.0)
    assert spoilt["odd_count"] == 1
    assert spoilt["odd"][0]["unit"] == "fp64"
    assert spoilt["odd"][0]["place"].startswith("SM ")


@pytest.mark.needs("torch")
def test_products_have_the_same_bits_again_and_again():
    first, second = (cublas.fingerprint(HERE, seconds) for seconds in (0.0, 1.0))
    assert first["computed"] == 1 < second["computed"]
    assert first["kind"] == second["kind"]
    assert "cuBLAS unknown" not in first["kind"]
    assert first["hashes"] == second["hashes"]
    assert second["odd_count"] == 0
    major, minor = _native.cuda().devices()[0]["compute_capability"]
    wanted = {(8, 0): "cublas_bf16", (8, 9): "cublas_fp8"}
    assert {name for oldest, name in wanted.items() if (major, minor) >= oldest} <= set(
        first["hashes"]
    )


@pytest.mark.needs("torch")
def test_every_figure_of_the_table_is_measured_or_has_a_reason():
    wanted = {m.name: 3 for m in metrics.of_stage(metrics.SPEED) if m.scope == "gpu"}
    found = gpu.speed(HERE, wanted)
    assert set(found) | set(gpu.reasons) == set(wanted), gpu.reasons
    assert all(len(values) == 3 and min(values) > 0 for values in found.values())
    assert {"gpu_read", "gpu_write", "gpu_copy", "gemm_bf16", "gemm_fp32"} <= set(found)
    assert found["gemm_bf16"][0] > found["gemm_fp32"][0]
    assert gpu.kind(HERE)
