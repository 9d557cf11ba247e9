"""How many cores this process's cgroups let it have, and how often they hold it back."""

import os

from oddrank.bench.memory import cgroup_cpus, cgroups

_PROC, _ROOT = "/proc/self/cgroup", "/sys/fs/cgroup"


def text(proc: str = _PROC, root: str = _ROOT) -> str:
    """`none`, or how many cores' worth of time, as the strictest of its cgroups says."""
    cores = cgroup_cpus(proc, root)
    return "none" if cores is None else f"{cores:g} cores"


def periods(proc: str = _PROC, root: str = _ROOT) -> dict[str, tuple[int, int]]:
    """Cgroup -> the kernel's periods so far in which it ran under a quota, and was held back."""
    found = {}
    for folder, _ in cgroups("cpu", proc, root):
        try:
            with open(os.path.join(folder, "cpu.stat"), encoding="ascii") as file:
                words = dict(line.split() for line in file)
            found[folder] = (int(words["nr_periods"]), int(words["nr_throttled"]))
        except (OSError, KeyError, ValueError):
            continue  # none that has quotas
    return found


def held_back(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> float:
    """The share of the periods between the two in which it was, by the strictest cgroup."""
    shares = [0.0]
    for folder, (ran, stopped) in after.items():
        first = before.get(folder, (ran, stopped))
        if ran > first[0]:
            shares.append((stopped - first[1]) / (ran - first[0]))
    return max(shares)
