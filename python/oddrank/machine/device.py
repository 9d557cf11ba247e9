"""The device that the ranks compute on, and the memory and processors that they may use.

Ranks compute on GPUs if each rank has one to itself, else on the CPU.
"""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypedDict

from oddrank import _native
from oddrank.launch import Launch
from oddrank.machine import small_file

CPU, GPU = "CPU", "GPU"
BACKENDS = {CPU: "gloo", GPU: "nccl"}  # device -> the backend of torch.distributed that fits it

_PROC, _ROOT = "/proc/self/cgroup", "/sys/fs/cgroup"
_NO_LIMIT = 1 << 60  # version 1 writes "no limit" as the largest number of whole pages
_USABLE = {GPU: 0.8, CPU: 0.25}  # share of a rank's free bytes for its buffers


class GpuFacts(TypedDict):
    """A rank's GPUs as CUDA shows them, for `choose`."""

    gpus: int
    gpu: str | None
    local_world: int
    gpu_id: str | None
    cuda_part: str  # why the part _cuda can't use the GPU; "" if it can or there is no GPU
    obstacle: str  # why the part _cuda can't use NCCL


def facts(launch: Launch) -> GpuFacts:
    import torch

    gpus = torch.cuda.device_count()
    part = _native.cuda_part()
    return {
        "gpus": gpus,
        "gpu": torch.cuda.get_device_name(gpu_index(launch) % gpus) if gpus else None,
        "local_world": launch.local_world,
        # A launcher that gives each rank one GPU shows it to that rank alone, as number 0.
        "gpu_id": str(torch.cuda.get_device_properties(0).uuid) if gpus == 1 else None,
        "cuda_part": _cuda_problem(part, gpu_index(launch) % gpus) if gpus else "",
        "obstacle": part.module.nccl_obstacle() if part.module and gpus else "",
    }


def _cuda_problem(part: _native.Part, index: int) -> str:
    """Returns why the part _cuda can't use CUDA's GPU `index`; "" if it can."""
    import torch

    if part.module is None:
        return f"_cuda: {part.reason}. {part.advice}"
    name, capability = torch.cuda.get_device_name(index), torch.cuda.get_device_capability(index)
    why = without_code(name, capability, part.module.build_info["architectures"])
    return f"_cuda: {why}" if why else ""


def without_code(name: str, capability: Sequence[int], architectures: str) -> str:
    """Returns why a build has no code for a GPU, and the remedy; "" if it has.

    architectures: as CMake has them. "75-real" is machine code, for GPUs of the same major number
    and at least this minor one; "120-virtual" is PTX, which newer GPUs compile; "90" is both. Code
    for "90a" fits no other number, code for "100f" none of another major number.
    """
    number = 10 * capability[0] + capability[1]
    for one in architectures.split():
        found = re.fullmatch(r"(\d+)([af]?)(-real|-virtual)?", one)
        if found is None or number == int(found[1]):  # "native" and "all" fit this machine's GPUs
            return ""
        built, only, kind = int(found[1]), found[2], found[3]
        same_major = built // 10 == number // 10 and only != "a"
        if number > built and (same_major or (not only and kind != "-real")):
            return ""
    if not architectures:
        return ""
    return (
        f"it has no code for {name} (sm_{number}), only for sm {architectures}. Install oddrank"
        f" again with CMAKE_ARGS=-DODDRANK_CUDA_ARCHITECTURES={number} and an nvcc that knows it"
    )


def choose(ranks: Collection[GpuFacts]) -> str:
    """Returns GPU if every rank has one to itself, else CPU: no mixture, no sharing."""
    singles = [r for r in ranks if r["gpus"] == 1 < r["local_world"]]
    others = [r for r in ranks if not r["gpus"] == 1 < r["local_world"]]
    ids = {r["gpu_id"] for r in singles} - {None}
    alone = len(ids) == len(singles) and all(r["gpus"] >= r["local_world"] for r in others)
    return GPU if alone else CPU


def gpu_index(launch: Launch) -> int:
    """Returns the index of this rank's GPU among those that CUDA shows it."""
    import torch

    return 0 if torch.cuda.device_count() == 1 else launch.local_rank


def name_of_gpu(facts: Mapping[str, Any], local_rank: int) -> str:
    """Returns a rank's GPU: `GPU 3` (nvidia-smi's number), or `GPU-1b2c...`; "" if unknown.
    Takes the name from CUDA_VISIBLE_DEVICES, facts' `visible_gpus`: it may have any order."""
    visible = facts.get("visible_gpus")
    if not isinstance(visible, str) or not visible:
        return ""
    index = 0 if facts["gpus"] == 1 else local_rank
    given = visible.split(",")
    name = given[index].strip() if index < len(given) else ""
    return f"GPU {name}" if name.isdigit() else name


def free_bytes(device: str, launch: Launch) -> float:
    """Returns the bytes free for this rank: on its GPU, or its equal share of the host's."""
    if device == GPU:
        import torch

        return float(torch.cuda.mem_get_info(gpu_index(launch))[0])
    return free_host_memory() / launch.local_world


def usable_bytes(device: str, launch: Launch) -> float:
    """Returns the bytes that a rank's buffers may take; gloo takes as much again for itself."""
    return free_bytes(device, launch) * _USABLE[device]


def free_host_memory() -> float:
    """Returns the bytes that the kernel calls available, within the cgroup's limit."""
    with open("/proc/meminfo", encoding="ascii") as file:
        kib = next((line.split()[1] for line in file if line.startswith("MemAvailable:")), "inf")
    return min(float(kib) * 1024, free_in_cgroups())


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
            quota, _, period = small_file(f"{folder}/cpu.max").partition(" ")
        else:
            quota = small_file(f"{folder}/cpu.cfs_quota_us")
            period = small_file(f"{folder}/cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):
            shares.append(int(quota) / int(period))
    return round(min(shares), 3) if shares else None


def cgroups(controller: str, proc: str, root: str) -> list[tuple[str, bool]]:
    """Returns (folder, is version 2) of this process's cgroup and all above: each may limit it."""
    lines = [line.split(":", 2) for line in small_file(proc).splitlines()]
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
    text = small_file(f"{folder}/{name}")
    if text == "max":
        return float("inf")
    return float(text) if text else None


def _statistic(folder: str, name: str) -> float:
    for line in small_file(f"{folder}/memory.stat").splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdigit():
            return float(value)
    return 0.0
