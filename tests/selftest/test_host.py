"""A rank's measurements of its host: rates, memory, CPU quota, and the CPU's model."""

import os
import threading
import time
from types import SimpleNamespace

import pytest

from made_up import context
from oddrank import _native
from oddrank.errors import OddrankError
from oddrank.selftest.probes import host
from oddrank.selftest.speed_judge import TABLE
from oddrank.selftest.stages import speed
from patience import until

MIB = 1 << 20


def test_the_buffer_is_larger_than_the_caches_if_the_host_has_that_much(monkeypatch):
    for free, cache, ranks, expected in (
        (8192, 8, 1, 64), (8192, 64, 1, 128), (8192, 500, 1, 256), (8192, 8, 32, 16), (0, 8, 1, 1),
    ):  # fmt: skip
        monkeypatch.setattr("oddrank.machine.device.free_host_memory", lambda f=free: f * MIB)
        monkeypatch.setattr(host, "_last_cache", lambda c=cache: c * MIB)
        assert host._bytes(SimpleNamespace(local_world=ranks)) == expected * MIB, (free, cache)


def test_the_last_cache_is_the_largest(tmp_path):
    for index, size in enumerate(("48K", "1024K", "32768K", "nothing")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(size)
    assert host._last_cache(str(tmp_path)) == 32 * MIB
    assert host._last_cache(str(tmp_path / "none")) == 0


def test_only_what_is_wanted_is_measured_and_as_often_and_every_metric_has_figures(monkeypatch):
    monkeypatch.setattr(host, "_bytes", lambda launch: MIB)
    names = {row.name for row in TABLE if row.scope == "host"}
    for wanted in ({"host_copy": 3, "host_compute": 1}, dict.fromkeys(names, 1)):
        found = host.speed(SimpleNamespace(), wanted)
        assert {name: len(values) for name, values in found.items()} == wanted
    times = {"bytes": 10**9, "read": [0.5], "write": [0.5], "copy": [0.5]}
    core = SimpleNamespace(time_host_memory=lambda *_: times)
    monkeypatch.setattr(_native, "core", lambda: core)
    rates = {"host_read": [2.0], "host_write": [2.0], "host_copy": [4.0]}  # it moves bytes twice
    assert host.speed(SimpleNamespace(), dict.fromkeys(rates, 1)) == rates


def test_ranks_that_share_cores_measure_on_the_same_ones_in_turn(monkeypatch):
    used = []
    monkeypatch.setattr(
        host, "speed", lambda *_: {"host_copy": [used.append(os.sched_getaffinity(0)) or 1.0]}
    )
    mine = sorted(os.sched_getaffinity(0))
    third = context(launch=SimpleNamespace(local_rank=3), seconds=40)
    speed._figures(third, "host", host, {"host_copy": len(mine) + 1})
    assert used == [{core} for core in [*mine, mine[0]]]
    assert sorted(os.sched_getaffinity(0)) == mine


def test_host_figures_are_rates():
    core = _native.core()
    memory = core.time_host_memory(1 << 22, 3, 2)
    assert [len(memory[way]) for way in ("read", "write", "copy")] == [3, 3, 3]
    assert memory["bytes"] == 1 << 22
    compute = core.time_host_compute(0.01, 40)  # other programs may interrupt most of them
    assert compute["operations"] / min(compute["seconds"]) > 1e8


def test_what_can_not_be_measured_is_refused_in_words():
    core = _native.core()
    for call, word in (
        (lambda: core.time_host_memory(MIB, 0, 4), "repeat"),
        (lambda: core.time_host_memory(64, 1, 4), "bytes"),
        (lambda: core.verify_host_memory(1 << 62, 7), "allocate"),
        (lambda: core.verify_host_memory(7, 7), "8 bytes"),
    ):
        with pytest.raises(OddrankError, match=word):
            call()


def test_healthy_memory_has_no_mismatch_and_a_damaged_word_is_named():
    result = _native.core().verify_host_memory(8 * MIB, 7)
    assert (result["bytes"], result["mismatches"]["count"]) == (8 * MIB, 0)
    assert min(result["write_seconds"], result["read_seconds"]) > 0
    wrong = _native.core().verify_host_memory(MIB, 7, damage=4321)["mismatches"]
    assert (wrong["count"], wrong["index"], wrong["got"] ^ wrong["expected"]) == (1, 4321, 1)


def test_other_threads_run_while_memory_is_tested():
    def runs_beside_it():
        worker = threading.Thread(target=_native.core().verify_host_memory, args=(64 * MIB, 7))
        worker.start()
        seen_alive = 0
        while worker.is_alive():
            seen_alive += 1
            time.sleep(0.001)
        return seen_alive > 2

    until(runs_beside_it)  # without a free core this thread may get none during one test


def test_cpus_are_told_apart_by_what_the_kernel_tells_in_short(tmp_path):
    file = tmp_path / "cpuinfo"
    assert host.cpu_model(str(file))  # the architecture at least
    for lines, model in (
        ("model name : AMD EPYC 9654 96-Core\n", "AMD EPYC 9654 96-Core"),
        ("CPU implementer : 0x41\nCPU part : 0xd4f\n", "0xd4f"),
        ("model name : " + "x" * 1000, "x" * 80),
    ):
        file.write_text(f"processor : 0\n{lines}")
        assert host.cpu_model(str(file)) == model
