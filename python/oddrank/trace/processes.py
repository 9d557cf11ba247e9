"""The processes of a job: whose each record is, which of them are the last run's, what it lacks."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from oddrank.errors import OddrankError


@dataclass(frozen=True)
class Process:
    """Whose record it is."""

    rank: int
    host: str
    pid: int
    started: int
    """Clock ticks since its host's boot."""
    world: int
    is_child: bool
    alive: bool | None
    """None: the record is from elsewhere, its process can't be looked up here."""
    job: str = field(default="", kw_only=True)
    """As the record names it; "" where it is too old to."""


AnyProcess = TypeVar("AnyProcess", bound=Process)


def identity(found: dict[str, Any]) -> dict[str, Any]:
    """The members of Process; `found` as the compiled reader tells it."""
    return {
        "rank": found["rank"],
        "host": found["host"],
        "pid": found["pid"],
        "started": found["start_time"],
        "world": found["world"],
        "is_child": found["is_child"],
        "job": found["job"],
        # Who has called exit() is gone, also where its pid can't be looked up.
        "alive": {"alive": True, "dead": False}.get(
            found["life"], False if found["end"] == "exited" else None
        ),
    }


def read(
    files: Sequence[Path], one: Callable[[str], dict[str, Any]]
) -> tuple[list[tuple[Path, dict[str, Any]]], dict[Path, str]]:
    """What `one` says of each file that it can read, and a line for each that it can't."""

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
    """Them under the names of their jobs; `folder`: the name for those of older records."""
    jobs: dict[str, list[AnyProcess]] = {}
    for process in processes:
        jobs.setdefault(process.job or folder, []).append(process)
    return dict(sorted(jobs.items()))


def only_job(processes: Iterable[Process], folder: str) -> str:
    """The name of their job. OddrankError where they are of several: sums would mean nothing."""
    names = list(by_job(processes, folder))
    if len(names) > 1:
        raise OddrankError(
            f"these are records of {len(names)} jobs ({', '.join(names)}): name the folder, or the"
            " files, of one"
        )
    return names[0]


def runs_back(processes: Sequence[AnyProcess]) -> list[int]:
    """Of each how many runs of the job began after its own; 0: it is of the last one.

    A rank's n-th last process is of the n-th last run; a child is of its rank's run.
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
    """Without the dead of earlier runs of a job that is started again under its name.

    Of each rank of a host those that live, or else the one that began last; and the children that
    began after it.
    """
    living = {_who(p) for p in processes if p.alive and not p.is_child}
    newest: dict[tuple[str, str, int], int] = {}
    for p in processes:
        if not p.is_child and (p.alive or _who(p) not in living):
            newest[_who(p)] = max(newest.get(_who(p), 0), p.started)
    return [p for p in processes if p.alive or p.started >= newest.get(_who(p), 0)]


def _who(process: Process) -> tuple[str, str, int]:
    """The same for a rank in all runs of its job: another job's rank is another one."""
    return (process.job, process.host, process.rank)


def lacks(found: dict[str, Any]) -> Iterable[str]:
    """What a record lacks, and why, a line each; `found` as the compiled reader tells it."""
    if found["displaced_by"]:
        yield f"{found['displaced_by']} has taken the trace hook: lines since then are missing"
    if found["disarmed"]:
        yield "disarmed: what is shown is of that moment"
    for what, count in found["lost"].items():
        if count:
            yield f"no room for {count} {what}: raise ODDRANK_TRACE_MB"
    if found.get("trouble"):
        yield found["trouble"]
