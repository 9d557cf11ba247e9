"""The setup of a job, read on every rank, then joined: what a sweep was measured with."""

import os
from collections import Counter
from collections.abc import Mapping
from typing import Any, TypedDict

from oddrank import _native
from oddrank.control.stages import RunState
from oddrank.errors import OddrankError
from oddrank.machine.device import GpuFacts
from oddrank.machine.settings import Setup
from oddrank.process_group import Group


class Devices(GpuFacts, Setup):
    """A rank's result of stage devices."""


class Connected(TypedDict):
    """A rank's result of stage connect.

    transport: torch's back end. group: the number of its group with --split, else 0. links: of its
    GPU to others (csrc/nvml/gpu.hpp), or why they are unknown.
    """

    transport: str
    group: int
    gloo_interface: str | None
    nccl: str | None
    links: dict[str, Any] | None


def devices_of(run: RunState) -> Mapping[int, Devices]:
    return run.of("devices")


def connected_of(run: RunState) -> Mapping[int, Connected]:
    return run.of("connect")


def of_rank(group: Group, number: int) -> Connected:
    """Returns this rank's facts; `number` is its group's."""
    on_nccl = group.backend == "nccl"
    nccl = group.torch.cuda.nccl.version() if on_nccl else None
    return {
        "transport": group.backend,
        "group": number,
        "gloo_interface": None if on_nccl else os.environ.get("GLOO_SOCKET_IFNAME", ""),
        "nccl": ".".join(map(str, nccl)) if nccl else None,
        "links": _links(group) if on_nccl else None,
    }


def _links(group: Group) -> dict[str, Any]:
    uuid = group.torch.cuda.get_device_properties(group.device).uuid
    try:
        found: dict[str, Any] = _native.core().gpu_links(f"GPU-{uuid}")
    except OddrankError as error:
        return {"unknown": str(error)}
    return found


def links_text(rank: Mapping[str, Any] | None) -> str | None:
    if rank is None or "unknown" in rank:
        return None if rank is None else f"unknown: {rank['unknown']}"
    words = [f"{rank['nvlinks']} NVLinks"]
    if rank["nvlinks"] and rank["nvlink_MBps"]:
        words[0] += f" of {rank['nvlink_MBps'] / 1e3:.1f} GB/s"
    if rank["pcie"]:
        words.append(f"PCIe {rank['pcie']} x{rank['pcie_width']}")
    return ", ".join(words)


def setup_of_all(run: RunState) -> dict[str, Any]:
    """Returns the whole job's setup: a value if all ranks have the same, else value -> how many.

    hosts: in the order of ranks. links: of each GPU. settings: those that any rank has.
    """
    ranks = devices_of(run).values()
    connected = [rank for _, rank in sorted(connected_of(run).items())]
    names = sorted({name for rank in ranks for name in rank["settings"]})
    states = (run.states[rank] for rank in sorted(run.states))
    return {
        "hosts": list(dict.fromkeys(state.host for state in states if state.host)),
        "torch": _agreed(rank["torch"] for rank in ranks),
        "cuda": _agreed(rank["cuda"] for rank in ranks),
        "driver": _agreed(rank["driver"] for rank in ranks),
        "nccl": _agreed(rank["nccl"] for rank in connected),
        "gloo_interface": _agreed(rank["gloo_interface"] for rank in connected),
        "links": _agreed(links_text(rank["links"]) for rank in connected),
        "settings": {
            name: _agreed(rank["settings"].get(name, "not set") for rank in ranks) for name in names
        },
    }


def _agreed(values: Any) -> str | Mapping[str, int] | None:
    found = Counter(values)
    if len(found) < 2:
        return next(iter(found), None)
    return {str(value): count for value, count in found.items()}
