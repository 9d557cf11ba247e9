"""What expectations need to know of the ranks' hosts: asked on every rank, put together once."""

import os
from typing import TYPE_CHECKING, Any

from oddrank.bench.expect import Facts
from oddrank.bench.nics import infiniband_rates, line_rate
from oddrank.control.stages import Rounds

if TYPE_CHECKING:
    from oddrank.bench.group import Group


def of_rank(group: "Group") -> dict[str, Any]:
    """Line rates in Gb/s of the NICs that carry this rank's traffic, as far as they are known."""
    nics, fabric = infiniband_rates(), "rdma"
    if group.backend == "gloo" or not nics or os.environ.get("NCCL_IB_DISABLE") == "1":
        names = os.environ.get("GLOO_SOCKET_IFNAME", "")  # the group has seen to it
        rate = line_rate(names.split(",")[0])
        nics, fabric = (rate,) if rate else (), "tcp"
    nccl = group.torch.cuda.nccl.version() if group.backend == "nccl" else None
    return {
        "nics": list(nics),
        "fabric": fabric if nics else None,
        "nccl": ".".join(map(str, nccl)) if nccl else None,
        "nvls": False if os.environ.get("NCCL_NVLS_ENABLE") == "0" else None,
    }


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
    )
