"""The GPU's memory test, on a real GPU."""

import pytest

from oddrank import OddrankError, _native

pytestmark = [pytest.mark.gpu, pytest.mark.needs("cuda-build")]

GIB = 1 << 30


def verify(*arguments: int, **options: float):
    return _native.cuda().verify_memory(*arguments, **options)


def test_healthy_memory_has_no_mismatch_and_rates():
    result = verify(0, GIB, 7)
    assert result["bytes"] == GIB
    assert result["mismatches"]["count"] == 0
    assert result["write_seconds"] > 0
    assert result["read_seconds"] > 0


@pytest.mark.parametrize("index", [0, 1, 12345, GIB // 8 - 1])
def test_a_damaged_word_is_named(index: int):
    mismatches = verify(0, GIB, 7, damage=index)["mismatches"]
    assert (mismatches["count"], mismatches["index"]) == (1, index)
    assert mismatches["got"] == mismatches["expected"] ^ 1


def test_sizes_that_are_no_multiple_of_16_are_rounded_down():
    assert verify(0, 1000, 7)["bytes"] == 992


def test_nearly_all_of_the_memory_is_tested_in_all_patterns():
    free, _ = _native.cuda().memory_info(0)
    size = int(free * 0.9) >> 20 << 20
    result = verify(0, size, 7, thorough=True, seconds=120)
    assert (result["bytes"], result["passes"]) == (size, 6)
    assert result["mismatches"]["count"] == 0


def test_once_it_is_enough_no_further_pattern_begins():
    assert verify(0, GIB, 7, thorough=True, enough=0.0)["passes"] == 1


def test_more_memory_than_there_is_fails_in_words_and_the_next_call_works():
    with pytest.raises(OddrankError, match=r"cudaMalloc failed with cudaErrorMemoryAllocation"):
        verify(0, 1 << 50, 7)
    assert verify(0, 1 << 20, 7)["mismatches"]["count"] == 0


def test_errors_name_device_and_rank():
    _native.cuda().set_rank(3)
    with pytest.raises(OddrankError, match="device 0, rank 3"):
        verify(0, 1 << 50, 7)


def test_a_gpu_that_is_not_there_is_an_error():
    with pytest.raises(OddrankError, match="cudaSetDevice failed with cudaErrorInvalidDevice"):
        verify(4096, 1 << 20, 7)


def test_a_deadline_that_has_passed_ends_the_test():
    with pytest.raises(OddrankError, match="did not finish before the deadline"):
        verify(0, 8 * GIB, 7, seconds=0.0)
    assert verify(0, 1 << 20, 7)["mismatches"]["count"] == 0


def test_the_list_of_gpus_is_that_of_nvidia_smi():
    import subprocess

    listed = subprocess.check_output(
        ["nvidia-smi", "--query-gpu=name,uuid", "--format=csv,noheader"], text=True
    )
    ours = {(gpu["name"], gpu["uuid"]) for gpu in _native.cuda().devices()}
    theirs = {tuple(line.split(", ")) for line in listed.splitlines()}
    assert ours, "no GPU"
    assert ours <= theirs
