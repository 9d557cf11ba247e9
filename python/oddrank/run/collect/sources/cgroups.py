"""Reads the cgroups of the ranks, of this process and of all above them: memory, events, limits."""

import json
import os
import time
from pathlib import Path

from oddrank.machine import small_file
from oddrank.run.collect.sources import Sink, Source, Target

SCHEMA = "oddrank.cgroups/1"
_ROOT = Path("/sys/fs/cgroup")
# Version 2 has one folder for all; version 1 one for each controller.
_FILES = {
    "": (
        "memory.events", "memory.events.local", "memory.current", "memory.peak", "memory.max",
        "memory.high", "memory.stat", "memory.pressure", "memory.swap.current", "memory.swap.max",
        "pids.current", "pids.max", "pids.events", "cpu.max", "cpu.stat", "cgroup.events",
        "cgroup.freeze", "cpuset.cpus.effective",
    ),
    "memory": (
        "memory.oom_control", "memory.failcnt", "memory.usage_in_bytes",
        "memory.max_usage_in_bytes", "memory.limit_in_bytes", "memory.stat",
    ),
    "freezer": ("freezer.state",),
    "pids": ("pids.current", "pids.max", "pids.events"),
    "cpu": ("cpu.stat", "cpu.cfs_quota_us", "cpu.cfs_period_us"),
}  # fmt: skip
_MOST = 512  # folders


def _work(target: Target, _: object, sink: Sink) -> None:
    users: dict[tuple[str, Path], list[int]] = {}
    for rank in [*target.living, None]:
        pid, number = (rank.pid, rank.rank) if rank else (os.getpid(), -1)
        sink.at(f"/proc/{pid}/cgroup")
        for kind, folder in _folders(pid):
            users.setdefault((kind, folder), []).append(number)
    found = []
    for (kind, folder), numbers in list(users.items())[:_MOST]:
        sink.at(folder)
        texts = {name: text for name in _FILES[kind] if (text := small_file(folder / name))}
        if texts:
            ranks = sorted(number for number in numbers if number >= 0)
            found.append({"path": str(folder), "ranks": ranks, "files": texts})
    if not found:
        sink.lacks("cgroups", f"nothing of theirs is readable below {_ROOT}", absent=True)
        return
    data = {"schema": SCHEMA, "host": target.host, "time": time.time(), "cgroups": found}
    sink.put("cgroups.json", json.dumps(data).encode())


def _folders(pid: int) -> list[tuple[str, Path]]:
    """Returns the folders of a process's cgroups and of those above: counters of limits are there.

    In a container the path may be one of the host's, which is not here: its root is.
    """
    found = []
    for line in small_file(f"/proc/{pid}/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        for kind in _FILES:
            if kind and kind not in controllers.split(","):
                continue
            if not kind and controllers:
                continue
            roots = [_ROOT / controllers, _ROOT / kind] if kind else [_ROOT / "unified", _ROOT]
            root = next((root for root in roots if root.is_dir()), None)
            if root is None:
                continue
            folder = Path(os.path.normpath(f"{root}/{path}"))
            while folder.is_relative_to(root):
                found.append((kind, folder))
                folder = folder.parent
    return found


SOURCE = Source("cgroups", 5.0, 0.01, _work)
