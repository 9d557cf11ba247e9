"""The GPUs that a rank sees, and the one that it takes. Stage health reads their health."""

import os
from typing import Any

from oddrank.machine.device import gpu_index
from oddrank.selftest.facts.fact import Fact, Here


def _own(here: Here) -> Any:
    """Returns CUDA's properties of this rank's GPU; None if there are too few GPUs."""
    index = gpu_index(here.launch)
    if index >= here.gpus["gpus"]:
        return None
    return here.torch.cuda.get_device_properties(index)


def _uuid(here: Here) -> str | None:
    """Returns the GPU's UUID. Slices share it: for them returns the name of the slice."""
    own = _own(here)
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    index = gpu_index(here.launch) if own is not None else 0
    if own is not None and index < len(given) and given[index].startswith("MIG-"):
        return given[index]
    return None if own is None else str(own.uuid)


def _bus(here: Here) -> str | None:
    """Returns the GPU's PCI address as the kernel writes it: 0000:1b:00.0."""
    own = _own(here)
    if own is None:
        return None
    return f"{own.pci_domain_id:04x}:{own.pci_bus_id:02x}:{own.pci_device_id:02x}.0"


def numa_node(here: Here, root: str = "/sys/bus/pci/devices") -> int | None:
    """Returns the NUMA node of the GPU; None if the kernel does not know it."""
    bus = _bus(here)
    if bus is None:
        return None
    with open(f"{root}/{bus}/numa_node", encoding="ascii") as file:
        node = int(file.read())
    return node if node >= 0 else None


FACTS = (
    Fact("gpus", lambda here: here.gpus["gpus"], "odd"),
    Fact("gpu", lambda here: here.gpus["gpu"], "odd"),
    Fact("visible_gpus", lambda here: os.environ.get("CUDA_VISIBLE_DEVICES"), "fine"),
    Fact("gpu_uuid", _uuid, "fine"),
    Fact("gpu_bus", _bus, "fine"),
    Fact("gpu_numa", numa_node, "fine"),
)
