"""Where a GPU sits, read from a made-up /sys; and whose link is measured at the same time."""

import os
import threading
from types import SimpleNamespace

import pytest

from oddrank import _native
from oddrank.machine import placement
from oddrank.machine.placement import bound_to, of_gpu, topmost_bridge
from oddrank.selftest.probes import gpu
from oddrank.selftest.stages import speed

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
             "compute_capability": (9, 0), "multicast": True} for address in addresses
        ]  # fmt: skip
        module = SimpleNamespace(devices=lambda: gpus)
        monkeypatch.setattr(_native, "cuda", lambda: module)

    return listed


def test_a_gpu_has_the_node_processors_and_switch_that_the_kernel_shows(devices, cuda):
    cuda("0000:3A:00.0", "0000:1B:00.0")
    found = of_gpu(1, devices)
    assert (found.index, found.pci, found.architecture) == (1, "0000:1b:00.0", (9, 0))
    assert (found.numa_node, found.cpus) == (0, {0, 1, 2, 3, 8})
    assert found.switch == "0000:16:01.0"
    assert found.multicast is True


def test_gpus_below_one_switch_have_the_same_topmost_bridge(devices):
    pairs = ("0000:19:00.0", "0000:1b:00.0")
    assert {topmost_bridge(pci, devices) for pci in pairs} == {"0000:16:01.0"}
    assert topmost_bridge("0000:3a:00.0", devices) == "0000:38:01.0"


def test_a_virtual_machine_shows_neither_switch_nor_node(devices, cuda):
    cuda("0000:00:05.0")
    found = of_gpu(0, devices)
    assert (found.switch, found.numa_node) == (None, None)


def test_a_device_that_the_kernel_does_not_show_has_an_unknown_place(devices, cuda):
    cuda("0000:ff:00.0")
    found = of_gpu(0, devices)
    assert (found.switch, found.numa_node, found.cpus) == (None, None, frozenset())


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


@pytest.mark.parametrize(
    ("address", "alone"),
    [("0000:19:00.0", "0000:16:01.0"), ("0000:1b:00.0", "0000:16:01.0"),
     ("0000:3a:00.0", "0000:38:01.0"), ("0000:00:05.0", "PCIe")],
)  # fmt: skip
def test_a_link_is_measured_by_one_gpu_of_its_switch_and_memory_by_all(
    devices, cuda, monkeypatch, address, alone
):
    cuda(address)
    monkeypatch.setattr(placement, "PCI_DEVICES", devices)
    monkeypatch.setattr(placement, "gpu_index", lambda launch: 0)
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


class Rank:
    """A rank that measures in a thread of its own until it may end."""

    def __init__(self, alone):
        self.measures, self.may_end = threading.Event(), threading.Event()
        self._alone = alone
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        launch = SimpleNamespace(local_rank=0)
        context = SimpleNamespace(step=lambda *a, **b: None, seconds=400, launch=launch)
        with speed.HostSlots(context).turn("links", self._alone):
            self.measures.set()
            self.may_end.wait(60)

    def end(self):
        self.may_end.set()
        self._thread.join(60)


def test_one_rank_of_a_switch_measures_at_a_time_and_other_switches_meanwhile(monkeypatch):
    monkeypatch.setattr(speed, "job_name", lambda: f"turns-{os.getpid()}")
    first = Rank("0000:16:01.0")
    assert first.measures.wait(60)
    second, other = Rank("0000:16:01.0"), Rank("0000:38:01.0")
    assert other.measures.wait(60)
    assert not second.measures.is_set()
    first.end()
    assert second.measures.wait(60)
    for rank in (second, other):
        rank.end()
