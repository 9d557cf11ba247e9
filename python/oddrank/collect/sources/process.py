"""Reads each rank's files in /proc: states, threads, where they wait in the kernel."""

import json
import os
import time
from typing import Any

from oddrank import _native, job
from oddrank.collect.sources import Rank, Sink, Source, Target
from oddrank.machine import small_file
from oddrank.trace.ranks import LIVES, LOOK

SCHEMA = "oddrank.process/1"
_MOST_THREADS = 2048
_LARGEST = 1 << 20  # a file of the kernel is never longer
# No memory map, no command line, no variables: they are long, or may hold secrets. The first names
# wait for no lock of the process's memory.
_WHERE = ("wchan", "syscall", "stack")
_FILES = ("status", *_WHERE)


def _work(target: Target, rank: Rank | None, sink: Sink) -> None:
    if rank is None:
        sink.lacks("/proc of the ranks", "none of their processes is left", absent=True)
        return
    core = _native.core()
    folder = f"/proc/{rank.pid}"
    threads = [rank.pid]
    try:
        tids = sorted(int(name) for name in os.listdir(f"{folder}/task") if name.isdigit())
        threads = sorted(tids, key=lambda tid: tid != rank.pid)[:_MOST_THREADS]
    except OSError as error:
        sink.lacks(f"{folder}/task", error)
    first = dict(zip(threads, core.trace_kernel_states(threads), strict=True))
    time.sleep(LOOK)
    now = time.time()
    second = dict(zip(threads, core.trace_kernel_states(threads), strict=True))
    letter, _, status, started, _ = core.trace_kernel_states([rank.pid])[0]
    if not letter or started != rank.started:
        sink.lacks(folder, "the process ended meanwhile")
        return
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "host": target.host,
        "rank": rank.rank,
        "local_rank": rank.local_rank,
        "world": rank.world,
        "pid": rank.pid,
        "started": rank.started,
        "time": now,
        "state": _word(first.get(rank.pid, ("",))[0], letter),
        "status": status,
        "threads": [
            _thread(rank.pid, tid, first[tid][0], second[tid][0])
            for tid in threads
            if second[tid][0]
        ],
        "files": {},
    }
    unread: dict[str, list[str]] = {}
    for name in _FILES:
        sink.at(f"{folder}/{name}")
        try:
            with open(f"{folder}/{name}", "rb") as file:
                text = file.read(_LARGEST).decode(errors="backslashreplace")
            found["files"][name] = text.rstrip("\n")
        except OSError as error:
            unread.setdefault(error.strerror or repr(error), []).append(name)
    for why, names in unread.items():
        sink.lacks(f"{folder}/{','.join(names)}", why)
    # Its parent may have reaped it, and another process may have the pid by now.
    if job.start_time(rank.pid) != rank.started:
        sink.lacks(folder, "the process ended while it was read")
        return
    sink.put(f"{rank.name}.process.json", json.dumps(found).encode())


def _word(before: str, letter: str) -> str:
    """Returns the state in words. Uninterruptible for a moment is running."""
    if letter == "D" and before != "D":
        return "running"
    return LIVES.get(letter, "running")


def _thread(pid: int, tid: int, before: str, letter: str) -> dict[str, Any]:
    folder = f"/proc/{pid}/task/{tid}"
    name, state = small_file(f"{folder}/comm"), _word(before, letter)
    # small_file(): some need privileges; a file that is missing for the process is noted once.
    where = {name: text for name in _WHERE if (text := small_file(f"{folder}/{name}"))}
    return {"tid": tid, "name": name, "state": state, **where}


def parent_of(pid: int) -> int:
    """Returns the parent's pid; 0 if the process is gone."""
    fields = job.stat_fields(pid)
    return int(fields[1]) if fields else 0


SOURCE = Source(
    "process", 6.0, 0.04, _work, lambda target: {r.name: r for r in target.living} or {"": None}
)
