"""Facts about a record that all commands use: its process, run, losses and frames."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from oddrank.errors import OddrankError

# `short` cuts a path up to the end of these.
_INSTALLED = ("/site-packages/", "/dist-packages/")


@dataclass(frozen=True)
class Process:
    """The process that a record belongs to."""

    rank: int
    host: str
    pid: int
    started: int
    """Clock ticks since its host's boot."""
    world: int
    is_child: bool
    alive: bool | None
    """None if unknown: a process of another host cannot be looked up."""
    job: str = field(default="", kw_only=True)
    """The job's name in the record; empty in records of older versions."""
    parent: int = field(default=0, kw_only=True)
    """The pid of its parent when it was armed."""


AnyProcess = TypeVar("AnyProcess", bound=Process)


@dataclass(frozen=True)
class Frame:
    """A place in the code."""

    function: str
    file: str
    line: int | None
    """None: recorded by calls only."""
    level: str | None = field(default=None, compare=False)
    """If the line is unknown since the function ran too often: its level now."""
    since: float | None = field(default=None, compare=False)
    """Unix time since which it is recorded at this level."""

    def as_data(self) -> dict[str, Any]:
        data = {"function": self.function, "file": self.file, "line": self.line}
        return data if self.level is None else {**data, "level": self.level, "since": self.since}


@dataclass(frozen=True)
class Lowered:
    """A function that is recorded less closely than asked for, since it ran too often."""

    function: str
    file: str
    line: int | None
    """Its first line."""
    level: str
    """off, where or calls."""
    wanted: str
    since: float | None


def identity(found: dict[str, Any]) -> dict[str, Any]:
    """Returns the members of Process from a dict of the compiled reader."""
    return {
        "rank": found["rank"],
        "host": found["host"],
        "pid": found["pid"],
        "started": found["start_time"],
        "world": found["world"],
        "is_child": found["is_child"],
        "job": found["job"],
        "parent": found["parent_pid"],
        # A process that has called exit() is gone, even if its pid cannot be looked up.
        "alive": {"alive": True, "dead": False}.get(
            found["life"], False if found["end"] == "exited" else None
        ),
    }


def read(
    files: Sequence[Path], one: Callable[[str], dict[str, Any]]
) -> tuple[list[tuple[Path, dict[str, Any]]], dict[Path, str]]:
    """Reads each file by `one`; returns the results, and a line for each file it cannot read."""

    def attempt(file: Path) -> dict[str, Any] | str:
        try:
            return one(str(file))
        except OddrankError as error:
            return str(error)

    read: list[tuple[Path, dict[str, Any]]] = []
    refused: dict[Path, str] = {}
    with ThreadPoolExecutor(max_workers=2) as pool:  # the reader works without the GIL
        for file, found in zip(files, pool.map(attempt, files), strict=True):
            if isinstance(found, str):
                refused[file] = found
            else:
                read.append((file, found))
    return read, refused


def by_job(processes: Iterable[AnyProcess], folder: str) -> dict[str, list[AnyProcess]]:
    """Groups processes by job. folder: the job of records that name none."""
    jobs: dict[str, list[AnyProcess]] = {}
    for process in processes:
        jobs.setdefault(process.job or folder, []).append(process)
    return dict(sorted(jobs.items()))


def only_job(processes: Iterable[Process], folder: str) -> str:
    """Returns the job of all processes. Raises OddrankError if there are several jobs."""
    names = list(by_job(processes, folder))
    if len(names) > 1:
        raise OddrankError(
            f"these are records of {len(names)} jobs ({', '.join(names)}): name the folder, or the"
            " files, of one"
        )
    return names[0]


def runs_back(processes: Sequence[AnyProcess]) -> list[int]:
    """Counts for each process the runs of its job that began later; 0 is the last run.

    A rank's n-th last process belongs to the n-th last run, a child to its rank's run.
    """
    last = {id(p) for p in last_run(processes)}
    begins: dict[tuple[str, str, int], list[int]] = {}
    for p in processes:
        if not p.is_child and id(p) not in last:
            begins.setdefault(_who(p), []).append(p.started)

    def back(p: AnyProcess) -> int:
        if id(p) in last:
            return 0
        return 1 + sum(begin > p.started for begin in begins.get(_who(p), ()))

    return [back(p) for p in processes]


def last_run(processes: Sequence[AnyProcess]) -> list[AnyProcess]:
    """Leaves out dead processes of earlier runs, if a job was started again under its name.

    For each rank of a host, keeps the live processes, or else the one that began last, and the
    children that began after it.
    """
    living = {_who(p) for p in processes if p.alive and not p.is_child}
    newest: dict[tuple[str, str, int], int] = {}
    for p in processes:
        if not p.is_child and (p.alive or _who(p) not in living):
            newest[_who(p)] = max(newest.get(_who(p), 0), p.started)
    return [p for p in processes if p.alive or p.started >= newest.get(_who(p), 0)]


def _who(process: Process) -> tuple[str, str, int]:
    """Identifies a rank across the runs of its job."""
    return (process.job, process.host, process.rank)


def lacks(found: dict[str, Any]) -> Iterable[str]:
    """Yields a line for each gap in a record, from a dict of the compiled reader."""
    if found["displaced_by"]:
        yield f"{found['displaced_by']} has taken the trace hook: lines since then are missing"
    if found["disarmed"]:
        yield "recording was switched off: this is the state at that moment"
    for what, count in found["lost"].items():
        if count:
            yield f"no room for {count} {what}: raise ODDRANK_TRACE_MB"
    if found.get("trouble"):
        yield found["trouble"]


def seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9


def short(file: str) -> str:
    """Returns the path without the folder where Python is installed, or the working directory."""
    for folder in _INSTALLED:
        if folder in file:
            return file.rpartition(folder)[2]
    standard = os.path.dirname(os.__file__) + "/"
    here = os.getcwd() + "/"
    for folder in (standard, here):
        if file.startswith(folder):
            return file[len(folder) :]
    return file
