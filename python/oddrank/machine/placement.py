"""Where a rank's GPU sits in its host: PCI address, NUMA node, near processors, PCIe switch."""

import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from oddrank import _native
from oddrank.launch import Launch
from oddrank.machine import small_file
from oddrank.machine.device import gpu_index

PCI_DEVICES = Path("/sys/bus/pci/devices")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclass(frozen=True)
class Placement:
    """A rank's GPU and its place. index: CUDA's number of it in this process.

    uuid: as nvidia-smi -L prints it. pci: as the kernel writes it, 0000:1b:00.0. architecture: the
    compute capability. numa_node: None if the kernel does not know it. cpus: processors near the
    GPU; empty: unknown. switch: the topmost PCIe bridge above the GPU, whose link all GPUs below it
    share; None if the kernel shows none, as in most virtual machines.
    """

    index: int
    name: str
    uuid: str
    pci: str
    architecture: tuple[int, int]
    numa_node: int | None
    cpus: frozenset[int]
    switch: str | None


def of_rank(launch: Launch) -> Placement:
    """Returns the placement of this rank's GPU. OddrankError without _cuda or a usable driver."""
    return of_gpu(gpu_index(launch))


def of_gpu(index: int, devices: Path | None = None) -> Placement:
    """Returns the placement of CUDA's GPU `index`. devices: the kernel's folder of PCI devices."""
    devices = devices or PCI_DEVICES
    gpu = _native.cuda().devices()[index]
    pci = gpu["pci_bus_id"].lower()
    major, minor = gpu["compute_capability"]
    cpus = frozenset(numbers(small_file(devices / pci / "local_cpulist")))
    return Placement(
        index, gpu["name"], gpu["uuid"], pci, (major, minor), numa_node(pci, devices), cpus,
        topmost_bridge(pci, devices),
    )  # fmt: skip


def numa_node(pci: str, devices: Path | None = None) -> int | None:
    """Returns the NUMA node of a PCI device; None if the kernel does not know it."""
    text = small_file((devices or PCI_DEVICES) / pci / "numa_node")
    return int(text) if text.isdigit() else None  # the kernel writes -1 if unknown


def topmost_bridge(pci: str, devices: Path | None = None) -> str | None:
    """Returns the PCI address of the topmost bridge above a device; None if there is none.

    The kernel's path of a device has all bridges above it, the root port first:
    /sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:00.0.
    """
    path = os.path.realpath((devices or PCI_DEVICES) / pci)
    above = (part for part in path.split("/")[:-1] if _ADDRESS.fullmatch(part))
    return next(above, None)


def numbers(text: str) -> set[int]:
    """Parses the kernel's lists of numbers: `0-3,8`."""
    ranges = re.findall(r"(\d+)(?:-(\d+))?", text)
    return {number for low, high in ranges for number in range(int(low), int(high or low) + 1)}


@contextmanager
def bound_to(cpus: Collection[int]) -> Iterator[bool]:
    """Binds this thread to processors, and memory that it pins to their NUMA node.
    Yields False, and binds to nothing, if the kernel allows none."""
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cpus)
    except OSError:  # none of them in the cpuset, or taken away meanwhile
        yield False
        return
    try:
        yield True
    finally:
        os.sched_setaffinity(0, before)
