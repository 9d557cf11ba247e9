"""Where a GPU sits, read from a made-up /sys; and whose link is measured at the same time."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from made_up import context
from oddrank import _native
from oddrank.machine import placement
from oddrank.machine.placement import bound_to, of_gpu
from oddrank.selftest.probes import gpu
from oddrank.selftest.stages import speed
from patience import PATIENCE

# GPUs below a switch of two, below a root port alone, and in a virtual machine.
PAIRED = "pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:00.0/0000:19:00.0"
ITS_PEER = "pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:01.0/0000:1b:00.0"
ALONE = "pci0000:38/0000:38:01.0/0000:3a:00.0"
VIRTUAL = "pci0000:00/0000:00:05.0"


@pytest.fixture
def devices(tmp_path):
    """Returns the folder of PCI devices of a host with these GPUs."""
    folder = tmp_path / "bus" / "pci" / "devices"
    folder.mkdir(parents=True)
    for path, node, cpus in ((PAIRED, 0, "0-3,8"), (ITS_PEER, 0, "0-3,8"), (ALONE, 1, "4-7"),
                             (VIRTUAL, -1, "0-7")):  # fmt: skip
        device = tmp_path / "devices" / path
        device.mkdir(parents=True)
        (device / "numa_node").write_text(f"{node}\n")
        (device / "local_cpulist").write_text(f"{cpus}\n")
        (folder / device.name).symlink_to(device)
    return folder


@pytest.fixture
def cuda(monkeypatch):
    """Makes _cuda list GPUs at these addresses."""

    def listed(*addresses):
        gpus = [
            {"name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-ab", "pci_bus_id": address,
             "compute_capability": (9, 0)} for address in addresses
        ]  # fmt: skip
        module = SimpleNamespace(devices=lambda: gpus)
        monkeypatch.setattr(_native, "cuda", lambda: module)

    return listed


def test_a_gpu_has_the_node_processors_and_switch_that_the_kernel_shows(devices, cuda):
    cuda("0000:3A:00.0", "0000:1B:00.0", "0000:00:05.0", "0000:ff:00.0")
    found = of_gpu(1, devices)
    assert (found.index, found.pci, found.architecture) == (1, "0000:1b:00.0", (9, 0))
    assert (found.numa_node, found.cpus) == (0, {0, 1, 2, 3, 8})
    assert found.switch == "0000:16:01.0"
    virtual, unseen = of_gpu(2, devices), of_gpu(3, devices)
    assert (virtual.switch, virtual.numa_node) == (None, None)
    assert (unseen.switch, unseen.numa_node, unseen.cpus) == (None, None, frozenset())


def test_a_thread_is_bound_while_it_measures_and_free_again_after_it():
    before = os.sched_getaffinity(0)
    one = {min(before)}
    with bound_to(one) as bound:
        assert bound
        assert os.sched_getaffinity(0) == one
    assert os.sched_getaffinity(0) == before
    for nothing in ((), {max(before) + 4000}):
        with bound_to(nothing) as bound:
            assert not bound
            assert os.sched_getaffinity(0) == before


def test_a_link_is_measured_by_one_gpu_of_its_switch_and_memory_by_all(devices, cuda, monkeypatch):
    monkeypatch.setattr(placement, "PCI_DEVICES", devices)
    monkeypatch.setattr(placement, "gpu_index", lambda launch: 0)
    for address, alone in (
        ("0000:19:00.0", "0000:16:01.0"), ("0000:1b:00.0", "0000:16:01.0"),
        ("0000:3a:00.0", "0000:38:01.0"), ("0000:00:05.0", "PCIe"),
    ):  # fmt: skip
        cuda(address)
        assert gpu.alone(SimpleNamespace(), "pcie_to_host") == alone
        assert gpu.alone(SimpleNamespace(), "gpu_copy") == ""


def test_transfers_are_measured_by_a_thread_near_the_gpu(devices, cuda, monkeypatch):
    near = {min(os.sched_getaffinity(0))}
    cuda("0000:19:00.0")
    (devices / "0000:19:00.0" / "local_cpulist").write_text(f"{min(near)}\n")
    monkeypatch.setattr(placement, "PCI_DEVICES", devices)
    monkeypatch.setattr(placement, "gpu_index", lambda launch: 0)
    used = []

    def time_transfers(index, size, repeats):
        used.append(os.sched_getaffinity(0))
        return {"bytes": 1, "to_device": [1.0], "to_host": [1.0]}

    _native.cuda().time_transfers, _native.cuda().set_rank = time_transfers, lambda rank: None
    monkeypatch.setattr(gpu, "products", lambda index, repeats: {})
    gpu.speed(SimpleNamespace(rank=0), {"pcie_to_host": 1})
    assert used == [near]


def test_one_rank_of_a_switch_measures_at_a_time_and_other_switches_meanwhile(monkeypatch):
    monkeypatch.setattr(speed, "job_name", lambda: f"turns-{os.getpid()}")
    first_rank = context(seconds=40 * PATIENCE.limit)
    monkeypatch.setattr(speed, "_PATIENCE", 10 * PATIENCE.limit)

    def measures(switch, begun, end):
        with speed.HostSlots(first_rank).turn("links", switch):
            begun.set()
            end.wait(PATIENCE.limit)

    with ThreadPoolExecutor(3) as pool:
        first, second, other, end, all_end = (threading.Event() for _ in range(5))
        try:
            pool.submit(measures, "0000:16:01.0", first, end)
            assert first.wait(PATIENCE.limit)
            pool.submit(measures, "0000:16:01.0", second, all_end)
            pool.submit(measures, "0000:38:01.0", other, all_end)
            assert other.wait(PATIENCE.limit)
            assert not second.is_set()
            end.set()
            assert second.wait(PATIENCE.limit)
        finally:
            end.set()
            all_end.set()
