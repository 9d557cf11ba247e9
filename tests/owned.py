"""All processes below this one, orphans too: a test's leftovers end with it.

Linux gives the children of a process that ends to the nearest process above that asks for them:
adopt_orphans(). So no process of a test can hide, in any session or environment.
"""

import ctypes
import faulthandler
import gc
import multiprocessing.popen_fork
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path

from patience import PATIENCE

_PR_SET_CHILD_SUBREAPER = 36
_OWNERS = (subprocess.Popen, multiprocessing.popen_fork.Popen)
_MOST_STACKS = 40
# Processes that serve many tests: module, and where it keeps the pid.
_SERVANTS = {
    "oddrank.marker.warm": "_parent.pid",
    "multiprocessing.resource_tracker": "_resource_tracker._pid",
    "multiprocessing.forkserver": "_forkserver._forkserver_pid",
}
KEPT: set[int] = set()
"""Pids of further such processes. Processes below them end with their test all the same."""


@dataclass(frozen=True)
class Owned:
    """started: in ticks, as a pid may be used again. state: as in /proc/PID/stat."""

    pid: int
    started: int
    parent: int = field(compare=False)
    state: str = field(compare=False)

    def __str__(self) -> str:
        line = _read(self.pid, "cmdline").replace("\0", " ").strip()
        wait = _read(self.pid, "wchan")
        return f"pid {self.pid} (parent {self.parent}) {self.state} {wait}: {line[:300]}"


def adopt_orphans() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def below(known: Collection[Owned] = ()) -> list[Owned]:
    """Returns the processes below this one, parents first, without `known` and those below them."""
    found: list[Owned] = []
    above = [os.getpid()]
    servants = _servants()
    while above:
        parent = above.pop()
        for pid in _children(parent):
            if (one := _look(pid)) is not None and (pid in servants or one not in known):
                above.append(pid)
                if pid not in servants:
                    found.append(one)
    return found


def end(known: Collection[Owned] = ()) -> list[str]:
    """Kills all processes below this one but for `known`; returns their descriptions."""
    ended: dict[Owned, str] = {}
    limit = time.monotonic() + PATIENCE.seconds(10)  # the kernel may hold one, in state D
    found = below(known)
    while living := [one for one in found if one.state not in "ZX"]:
        for one in living:
            ended.setdefault(one, str(one))
            with suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)
        if time.monotonic() > limit:
            break
        time.sleep(0.002)
        found = below(known)
    _reap([one.pid for one in found if one.state == "Z" and one.parent == os.getpid()])
    return list(ended.values())


def stacks() -> str:
    """Returns state, command line and stack of this process and all below it."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        lines = [f"pid {os.getpid()}, pytest", file.read()]
    found = below()
    for one in found[:_MOST_STACKS]:
        lines += [str(one), _stack(one)]
    lines += [f"and {len(found) - _MOST_STACKS} more"] * (len(found) > _MOST_STACKS)
    return "\n".join(lines)


def _servants() -> set[int]:
    found = set(KEPT)
    for module, place in _SERVANTS.items():
        with suppress(KeyError, AttributeError):  # not imported, none begun
            found.add(attrgetter(place)(sys.modules[module]))
    keeper = getattr(sys.modules.get("oddrank.marker.rank_start"), "_keeper", None)
    if keeper is not None and keeper.cache_info().currsize:
        found.add(keeper().pid)
    return found


def _children(pid: int) -> list[int]:
    folder = f"/proc/{pid}/task"
    with suppress(OSError):  # it has ended
        return [
            int(child)
            for thread in os.listdir(folder)
            for child in Path(folder, thread, "children").read_text().split()
        ]
    return []


def _look(pid: int) -> Owned | None:
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return Owned(pid, int(fields[19]), int(fields[1]), fields[0]) if fields else None


def _read(pid: int, name: str) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    return ""


def _reap(zombies: list[int]) -> None:
    """Reaps children of this process; those that an object waits for through the object."""
    if not zombies:
        return
    owners = [one for one in gc.get_objects() if issubclass(type(one), _OWNERS)]
    for one in owners:
        one.poll()
    for pid in {*zombies} - {one.pid for one in owners}:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _stack(one: Owned) -> str:
    if one.state == "Z":
        return ""
    if shutil.which("py-spy"):
        with suppress(OSError, subprocess.TimeoutExpired):
            line = ["py-spy", "dump", "--nonblocking", "--pid", str(one.pid)]
            said = subprocess.run(line, capture_output=True, timeout=20, check=False)
            if said.returncode == 0:
                return said.stdout.decode(errors="replace")
    return "".join(_read(one.pid, name) for name in ("stack", "syscall"))
