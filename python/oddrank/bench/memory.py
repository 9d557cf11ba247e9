"""How much memory may be had on this host: by the kernel and by the limits of its cgroups."""

import os


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
