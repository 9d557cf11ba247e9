"""Which GPUs a rank sees, and which one it takes; its health and limits are the device stage's."""

import os
from typing import Any

from oddrank.bench.place import gpu_index
from oddrank.selftest.facts.fact import Fact, Here


def _own(here: Here) -> Any:
    """CUDA's properties of the GPU that this rank takes; None where there are too few."""
    index = gpu_index(here.launch)
    if index >= here.place["gpus"]:
        return None
    return here.torch.cuda.get_device_properties(index)


def _uuid(here: Here) -> str | None:
    """Slices of a GPU have its UUID: they are told apart by what was given to the rank."""
    own = _own(here)
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    index = gpu_index(here.launch) if own is not None else 0
    if own is not None and index < len(given) and given[index].startswith("MIG-"):
        return given[index]
    return None if own is None else str(own.uuid)


def _bus(here: Here) -> str | None:
    """As the kernel's folders call it: 0000:1b:00.0."""
    own = _own(here)
    if own is None:
        return None
    return f"{own.pci_domain_id:04x}:{own.pci_bus_id:02x}:{own.pci_device_id:02x}.0"


def numa_node(here: Here, root: str = "/sys/bus/pci/devices") -> int | None:
    """None where the kernel does not say."""
    bus = _bus(here)
    if bus is None:
        return None
    with open(f"{root}/{bus}/numa_node", encoding="ascii") as file:
        node = int(file.read())
    return node if node >= 0 else None


FACTS = (
    Fact("gpus", lambda here: here.place["gpus"], "odd"),
    Fact("gpu", lambda here: here.place["gpu"], "odd"),
    Fact("visible_gpus", lambda here: os.environ.get("CUDA_VISIBLE_DEVICES"), "fine"),
    Fact("gpu_uuid", _uuid, "fine"),
    Fact("gpu_bus", _bus, "fine"),
    Fact("gpu_numa", numa_node, "fine"),
)
