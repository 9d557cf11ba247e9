"""What expectations need to know of the ranks' hosts: asked on every rank, put together once."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from oddrank import _native
from oddrank.bench.facts import Facts
from oddrank.bench.nics import INFINIBAND, NET, infiniband_rates, line_rate, line_rates
from oddrank.control.stages import Rounds
from oddrank.errors import OddrankError

if TYPE_CHECKING:
    from oddrank.bench.group import Group


# What PCIe limits are of; fewer lanes are another topology.
_LANES = 16


class Joined(TypedDict):
    """The fields of Facts that tell how the GPUs are joined; None: not known."""

    link: Literal["nvlink", "pcie"] | None
    links: int | None
    pcie: int | None
    domain: int | None


def of_rank(group: "Group") -> dict[str, Any]:
    """nics: line rates in Gb/s of those that may carry this rank's traffic, as far as known.

    links: what joins its GPU to others (see csrc/bench/nvml.hpp), or why that can't be told.
    """
    names = os.environ.get("GLOO_SOCKET_IFNAME", "")
    nics = {} if group.backend == "gloo" else rdma_rates(os.environ)
    fabric = "rdma" if nics else "tcp"
    if not nics:
        nics = tcp_rates(group.backend, os.environ)
    nccl = group.torch.cuda.nccl.version() if group.backend == "nccl" else None
    return {
        "nics": nics,
        "fabric": fabric if nics else None,
        "gloo_interface": names if group.backend == "gloo" else None,
        "nccl": ".".join(map(str, nccl)) if nccl else None,
        **algorithms(os.environ),
        "links": _links(group) if group.backend == "nccl" else None,
    }


def rdma_rates(settings: Mapping[str, str], root: Path = INFINIBAND) -> dict[str, float]:
    """The RDMA ports that NCCL may use by its settings; none where these make it take sockets."""
    if settings.get("NCCL_IB_DISABLE") == "1" or settings.get("NCCL_NET", "").lower() == "socket":
        return {}
    return infiniband_rates(settings.get("NCCL_IB_HCA", ""), root)


def tcp_rates(backend: str, settings: Mapping[str, str], root: Path = NET) -> dict[str, float]:
    """The cards that NCCL is told to use, else gloo's: that one leads to the other hosts."""
    told = settings.get("NCCL_SOCKET_IFNAME", "") if backend == "nccl" else ""
    if told:
        return line_rates(told, root)
    name = settings.get("GLOO_SOCKET_IFNAME", "").split(",")[0]  # the group has seen to it
    rate = line_rate(name, root)
    return {name: rate} if rate else {}


def algorithms(settings: Mapping[str, str]) -> dict[str, Literal[False] | None]:
    """Those of Facts; False where the settings keep NCCL from using them in an all_reduce.

    NCCL_ALGO: lists with ; between them, each for the function before its colon, one without for
    all others; ^ inverts a list (NCCL's user guide, "Environment Variables").
    """
    lists = {"": ""}
    for part in settings.get("NCCL_ALGO", "").lower().replace(" ", "").split(";"):
        function, _, names = part.rpartition(":")
        lists[function] = names
    names = lists.get("allreduce", lists[""])
    listed, inverted = names.removeprefix("^").split(","), names.startswith("^")
    left = {name: not names or (name in listed) != inverted for name in ("nvls", "ring")}
    left["nvls"] &= settings.get("NCCL_NVLS_ENABLE") != "0"
    return {name: None if left[name] else False for name in left}


def _links(group: "Group") -> dict[str, Any]:
    uuid = group.torch.cuda.get_device_properties(group.device).uuid
    try:
        found: dict[str, Any] = _native.core().gpu_links(f"GPU-{uuid}")
    except OddrankError as error:
        return {"unknown": str(error)}
    return found


def facts(rounds: Rounds, backend: str) -> Facts | None:
    """Of the whole job; None where its nodes or GPUs differ, of which no table knows."""
    devices, connected = rounds.of("devices"), rounds.of("connect")
    hosts: dict[tuple[int, str], list[int]] = {}
    for number, state in rounds.states.items():
        hosts.setdefault((state.node, state.host), []).append(number)
    gpus = {None if backend == "c10d:gloo" else rank["gpu"] for rank in devices.values()}
    if not connected or len({len(ranks) for ranks in hosts.values()}) != 1 or len(gpus) != 1:
        return None
    nodes = [[connected[rank] for rank in ranks if rank in connected] for ranks in hosts.values()]
    # The worst host counts: the others wait for it.
    slowest = min(nodes, key=lambda node: sum(_nics(node)))
    fabrics = {rank["fabric"] for rank in slowest}
    return Facts(
        gpu=gpus.pop(),
        per_node=len(next(iter(hosts.values()))),
        nodes=len(hosts),
        backend=backend,
        nccl=next(iter(connected.values()))["nccl"],
        nics=_nics(slowest),
        uneven=len({tuple(sorted(_nics(node))) for node in nodes}) > 1,
        fabric=fabrics.pop() if len(fabrics) == 1 else None,
        nvls=_off("nvls", connected.values()),
        ring=_off("ring", connected.values()),
        **joined([rank["links"] for rank in connected.values()]),
    )


def _nics(node: Sequence[Mapping[str, Any]]) -> tuple[float, ...]:
    """Rates of all NICs that its ranks use: NCCL_IB_HCA may give each rank one of its own."""
    rates: dict[str, float] = {}
    for rank in node:
        rates |= rank["nics"]
    return tuple(rates.values())


def _off(algorithm: str, ranks: Iterable[Mapping[str, Any]]) -> Literal[False] | None:
    return False if any(rank[algorithm] is False for rank in ranks) else None


def joined(ranks: Collection[Mapping[str, Any] | None]) -> Joined:
    """Of all ranks' GPUs, the worst of them: the others wait for it."""
    known = [rank for rank in ranks if rank is not None and "unknown" not in rank]
    if not known or len(known) < len(ranks):
        return Joined(link=None, links=None, pcie=None, domain=None)
    links = min(rank["nvlinks"] for rank in known)
    whole = all(rank["pcie"] and rank["pcie_width"] >= _LANES for rank in known)
    fabrics = {rank["fabric"] for rank in known}
    return Joined(
        link="nvlink" if links else "pcie",
        links=links,
        pcie=min(rank["pcie"] for rank in known) if whole else None,
        domain=len(known) if len(fabrics) == 1 and "" not in fabrics else None,
    )


def links_text(rank: Mapping[str, Any] | None) -> str | None:
    """What joins a rank's GPU to others, for people."""
    if rank is None or "unknown" in rank:
        return None if rank is None else f"unknown: {rank['unknown']}"
    words = [f"{rank['nvlinks']} NVLinks"]
    if rank["nvlinks"] and rank["nvlink_MBps"]:
        words[0] += f" of {rank['nvlink_MBps'] / 1e3:.1f} GB/s"
    if rank["pcie"]:
        words.append(f"PCIe {rank['pcie']} x{rank['pcie_width']}")
    return ", ".join(words)
