"""What is odd in a rank's facts whatever the other ranks have: pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from oddrank.selftest.facts.fact import NOT_READABLE

# Two ranks of a node pass data through four of NCCL's segments in /dev/shm, 9,637,888 bytes each;
# where there is less it ends with "No space left on device" (NVIDIA/nccl#290, #525).
SHM_NEEDED = 4 * 9_637_888
# What a process has open besides a connection to each rank: libraries, logs, the file system.
_OTHER_FILES = 64

Facts = Mapping[int, Mapping[str, Any]]


def shared_gpus(ranks: Facts, nodes: Sequence[Sequence[int]]) -> Iterator[tuple[str, list[int]]]:
    """GPUs that several ranks of a node would take, where others have one to themselves.

    Not where all ranks of all nodes share: somebody tries a few ranks on a machine with one GPU.
    """
    of_nodes = [_gpus(ranks, node) for node in nodes]
    if all(len(gpus) <= 1 < len(node) for gpus, node in zip(of_nodes, nodes, strict=True)):
        return
    for gpus in of_nodes:
        for gpu, users in gpus.items():
            if len(users) > 1:
                yield gpu, users


def _gpus(ranks: Facts, node: Sequence[int]) -> dict[str, list[int]]:
    users: dict[str, list[int]] = {}
    for rank in node:
        gpu = ranks.get(rank, {}).get("gpu_uuid")
        if isinstance(gpu, str) and gpu != NOT_READABLE:
            users.setdefault(gpu, []).append(rank)
    return users


def far_from_gpu(ranks: Facts) -> list[int]:
    """Ranks that may not run on any processor of their GPU's NUMA node."""
    return [
        rank
        for rank, facts in ranks.items()
        if isinstance(facts.get("numa"), Mapping)
        and facts["numa"].get(str(facts.get("gpu_numa"))) == "not used"
    ]


def without_shm(ranks: Facts, nodes: Sequence[Sequence[int]]) -> list[int]:
    """Ranks of nodes with several, which talk through /dev/shm, and next to nothing left in it."""
    return [
        rank
        for node in nodes
        for rank in node
        if len(node) > 1
        and isinstance(left := ranks.get(rank, {}).get("shm_free"), int)
        and left < SHM_NEEDED
    ]


def few_files(ranks: Facts, world: int) -> int | None:
    """The soft limit of open files of rank 0, where its store can't hold a connection to each."""
    soft = str(ranks.get(0, {}).get("nofile")).partition("/")[0]
    return int(soft) if soft.isdigit() and int(soft) < world + _OTHER_FILES else None


def without_interface(ranks: Facts) -> list[int]:
    """Ranks whose NCCL_SOCKET_IFNAME leaves NCCL no interface."""
    return [
        rank
        for rank, facts in ranks.items()
        if facts.get("gpus") and facts.get("nccl_interfaces") == ""
    ]
