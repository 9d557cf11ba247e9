"""Evidence of the node itself: `nvidia-smi -q`, its cgroups, its kernel."""

import json
import os
import re
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

from oddrank.collect.sources import Sink, Source, Target, iso
from oddrank.machine import small_file, xid

_CGROUPS = "oddrank.cgroups/1"
_ROOT = Path("/sys/fs/cgroup")
# Version 2 has one folder for all; version 1 one for each controller.
_CGROUP_FILES = {
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
_MOST_CGROUPS = 512
_MOST_OF_LOG = 1 << 20
_ENTRY = re.compile(r"\d+,\d+,(\d+),[^;]*;(.*)")


def _nvidia_smi(target: Target, _: object, sink: Sink) -> None:
    program = shutil.which("nvidia-smi")
    if program is None:
        sink.lacks("nvidia-smi -q", "there is no nvidia-smi here", absent=True)
        return
    sink.at("nvidia-smi -q")
    with subprocess.Popen(
        [program, "-q"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        text = process.stdout.read(sink.room)
        process.stdout.close()
    if process.returncode:
        lines = text.decode(errors="backslashreplace").strip().splitlines()
        last = lines[-1][:200] if lines else "no output"
        sink.lacks("nvidia-smi -q", f"it exited with {process.returncode}: {last}")
    if text:
        sink.put("nvidia-smi.txt", text, of="nvidia-smi -q")


def _cgroups(target: Target, _: object, sink: Sink) -> None:
    users: dict[tuple[str, Path], list[int]] = {}
    for rank in [*target.living, None]:
        pid, number = (rank.pid, rank.rank) if rank else (os.getpid(), -1)
        sink.at(f"/proc/{pid}/cgroup")
        for kind, folder in _folders(pid):
            users.setdefault((kind, folder), []).append(number)
    found = []
    for (kind, folder), numbers in list(users.items())[:_MOST_CGROUPS]:
        sink.at(folder)
        texts = {name: text for name in _CGROUP_FILES[kind] if (text := small_file(folder / name))}
        if texts:
            ranks = sorted(number for number in numbers if number >= 0)
            found.append({"path": str(folder), "ranks": ranks, "files": texts})
    if not found:
        sink.lacks("cgroups", f"nothing of theirs is readable below {_ROOT}", absent=True)
        return
    data = {"schema": _CGROUPS, "host": target.host, "time": time.time(), "cgroups": found}
    sink.put("cgroups.json", json.dumps(data).encode())


def _folders(pid: int) -> list[tuple[str, Path]]:
    """Returns the folders of a process's cgroups and all above: counters of limits are there.

    In a container the path may be the host's and not exist: the container's root does.
    """
    found = []
    for line in small_file(f"/proc/{pid}/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        for kind in _CGROUP_FILES:
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


NVIDIA_SMI = Source("nvidia-smi", 15.0, 0.01, _nvidia_smi)
CGROUPS = Source("cgroups", 5.0, 0.01, _cgroups)


def _kernel_log(target: Target, _: object, sink: Sink) -> None:
    sink.at(xid.KERNEL_LOG)
    try:
        text = _tail(_entries(), target.host, min(sink.room, _MOST_OF_LOG))
    except OSError as error:
        sink.lacks("the kernel's log", f"{xid.KERNEL_LOG}: {error.strerror}")
        return
    if text:
        sink.put("kernel.log", text, of=xid.KERNEL_LOG)
    else:
        sink.lacks("the kernel's log", "it is empty")


def _tail(entries: Iterable[tuple[float, str]], host: str, most: int) -> bytes:
    """Returns the last lines, with dates: the kernel counts seconds since boot."""
    boot = time.time() - time.monotonic()
    lines: deque[bytes] = deque()
    size = 0
    for seconds, text in entries:
        lines.append(f"{iso(boot + seconds)} {host} kernel: {text}\n".encode())
        size += len(lines[-1])
        while size > most:
            size -= len(lines.popleft())
    return b"".join(lines)


def _entries() -> Iterator[tuple[float, str]]:
    for entry in xid.records():
        line = entry.decode(errors="backslashreplace").partition("\n")[0]
        if found := _ENTRY.match(line):
            yield int(found[1]) / 1e6, found[2]


KERNEL_LOG = Source("kernel log", 5.0, 0.01, _kernel_log)
