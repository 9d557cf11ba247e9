"""The topology of a job, which selects what to expect: read on every rank, then joined."""

import os
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from oddrank import _native
from oddrank.control.stages import RunState
from oddrank.errors import OddrankError
from oddrank.machine import placement
from oddrank.machine.device import GpuFacts
from oddrank.machine.settings import Setup
from oddrank.process_group import Group


@dataclass(frozen=True)
class Facts:
    """The GPUs of a job that NVLink or one host joins, with no NIC between them; None: unknown.

    gpu: the driver's name of the device. n: ranks, each with its own. links: active NVLinks of a
    GPU, the fewest: the others wait for it.
    """

    gpu: str
    n: int
    nccl: str | None = None
    links: int | None = None
    nvls: bool | None = None
    """Whether the NVLink switches can add up for every GPU, and no setting forbids it."""
    ring: bool | None = None
    """False if the environment turns it off."""


class Devices(GpuFacts, Setup):
    """A rank's result of stage devices."""


class Connected(TypedDict):
    """A rank's result of stage connect: its share of Facts.

    transport: torch's back end. group: the number of its group with --split, else 0. nvls, ring: as
    `algorithms` says. links: the links of its GPU to others (csrc/nvml/gpu.hpp), or why they are
    unknown.
    """

    transport: str
    group: int
    gloo_interface: str | None
    nccl: str | None
    nvls: bool | None
    ring: bool | None
    links: dict[str, Any] | None


def devices_of(run: RunState) -> Mapping[int, Devices]:
    return run.of("devices")


def connected_of(run: RunState) -> Mapping[int, Connected]:
    return run.of("connect")


def of_rank(group: Group, number: int) -> Connected:
    """Returns this rank's facts; `number` is its group's."""
    on_nccl = group.backend == "nccl"
    nccl = group.torch.cuda.nccl.version() if on_nccl else None
    nvls, ring = algorithms(os.environ, _multicast(group) if on_nccl else None)
    return {
        "transport": group.backend,
        "group": number,
        "gloo_interface": None if on_nccl else os.environ.get("GLOO_SOCKET_IFNAME", ""),
        "nccl": ".".join(map(str, nccl)) if nccl else None,
        "nvls": nvls,
        "ring": ring,
        "links": _links(group) if on_nccl else None,
    }


def algorithms(
    settings: Mapping[str, str], multicast: bool | None
) -> tuple[bool | None, bool | None]:
    """Returns False for NVLS and for rings if NCCL's settings forbid them in an all_reduce.

    multicast: whether this rank's GPU supports it, which NVLS needs; None: unknown.
    NCCL_ALGO has lists separated by `;`, each for the function before its colon; a list without a
    colon is for all other functions; ^ inverts a list (NCCL's user guide, "Environment Variables").
    """
    lists = {"": ""}
    for part in settings.get("NCCL_ALGO", "").lower().replace(" ", "").split(";"):
        function, _, names = part.rpartition(":")
        lists[function] = names
    names = lists.get("allreduce", lists[""])
    listed, inverted = names.removeprefix("^").split(","), names.startswith("^")
    left = {name: not names or (name in listed) != inverted for name in ("nvls", "ring")}
    left["nvls"] &= settings.get("NCCL_NVLS_ENABLE") != "0"
    return multicast if left["nvls"] else False, None if left["ring"] else False


def _multicast(group: Group) -> bool | None:
    """Returns whether this rank's GPU supports multicast; None if nothing here can ask."""
    if not _native.cuda_part().module:
        return None
    return placement.of_gpu(group.device.index).multicast


def _links(group: Group) -> dict[str, Any]:
    uuid = group.torch.cuda.get_device_properties(group.device).uuid
    try:
        found: dict[str, Any] = _native.core().gpu_links(f"GPU-{uuid}")
    except OddrankError as error:
        return {"unknown": str(error)}
    return found


def facts(run: RunState, backend: str) -> Facts | None:
    """Returns the whole job's facts; None if no figure fits: over gloo, its GPUs differ, or NICs
    lie between them."""
    connected = connected_of(run)
    gpu, *others = {rank["gpu"] for rank in devices_of(run).values()} or {None}
    if backend == "c10d:gloo" or others or not (gpu and connected):
        return None
    links = [rank["links"] for rank in connected.values()]
    known = [rank for rank in links if rank is not None and "unknown" not in rank]
    known = known if len(known) == len(links) else []
    fabrics = {rank["fabric"] for rank in known}
    one_fabric = len(fabrics) == 1 and "" not in fabrics
    if len({(state.node, state.host) for state in run.states.values()}) > 1 and not one_fabric:
        return None
    return Facts(
        gpu,
        run.world,
        nccl=next(iter(connected.values()))["nccl"],
        links=min((rank["nvlinks"] for rank in known), default=None),
        nvls=_everywhere([rank["nvls"] for rank in connected.values()]),
        ring=_everywhere([rank["ring"] for rank in connected.values()]),
    )


def _everywhere(ranks: Collection[bool | None]) -> bool | None:
    """Returns False if any rank lacks it, True if all have it, None if that is unknown."""
    return False if False in ranks else None if None in ranks else True


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
