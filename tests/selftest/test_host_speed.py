"""A rank's measurements of its host: rates, and the memory used for them."""

import os
from types import SimpleNamespace

import pytest

from oddrank import _native
from oddrank.errors import OddrankError
from oddrank.selftest.metrics import TABLE
from oddrank.selftest.probes import host
from oddrank.selftest.stages import speed, train

MIB = 1 << 20


@pytest.mark.parametrize(
    ("free", "cache", "ranks", "expected"),
    [(8192, 8, 1, 64), (8192, 64, 1, 128), (8192, 500, 1, 256), (8192, 8, 32, 16), (0, 8, 1, 1)],
)
def test_the_buffer_is_larger_than_the_caches_if_the_host_has_that_much(
    monkeypatch, free, cache, ranks, expected
):
    monkeypatch.setattr("oddrank.machine.device.free_host_memory", lambda: free * MIB)
    monkeypatch.setattr(host, "_last_cache", lambda: cache * MIB)
    assert host._bytes(SimpleNamespace(local_world=ranks)) == expected * MIB


def test_the_last_cache_is_the_largest(tmp_path):
    for index, size in enumerate(("48K", "1024K", "32768K", "nothing")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(size)
    assert host._last_cache(str(tmp_path)) == 32 * MIB
    assert host._last_cache(str(tmp_path / "none")) == 0


def test_only_what_is_wanted_is_measured_and_as_often(monkeypatch):
    monkeypatch.setattr(host, "_bytes", lambda launch: MIB)
    found = host.speed(SimpleNamespace(), {"host_copy": 3, "host_compute": 1})
    assert {name: len(values) for name, values in found.items()} == {
        "host_copy": 3,
        "host_compute": 1,
    }


def test_every_metric_of_a_host_has_its_figures(monkeypatch):
    monkeypatch.setattr(host, "_bytes", lambda launch: MIB)
    names = {row.name for row in TABLE if row.scope == "host"}
    assert set(host.speed(SimpleNamespace(), dict.fromkeys(names, 1))) == names


def test_ranks_that_share_cores_measure_on_the_same_ones_in_turn(monkeypatch):
    used = []
    monkeypatch.setattr(
        host, "speed", lambda *_: {"host_copy": [used.append(os.sched_getaffinity(0)) or 1.0]}
    )
    context = SimpleNamespace(
        step=lambda *a, **b: None, seconds=40, launch=SimpleNamespace(local_rank=3)
    )
    mine = sorted(os.sched_getaffinity(0))
    speed._figures(context, "host", host, {"host_copy": len(mine) + 1})
    assert used == [{core} for core in [*mine, mine[0]]]
    assert sorted(os.sched_getaffinity(0)) == mine


def test_host_figures_are_rates():
    core = _native.core()
    memory = core.time_host_memory(1 << 22, 3, 2)
    assert [len(memory[way]) for way in ("read", "write", "copy")] == [3, 3, 3]
    assert memory["bytes"] == 1 << 22
    compute = core.time_host_compute(0.01, 40)  # other programs may interrupt most of them
    assert compute["operations"] / min(compute["seconds"]) > 1e8


def test_nothing_to_measure_is_refused_in_words():
    core = _native.core()
    with pytest.raises(OddrankError, match="at least one repeat"):
        core.time_host_memory(MIB, 0, 4)
    with pytest.raises(OddrankError, match="at least 64 bytes"):
        core.time_host_memory(64, 1, 4)


@pytest.mark.parametrize(
    ("lines", "model"),
    [
        ("processor : 0\nmodel name : AMD EPYC 9654 96-Core\n", "AMD EPYC 9654 96-Core"),
        ("processor : 0\nCPU implementer : 0x41\nCPU part : 0xd4f\n", "0xd4f"),
        ("processor : 0\nmodel name : " + "x" * 1000, "x" * 80),
    ],
)
def test_the_cpus_model_is_what_the_kernel_tells_and_short(tmp_path, lines, model):
    (tmp_path / "cpuinfo").write_text(lines)
    assert host.cpu_model(str(tmp_path / "cpuinfo")) == model


def test_a_cpu_that_the_kernel_does_not_tell_of_has_its_architecture_at_least(tmp_path):
    assert host.cpu_model(str(tmp_path / "none"))


def test_training_and_speed_tell_cpus_apart_in_the_same_way(monkeypatch):
    monkeypatch.setattr(host, "cpu_model", lambda: "0xd4f")
    cpu = SimpleNamespace(get_cpu_capability=lambda: "AVX2")
    torch = SimpleNamespace(backends=SimpleNamespace(cpu=cpu), __version__="2.9")
    group = SimpleNamespace(torch=torch, device=SimpleNamespace(type="cpu"))
    assert train.kind_of_device(group) == "0xd4f, AVX2, torch 2.9"
