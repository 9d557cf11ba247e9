"""The self-test's kernels on a real GPU: memory, transfers, fingerprints, products."""

import subprocess
from functools import partial
from types import SimpleNamespace

import pytest

from oddrank import OddrankError, _native
from oddrank.selftest import speed_judge
from oddrank.selftest.probes import gpu

pytestmark = [pytest.mark.gpu, pytest.mark.needs("cuda-build")]

MIB, GIB = 1 << 20, 1 << 30
HERE = SimpleNamespace(rank=0, local_rank=0, local_world=1)
UNITS = (
    "fp32", "fp64", "integer", "shared",
    "tensor_fp16", "tensor_bf16", "tensor_tf32", "tensor_int8",
)  # fmt: skip


def verify(size=GIB, device=0, **options):
    """Returns the result of the memory test, and what it found wrong."""
    result = _native.cuda().verify_memory(device, size, 7, **options)
    return result, result["mismatches"]


def test_healthy_memory_has_no_mismatch_and_rates():
    result, wrong = verify()
    assert (result["bytes"], wrong["count"]) == (GIB, 0)
    assert min(result["write_seconds"], result["read_seconds"]) > 0
    assert verify(1000)[0]["bytes"] == 992  # a multiple of 16
    assert verify(thorough=True, enough=0.0)[0]["passes"] == 1  # no further pattern begins


def test_nearly_all_of_the_memory_is_tested_in_all_patterns():
    free, _ = _native.cuda().memory_info(0)
    size = int(free * 0.9) >> 20 << 20
    result, wrong = verify(size, thorough=True, seconds=120)
    assert (result["bytes"], result["passes"], wrong["count"]) == (size, 6, 0)


def test_a_damaged_word_is_named_and_each_pattern_finds_a_flipped_bit():
    for index in (0, 1, 12345, GIB // 8 - 1):
        _, wrong = verify(damage=index)
        assert (wrong["count"], wrong["index"]) == (1, index)
        assert wrong["got"] == wrong["expected"] ^ 1
    for number in range(6):
        _, wrong = verify(64 * MIB, thorough=True, damage=4321, damage_pass=number)
        assert (wrong["count"], wrong["index"], wrong["bits"]) == (1, 4321, 1), number
        assert wrong["got"] == wrong["expected"] ^ 1
        assert wrong["pass"]


def test_memory_is_read_written_and_copied_at_rates_that_make_sense():
    cuda = _native.cuda()
    times, moved = cuda.time_device_memory(0, 256 * MIB, 5), cuda.time_transfers(0, 64 * MIB, 4)
    assert (times["bytes"], moved["bytes"]) == (256 * MIB, 64 * MIB)
    for result, ways, count, least, most in (
        (times, ("read", "write", "copy"), 5, 1e9, 1e14),
        (moved, ("to_device", "to_host"), 4, 1e8, 1e12),
    ):
        for way in ways:
            assert len(result[way]) == count
            assert all(least < result["bytes"] / seconds < most for seconds in result[way]), way
    assert cuda.time_device_memory(0, 100_000, 1)["bytes"] == 98_304  # whole tiles


def test_what_does_not_work_is_an_error_in_words_and_the_next_call_works():
    cuda, late, no_memory = _native.cuda(), "before the deadline; device 0", "ErrorMemoryAllocation"
    for call, words in (
        (lambda: cuda.time_device_memory(0, 4096 * MIB, 50, seconds=0.0), late),
        (lambda: cuda.time_transfers(0, 256 * MIB, 50, seconds=0.0), late),
        (lambda: cuda.gpu_fingerprint(0, 0.0, seconds=0.0), late),
        (lambda: verify(8 * GIB, seconds=0.0), late),
        (lambda: cuda.time_device_memory(0, 1 << 50, 1), no_memory),
        (lambda: cuda.time_transfers(0, 1 << 50, 1), no_memory),
        (lambda: verify(1 << 50), no_memory),
        (lambda: cuda.time_device_memory(0, 1000, 1), "at least 32 KiB"),
        (lambda: verify(MIB, 4096), "cudaSetDevice failed with cudaErrorInvalidDevice"),
    ):
        with pytest.raises(OddrankError, match=words):
            call()
        assert cuda.time_device_memory(0, MIB, 1)["read"], words
        assert verify(MIB)[1]["count"] == 0, words
    cuda.set_rank(3)
    with pytest.raises(OddrankError, match="device 0, rank 3"):
        verify(1 << 50)


def test_the_list_of_gpus_is_that_of_nvidia_smi():
    listed = subprocess.check_output(
        ["nvidia-smi", "--query-gpu=name,uuid", "--format=csv,noheader"], text=True
    )
    ours = {(gpu["name"], gpu["uuid"]) for gpu in _native.cuda().devices()}
    assert ours, "no GPU"
    assert ours <= {tuple(line.split(", ")) for line in listed.splitlines()}


def test_every_multiprocessor_computes_what_is_known_beforehand_as_the_host_does():
    told = _native.cuda().gpu_fingerprint(0, 0.0)
    lacking = {"tensor_bf16", "tensor_tf32"} if told["code"] < 80 else set()
    assert tuple(told["golden"]) == tuple(unit for unit in UNITS if unit not in lacking)
    assert _native.core().host_fingerprint().items() <= told["golden"].items()
    assert len({sm for sm, _, _ in told["seen"]}) == told["multiprocessors"]
    for sm, _, hashes in told["seen"]:
        assert hashes == told["golden"], f"SM {sm}"


def test_a_fingerprint_is_the_same_a_thousand_times():
    cuda, computed, repeats = _native.cuda(), 0, 0
    while repeats < 1000:
        told = cuda.gpu_fingerprint(0, 2.0, seconds=60)
        assert all(hashes == told["golden"] for _, _, hashes in told["seen"])
        computed += told["computed"]
        repeats = computed // (6 * told["multiprocessors"])


def test_one_wrong_bit_of_one_thread_is_found_with_its_multiprocessor():
    for unit in UNITS:
        told = _native.cuda().gpu_fingerprint(0, 0.0, spoil=unit)
        wrong = {(sm, name) for sm, _, hashes in told["seen"] for name, value in hashes.items()
                 if value != told["golden"][name]}  # fmt: skip
        assert [name for _, name in wrong] == [unit]


def test_a_spoilt_multiprocessor_is_in_what_a_rank_publishes(monkeypatch):
    cuda = _native.cuda()
    healthy = gpu.fingerprint(HERE, 0.0)
    assert healthy["odd_count"] == 0
    assert healthy["hashes"] == healthy["golden"]
    assert healthy["places"] == healthy["places_there"]

    class Spoilt:
        def __getattr__(self, name):
            return getattr(cuda, name)

    Spoilt.gpu_fingerprint = staticmethod(partial(cuda.gpu_fingerprint, spoil="fp64"))
    monkeypatch.setattr(_native, "cuda", Spoilt)
    spoilt = gpu.fingerprint(HERE, 0.0)
    assert (spoilt["odd_count"], spoilt["odd"][0]["unit"]) == (1, "fp64")
    assert spoilt["odd"][0]["place"].startswith("SM ")


@pytest.mark.needs("torch")
def test_every_figure_of_the_table_is_measured_or_has_a_reason():
    wanted = {m.name: 3 for m in speed_judge.TABLE if m.scope == "gpu"}
    found = gpu.speed(HERE, wanted)
    assert set(found) | set(gpu.reasons) == set(wanted), gpu.reasons
    assert all(len(values) == 3 and min(values) > 0 for values in found.values())
    assert {"gpu_read", "gpu_write", "gpu_copy", "gemm_bf16", "gemm_fp32"} <= set(found)
    assert found["gemm_bf16"][0] > found["gemm_fp32"][0]
    assert gpu.kind(HERE)
