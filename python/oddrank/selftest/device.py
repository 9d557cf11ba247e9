"""The memory of a rank's device: which one, how much of it may be taken, and its verification."""

import os
from typing import TYPE_CHECKING, Any

from oddrank import _native
from oddrank.control.stages import Rounds

if TYPE_CHECKING:
    from oddrank.launch import Launch

CPU, GPU = "CPU", "GPU"

_CPU_BYTES = 64 << 20
_GPU_BYTES = 1 << 30
# What all ranks of a host may take of what is left there.
_SHARE = 0.25
_SMALLEST = 1 << 20


def plan(rounds: Rounds) -> str:
    """GPU where every rank has one to itself: never two ranks on one, never some on each."""
    ranks = rounds.of("environment").values()
    return GPU if all(r["gpus"] >= r["local_world"] for r in ranks) else CPU


def backend(rounds: Rounds) -> str:
    """The backend of torch.distributed that fits the device."""
    return "nccl" if plan(rounds) == GPU else "gloo"


def memory_to_verify(device: str, launch: "Launch") -> int:
    """Bytes that this rank may take without endangering its host; whole MiB."""
    if device == GPU:
        import torch

        wanted, left = _GPU_BYTES, float(torch.cuda.mem_get_info(launch.local_rank)[0])
    else:
        wanted, left = _CPU_BYTES, free_host_memory() / launch.local_world
    return max(_SMALLEST, min(wanted, int(left * _SHARE)) >> 20 << 20)


def verify(device: str, launch: "Launch", size: int) -> dict[str, Any] | None:
    """Writes and reads a pattern; the words that came back wrong, or None."""
    if device == GPU:
        result = _native.cuda().verify_memory(launch.local_rank, size, launch.rank)
    else:
        result = _native.core().verify_host_memory(size, launch.rank)
    mismatches: dict[str, Any] = result["mismatches"]
    return mismatches if mismatches["count"] else None


def free_host_memory() -> float:
    """Bytes to be had on this host: what the kernel calls available, within the cgroup's limit."""
    return min(_available(), free_in_cgroups())


def free_in_cgroups(proc: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> float:
    """Bytes until the first limit of this process's cgroups; infinite where there is none."""
    left = float("inf")
    for usage, limit in _cgroup_files(proc, root):
        used, most = _read_number(usage), _read_number(limit)
        if used is not None and most is not None:
            left = min(left, max(0.0, most - used))
    return left


def _available() -> float:
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * 1024
    return float("inf")


def _cgroup_files(proc: str, root: str) -> list[tuple[str, str]]:
    """(usage, limit) of this process's cgroup and of all above it: any may be what counts."""
    try:
        with open(proc, encoding="utf-8", errors="replace") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return []
    files = []
    for _, controllers, path in (line for line in lines if len(line) == 3):
        if controllers == "":  # v2
            base, names = root, ("memory.current", "memory.max")
        elif "memory" in controllers.split(","):
            base, names = f"{root}/memory", ("memory.usage_in_bytes", "memory.limit_in_bytes")
        else:
            continue
        parts = [part for part in path.split("/") if part and part != ".."]
        # Inside a container the path may be the host's: those above it, down to the root, do exist.
        for depth in range(len(parts) + 1):
            folder = os.path.join(base, *parts[:depth])
            files.append((os.path.join(folder, names[0]), os.path.join(folder, names[1])))
    return files


def _read_number(path: str) -> float | None:
    """None where it is not there; `max` is infinity."""
    try:
        with open(path, encoding="ascii") as file:
            text = file.read().strip()
    except OSError:
        return None
    return float("inf") if text == "max" else float(text)
