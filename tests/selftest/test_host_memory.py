"""The memory test of ranks without a GPU, through Python."""

import threading
import time

import pytest

from oddrank import OddrankError, _native
from patience import until


def test_healthy_memory_has_no_mismatch_and_rates():
    result = _native.core().verify_host_memory(8 << 20, 7)
    assert result["bytes"] == 8 << 20
    assert result["mismatches"]["count"] == 0
    assert result["write_seconds"] > 0
    assert result["read_seconds"] > 0


def test_a_damaged_word_is_named():
    mismatches = _native.core().verify_host_memory(1 << 20, 7, damage=4321)["mismatches"]
    assert (mismatches["count"], mismatches["index"]) == (1, 4321)
    assert mismatches["got"] == mismatches["expected"] ^ 1


def test_too_much_memory_is_an_error_in_words():
    with pytest.raises(OddrankError, match=r"can't allocate .* bytes of host memory"):
        _native.core().verify_host_memory(1 << 62, 7)


def test_other_threads_run_meanwhile():
    def runs_beside_it():
        worker = threading.Thread(target=_native.core().verify_host_memory, args=(64 << 20, 7))
        worker.start()
        seen_alive = 0
        while worker.is_alive():
            seen_alive += 1
            time.sleep(0.001)
        return seen_alive > 2

    until(runs_beside_it)  # without a free core this thread may get none during one test
