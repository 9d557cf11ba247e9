"""What expectations need to know of the ranks' hosts: asked on every rank, put together once."""

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from oddrank import _native
from oddrank.bench.facts import Facts
from oddrank.bench.nics import infiniband_rates, line_rate
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
    """Line rates in Gb/s of the NICs that carry this rank's traffic, as far as they are known.

    links: what joins its GPU to others (see csrc/bench/nvml.hpp), or why that can't be told.
    """
    nics, fabric = infiniband_rates(), "rdma"
    names = os.environ.get("GLOO_SOCKET_IFNAME", "")  # the group has seen to it
    if group.backend == "gloo" or not nics or os.environ.get("NCCL_IB_DISABLE") == "1":
        rate = line_rate(names.split(",")[0])
        nics, fabric = (rate,) if rate else (), "tcp"
    nccl = group.torch.cuda.nccl.version() if group.backend == "nccl" else None
    return {
        "nics": list(nics),
        "fabric": fabric if nics else None,
        "gloo_interface": names if group.backend == "gloo" else None,
        "nccl": ".".join(map(str, nccl)) if nccl else None,
        "nvls": False if os.environ.get("NCCL_NVLS_ENABLE") == "0" else None,
        "links": _links(group) if group.backend == "nccl" else None,
    }


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
    hosts: dict[tuple[int, str], int] = {}
    for state in rounds.states.values():
        hosts[state.node, state.host] = hosts.get((state.node, state.host), 0) + 1
    gpus = {rank["gpu"] for rank in devices.values()}
    if not connected or len(set(hosts.values())) != 1 or len(gpus) != 1:
        return None
    # The worst host counts: the others wait for it.
    slowest = min(connected.values(), key=lambda rank: sum(rank["nics"]))
    return Facts(
        gpu=None if backend == "c10d:gloo" else gpus.pop(),
        per_node=next(iter(hosts.values())),
        nodes=len(hosts),
        backend=backend,
        nccl=slowest["nccl"],
        nics=tuple(slowest["nics"]),
        fabric=slowest["fabric"],
        nvls=False if any(rank["nvls"] is False for rank in connected.values()) else None,
        **joined([rank["links"] for rank in connected.values()]),
    )


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
