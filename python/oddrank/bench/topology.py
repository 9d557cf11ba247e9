"""The topology of a job, which selects what to expect: read on every rank, then joined."""

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

from oddrank import _native
from oddrank.control.stages import RunState
from oddrank.errors import OddrankError
from oddrank.machine import placement
from oddrank.machine.device import GpuFacts
from oddrank.machine.interfaces import INFINIBAND, NET, infiniband_rates, line_rate, line_rates
from oddrank.machine.settings import Setup
from oddrank.process_group import Group

# Lanes that PCIe limits assume; fewer lanes are another topology.
_LANES = 16


@dataclass(frozen=True)
class Facts:
    """The topology of a job; None: unknown. If ranks differ, the worst (fewest links, slowest NIC).

    gpu: the driver's name of the device. per_node: ranks of a node, each with its own GPU. nics:
    line rates in Gb/s of the NICs of a node that carry the traffic. links: active NVLinks of a
    GPU. domain: GPUs in one NVLink switch fabric, on all nodes.
    """

    gpu: str
    per_node: int
    nodes: int
    nccl: str | None = None
    link: Literal["nvlink", "pcie"] | None = None
    links: int | None = None
    pcie: int | None = None
    """PCIe generation."""
    nics: tuple[float, ...] = ()
    uneven: bool = False
    """Whether the nodes differ in their NICs."""
    fabric: Literal["rdma", "tcp"] | None = None
    nvls: bool | None = None
    """Whether the NVLink switches can add up for every GPU, and no setting forbids it."""
    ring: bool | None = None
    """False if the environment turns it off."""
    domain: int | None = None

    @property
    def n(self) -> int:
        return self.per_node * self.nodes

    @property
    def together(self) -> bool:
        """Returns whether NVLink or one host joins all ranks, with no NIC between them."""
        return self.nodes == 1 or (self.domain or 0) >= self.n


class Devices(GpuFacts, Setup):
    """A rank's result of stage devices."""


class Connected(TypedDict):
    """A rank's result of stage connect: its share of Facts.

    transport: torch's back end. limit: bytes that every rank may take. group: the number of its
    group with --split, else 0. nics: name -> line rate in Gb/s of the NICs that may carry its
    traffic, as far as known. nvls, ring: as `algorithms` says. links: the links of its GPU to
    others (csrc/nvml/gpu.hpp), or why they are unknown.
    """

    transport: str
    limit: float
    group: int
    nics: dict[str, float]
    fabric: Literal["rdma", "tcp"] | None
    gloo_interface: str | None
    nccl: str | None
    nvls: bool | None
    ring: bool | None
    links: dict[str, Any] | None


def devices_of(run: RunState) -> Mapping[int, Devices]:
    return run.of("devices")


def connected_of(run: RunState) -> Mapping[int, Connected]:
    return run.of("connect")


def of_rank(group: Group, limit: float, number: int) -> Connected:
    """Returns this rank's facts; `number` is its group's."""
    names = os.environ.get("GLOO_SOCKET_IFNAME", "")
    on_nccl = group.backend == "nccl"
    nics = rdma_rates(os.environ) if on_nccl else {}
    fabric: Literal["rdma", "tcp"] = "rdma" if nics else "tcp"
    if on_nccl and not nics:
        nics = tcp_rates(os.environ)
    nccl = group.torch.cuda.nccl.version() if on_nccl else None
    nvls, ring = algorithms(os.environ, _multicast(group) if on_nccl else None)
    return {
        "transport": group.backend,
        "limit": limit,
        "group": number,
        "nics": nics,
        "fabric": fabric if nics else None,
        "gloo_interface": None if on_nccl else names,
        "nccl": ".".join(map(str, nccl)) if nccl else None,
        "nvls": nvls,
        "ring": ring,
        "links": _links(group) if on_nccl else None,
    }


def rdma_rates(settings: Mapping[str, str], root: Path = INFINIBAND) -> dict[str, float]:
    """Returns the rates of RDMA ports that NCCL may use; none if its settings choose sockets."""
    if settings.get("NCCL_IB_DISABLE") == "1" or settings.get("NCCL_NET", "").lower() == "socket":
        return {}
    return infiniband_rates(settings.get("NCCL_IB_HCA", ""), root)


def tcp_rates(settings: Mapping[str, str], root: Path = NET) -> dict[str, float]:
    """Returns the rates of the cards set for NCCL, else of gloo's interface to other hosts."""
    listed = settings.get("NCCL_SOCKET_IFNAME", "")
    if len(listed) > 1:  # NCCL ignores a single character
        return line_rates(listed, root)
    name = settings.get("GLOO_SOCKET_IFNAME", "").split(",")[0]  # process_group.Group sets it
    rate = line_rate(name, root)
    return {name: rate} if rate else {}


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
    """Returns the whole job's facts; None if no figure fits: over gloo, or its GPUs differ."""
    devices, connected = devices_of(run), connected_of(run)
    hosts: dict[tuple[int, str], list[int]] = {}
    for number, state in run.states.items():
        hosts.setdefault((state.node, state.host), []).append(number)
    gpu, *others = {rank["gpu"] for rank in devices.values()} or {None}
    alike = not others and len({len(ranks) for ranks in hosts.values()}) == 1
    if backend == "c10d:gloo" or not (connected and alike and gpu):
        return None
    nodes = [[connected[rank] for rank in ranks if rank in connected] for ranks in hosts.values()]
    # The slowest host counts: the others wait for it.
    slowest = min(nodes, key=lambda node: sum(_nics(node)))
    fabrics = {rank["fabric"] for rank in slowest}
    return Facts(
        gpu=gpu,
        per_node=len(next(iter(hosts.values()))),
        nodes=len(hosts),
        nccl=next(iter(connected.values()))["nccl"],
        nics=_nics(slowest),
        uneven=len({tuple(sorted(_nics(node))) for node in nodes}) > 1,
        fabric=fabrics.pop() if len(fabrics) == 1 else None,
        nvls=_everywhere([rank["nvls"] for rank in connected.values()]),
        ring=_everywhere([rank["ring"] for rank in connected.values()]),
        **joined([rank["links"] for rank in connected.values()]),
    )


def _nics(node: Sequence[Connected]) -> tuple[float, ...]:
    """Returns the rates of all NICs of a node: NCCL_IB_HCA may give each rank its own NIC."""
    rates: dict[str, float] = {}
    for rank in node:
        rates |= rank["nics"]
    return tuple(rates.values())


def _everywhere(ranks: Collection[bool | None]) -> bool | None:
    """Returns False if any rank lacks it, True if all have it, None if that is unknown."""
    return False if False in ranks else None if None in ranks else True


def joined(ranks: Collection[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Joins the links of all ranks' GPUs, as Facts has them: the worst counts, since the others
    wait for it."""
    known = [rank for rank in ranks if rank is not None and "unknown" not in rank]
    if not known or len(known) < len(ranks):
        return dict.fromkeys(("link", "links", "pcie", "domain"))
    links = min(rank["nvlinks"] for rank in known)
    whole = all(rank["pcie"] and rank["pcie_width"] >= _LANES for rank in known)
    fabrics = {rank["fabric"] for rank in known}
    return {
        "link": "nvlink" if links else "pcie",
        "links": links,
        "pcie": min(rank["pcie"] for rank in known) if whole else None,
        "domain": len(known) if len(fabrics) == 1 and "" not in fabrics else None,
    }


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
