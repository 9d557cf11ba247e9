"""Memory and processors that this process may use, by the kernel and its cgroups."""

import os
from typing import TYPE_CHECKING

from oddrank.machine.device import CPU, GPU, gpu_index

if TYPE_CHECKING:
    from oddrank.launch import Launch

_PROC, _ROOT = "/proc/self/cgroup", "/sys/fs/cgroup"
# Version 1 writes "no limit" as the largest number of whole pages.
_NO_LIMIT = 1 << 60
# Share of a rank's free bytes for its buffers.
_USABLE = {GPU: 0.8, CPU: 0.25}


def free_bytes(device: str, launch: "Launch") -> float:
    """Returns the bytes free for this rank: on its GPU, or its equal share of the host's."""
    if device == GPU:
        import torch

        return float(torch.cuda.mem_get_info(gpu_index(launch))[0])
    return free_host_memory() / launch.local_world


def usable_bytes(device: str, launch: "Launch") -> float:
    """Returns the bytes that a rank's buffers may take; gloo takes as much again for itself."""
    return free_bytes(device, launch) * _USABLE[device]


def free_host_memory() -> float:
    """Returns the bytes that the kernel calls available, within the cgroup's limit."""
    return min(_available(), free_in_cgroups())


def free_in_cgroups(proc: str = _PROC, root: str = _ROOT) -> float:
    """Returns the bytes left to the nearest limit of this process's cgroups; infinity: no limit.

    Page cache not used lately counts as free: the kernel takes it back before it kills a process.
    The kubelet has the same rule (kubernetes.io, "Node-pressure Eviction": working set = usage -
    inactive_file).
    """
    left = float("inf")
    for folder, v2 in cgroups("memory", proc, root):
        used = _read_number(folder, "memory.current" if v2 else "memory.usage_in_bytes")
        most = _read_number(folder, "memory.max" if v2 else "memory.limit_in_bytes")
        if used is not None and most is not None:
            # In version 1 only `total_` values include the cgroups below.
            cached = _statistic(folder, "inactive_file" if v2 else "total_inactive_file")
            left = min(left, max(0.0, most - max(0.0, used - cached)))
    return left


def cgroup_memory(proc: str = _PROC, root: str = _ROOT) -> int | None:
    """Returns the smallest limit of this process's cgroups in bytes; None: no limit."""
    limits = [
        _read_number(folder, "memory.max" if v2 else "memory.limit_in_bytes")
        for folder, v2 in cgroups("memory", proc, root)
    ]
    least = min((limit for limit in limits if limit is not None), default=_NO_LIMIT)
    return int(least) if least < _NO_LIMIT else None


def cgroup_cpus(proc: str = _PROC, root: str = _ROOT) -> float | None:
    """Returns the processors that this process's cgroups allow it; None: no limit."""
    shares = []
    for folder, v2 in cgroups("cpu", proc, root):
        if v2:
            quota, _, period = _read(folder, "cpu.max").partition(" ")
        else:
            quota, period = _read(folder, "cpu.cfs_quota_us"), _read(folder, "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):
            shares.append(int(quota) / int(period))
    return round(min(shares), 3) if shares else None


def _available() -> float:
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * 1024
    return float("inf")


def cgroups(controller: str, proc: str, root: str) -> list[tuple[str, bool]]:
    """Returns (folder, is version 2) of this process's cgroup and of all above it.

    Each of them may limit the process.
    """
    try:
        with open(proc, encoding="utf-8", errors="replace") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return []
    folders = []
    for _, controllers, path in (line for line in lines if len(line) == 3):
        if controllers and controller not in controllers.split(","):
            continue
        base = f"{root}/{controller}" if controllers else root
        parts = [part for part in path.split("/") if part and part != ".."]
        # In a container the path may be the host's: only folders above it may exist.
        for depth in range(len(parts) + 1):
            folders.append((os.path.join(base, *parts[:depth]), not controllers))
    return folders


def _read_number(folder: str, name: str) -> float | None:
    """Reads a number; None if there is no file, infinity for `max`."""
    text = _read(folder, name)
    if text == "max":
        return float("inf")
    return float(text) if text else None


def _statistic(folder: str, name: str) -> float:
    """Reads bytes from memory.stat; 0 if it has none."""
    for line in _read(folder, "memory.stat").splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdigit():
            return float(value)
    return 0.0


def _read(folder: str, name: str) -> str:
    try:
        with open(os.path.join(folder, name), encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
