"""Finds the evidence of a job: its records on this host, or ranks by the variables of processes.

All of it runs in child processes: /proc/PID/environ waits for a process that maps memory from a
file system that does not answer.
"""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from oddrank import job, launch
from oddrank.collect import children
from oddrank.collect.children import Say, Stop, Task
from oddrank.collect.sources import NAMES, Rank, Target
from oddrank.collect.sources.process import parent_of
from oddrank.errors import OddrankError
from oddrank.finding import grouped
from oddrank.trace import jobs
from oddrank.trace.ranks import snapshots

_SHARE = 0.25  # share of the remaining time, for each of the two searches
_MOST_PROCESSES = 8192
_CHUNKS = 16
_DEEPEST = 64
_MOST_NAMES = 5
_MOST_TEXT = 4096


@dataclass
class Found:
    """The result of the search. lines: for the user. lacking: one for each name without a record.

    not_read: as in the manifest.
    """

    target: Target
    lines: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    not_read: list[dict[str, Any]] = field(default_factory=list)


def find(paths: Sequence[str], host: str, until: float, stop: Stop) -> Found:
    """Finds the job. paths: as for jobs.find(); by default the newest job here.

    A job that has no record is found by its name, too. OddrankError if there is no such job, or
    none at all.
    """
    seconds = _SHARE * (until - time.monotonic())
    tasks = [
        Task("records", partial(_records, paths), seconds),
        Task("processes", _pythons, seconds),
    ]
    look, pythons = children.run_all(tasks, until, stop)
    if look.refused:
        raise OddrankError(look.why)
    told = look.said[0] if look.said else {}
    recorded = Target("", host)
    if "ranks" in told:
        ranks = [Rank(**rank) for rank in told["ranks"]]
        recorded = Target(told["job"], host, told["files"], ranks)
    pids = [rank.pid for rank in recorded.ranks if rank.alive]
    if not paths or not recorded.records:
        pids += [pid for pid in pythons.of("pid") if pid not in pids]
    seen, more = _look(pids, until, stop)
    refused = told.get("refused") or f"the records were not read: {look.why}"
    target, lines = _chosen(recorded, seen, paths, refused)
    lines += filter(None, [told.get("also")])
    not_read = [*look.lacks(look.at), *pythons.lacks(pythons.at), *more]
    return Found(target, lines, told.get("lacking", []), not_read)


def _records(paths: Sequence[str], say: Say) -> None:
    """Is a child: finds records and their ranks."""
    say({"at": "the records"})
    try:
        found = jobs.find(paths)
    except OddrankError as error:
        say({"refused": str(error)})
        return
    ranks: list[Rank] = []
    names = []
    read, _ = snapshots(found.files)
    by_file = dict(read)
    for file in found.files:
        name, facts = jobs.NAME.fullmatch(file.name), by_file.get(file)
        if facts and facts["job"]:  # anybody may have written it, and it names a folder
            names.append(job.file_name(facts["job"]))
        if name is None or facts is None or facts["is_child"]:
            continue
        pid, started = facts["pid"], facts["start_time"]
        alive = facts["life"] == "alive" and job.start_time(pid) == started
        with suppress(OSError):  # removed since
            owner = file.stat().st_uid
            ranks.append(Rank(facts["rank"], None, facts["world"], pid, started, owner, alive))
    names = sorted(set(names)) or [found.files[0].parent.name]
    if len(names) > 1:
        several = ", ".join(names[:_MOST_NAMES])
        raise OddrankError(f"these are records of {len(names)} jobs ({several}): name one")
    say({
        "files": [str(file) for file in found.files], "job": names[0],
        "ranks": [vars(rank) for rank in ranks], "lacking": list(found.lacking),
        "also": found.also,
    })  # fmt: skip


def _pythons(say: Say) -> None:
    """Is a child: finds this user's Python processes; as root, all users'."""
    own, count, us = os.geteuid(), 0, (os.getpid(), os.getppid())
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in us:
            continue
        say({"at": f"/proc/{name}"})
        with suppress(OSError):  # it ended, or is another user's
            if own and os.stat(f"/proc/{name}").st_uid != own:
                continue
            if "python" in os.path.basename(os.readlink(f"/proc/{name}/exe")):
                say({"pid": int(name)})
                count += 1
        if count == _MOST_PROCESSES:
            return


def _look(
    pids: Sequence[int], until: float, stop: Stop
) -> tuple[dict[int, dict[str, Any]], list[dict[str, Any]]]:
    """Reads the variables of processes; returns the ranks found, and what was not readable."""
    seconds = _SHARE * (until - time.monotonic())
    chunks = [list(pids[i::_CHUNKS]) for i in range(min(_CHUNKS, len(pids)))]
    tasks = [
        Task(f"variables {number}", partial(_read_variables, own), seconds)
        for number, own in enumerate(chunks)
    ]
    seen: dict[int, dict[str, Any]] = {}
    not_read: list[dict[str, Any]] = []
    for result in children.run_all(tasks, until, stop):
        seen |= {one["pid"]: one for one in result.said}
        not_read += result.lacks(result.at or "variables of processes")
    return seen, not_read


def _read_variables(pids: Sequence[int], say: Say) -> None:
    for pid in pids:
        say({"at": f"/proc/{pid}/environ"})
        with suppress(OSError, ValueError):  # it ended, or is another user's
            started, owner = job.start_time(pid), os.stat(f"/proc/{pid}").st_uid
            content = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
            pairs = (text.partition("=") for text in content.split("\0"))
            environ = {name: value for name, equals, value in pairs if equals}
            parent = parent_of(pid)
            if started and started == job.start_time(pid):
                kept = {name: environ[name][:_MOST_TEXT] for name in NAMES & environ.keys()}
                one = {"pid": pid, "started": started, "uid": owner, "parent": parent,
                       "environ": kept}  # fmt: skip
                say({**one, **_place(environ, parent)})


def _place(environ: dict[str, str], parent: int) -> dict[str, Any]:
    """Returns the rank that the variables name; without one the process is none."""
    try:
        found = launch.current(environ)
    except (OddrankError, ValueError, LookupError):
        return {}
    if found.launcher == "alone":
        return {}
    name = found.job
    if name.startswith("pid-"):  # it was made from this process's parent, not from that one's
        name = f"pid-{parent}-{job.start_time(parent)}"
    return {"rank": found.rank, "local_rank": found.local_rank, "world": found.world, "job": name}


def _chosen(
    recorded: Target, seen: dict[int, dict[str, Any]], paths: Sequence[str], refused: str
) -> tuple[Target, list[str]]:
    """Takes the newest job: a recorded one, or one without records that began after its end."""
    known = {rank.pid for rank in recorded.ranks}
    jobs = grouped((one["job"], one) for one in seen.values() if "job" in one)
    by_job = {name: _ranks(own) for name, own in jobs.items()}
    unrecorded = {
        name: ranks for name, ranks in by_job.items()
        if name != recorded.job and not known & {rank.pid for rank in ranks}
    }  # fmt: skip
    if paths and not recorded.records:
        begin = job.file_name(paths[0])
        named = [name for name in unrecorded if len(paths) == 1 and name.startswith(begin)]
        if len(named) != 1:
            raise OddrankError(refused)
        return Target(named[0], recorded.host, (), unrecorded[named[0]]), []
    newest = max(unrecorded, key=lambda name: _begin(unrecorded[name]), default="")
    lines = []
    lives = any(rank.alive for rank in recorded.ranks)
    is_newer = bool(newest) and _begin(unrecorded[newest]) > _begin(recorded.ranks)
    if not paths and newest and (not recorded.records or (is_newer and not lives)):
        others = [name for name in unrecorded if name != newest]
        if others:
            lines.append(f"also here: {', '.join(others[:_MOST_NAMES])} (oddrank collect JOB)")
        if recorded.records:
            lines.append(f"also here, but ended before: {recorded.job} (oddrank collect JOB)")
        return Target(newest, recorded.host, (), unrecorded[newest]), lines
    if not recorded.records:
        return Target("no-job", recorded.host), [
            "no job of yours runs or has records here: collected is what the node itself says"
        ]
    if newest and not paths:
        lines.append(f"also here: {newest} (oddrank collect JOB)")
    ranks = [_with_variables(rank, seen) for rank in recorded.ranks]
    more = [rank for rank in by_job.get(recorded.job, ()) if rank.pid not in known]
    more = [rank for rank in more if rank.rank not in {one.rank for one in ranks if one.alive}]
    in_order = sorted([*ranks, *more], key=lambda rank: (rank.rank, rank.started))
    return Target(recorded.job, recorded.host, recorded.records, in_order), lines


def _with_variables(rank: Rank, seen: dict[int, dict[str, Any]]) -> Rank:
    one = seen.get(rank.pid)
    if one is None or one["started"] != rank.started:
        return rank
    local = one.get("local_rank") if one.get("rank") == rank.rank else None
    return replace(rank, local_rank=local, environ=one["environ"], uid=one["uid"])


def _ranks(seen: Sequence[dict[str, Any]]) -> list[Rank]:
    """Takes a rank's topmost process: others inherit its variables."""
    # A launcher's agent in a SLURM step has the step's numbers: fewer than its own ranks.
    world = max(one["world"] for one in seen)
    seen = [one for one in seen if one["world"] == world]
    of = {one["pid"]: one for one in seen}
    first: dict[int, dict[str, Any]] = {}
    for one in sorted(seen, key=lambda one: (one["started"], one["pid"])):
        above = one["parent"]
        for _ in range(_DEEPEST):
            if above <= 1 or (above in of and of[above]["rank"] == one["rank"]):
                break
            above = parent_of(above)
        if above <= 1:
            first.setdefault(one["rank"], one)
    return [
        Rank(rank, one["local_rank"], one["world"], one["pid"], one["started"], one["uid"], True,
             one["environ"])
        for rank, one in sorted(first.items())
    ]  # fmt: skip


def _begin(ranks: Sequence[Rank]) -> int:
    return max((rank.started for rank in ranks), default=0)
