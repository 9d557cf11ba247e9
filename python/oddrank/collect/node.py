"""Collects all sources of a node into one folder with a manifest, within a deadline."""

import errno
import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oddrank._version import __version__
from oddrank.collect import children
from oddrank.collect import find as find_
from oddrank.collect.children import Result, Say, Stop, Task
from oddrank.collect.sources import (
    Sink,
    Source,
    Target,
    host,
    nccl_ras,
    process,
    records,
    torch_files,
    write,
)
from oddrank.errors import OddrankError
from oddrank.trace import jobs

SOURCES: tuple[Source, ...] = (
    process.SOURCE, records.SOURCE, nccl_ras.SOURCE, torch_files.FLIGHT_RECORDER, host.NVIDIA_SMI,
    host.KERNEL_LOG, host.CGROUPS, torch_files.TORCHELASTIC,
)  # fmt: skip
"""All sources of evidence. Their shares of --limit sum up to 1."""
SCHEMA = "oddrank.collect/1"
MANIFEST = "manifest.json"
_WHERE_RECORDS_ARE = (
    "{0} is where records are already: name the folder to copy to, then what to copy: oddrank"
    " collect {0} -o DIR"
)
_NO_ROOM, _NOT_ALLOWED = "name a folder with room", "name a folder that you may write to"
_ADVICE = {
    errno.ENOSPC: _NO_ROOM, errno.EDQUOT: _NO_ROOM, errno.EACCES: _NOT_ALLOWED,
    errno.EPERM: _NOT_ALLOWED, errno.EROFS: _NOT_ALLOWED,
}  # fmt: skip
_OF_RANK = ("rank", "local_rank", "world", "pid", "started", "since", "alive")
_RESERVE = ".reserve"
_RESERVED = 1 << 16  # bytes that a full disk has for the manifest
_FOR_FOLDER = 5.0  # seconds to make a folder
_LAST = 0.1  # share of the deadline that is kept for the manifest
_AFTER_SIGNAL = 5.0  # seconds for the manifest once a signal came


@dataclass
class Collected:
    """The result of a collection. lines: for the user."""

    job: str
    folder: Path
    records: int
    files: int
    bytes: int
    why: str = ""
    """Why it is not complete: a signal; "": it is."""
    lines: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    """A line for each name that the user gave and has no record."""
    not_read: list[dict[str, Any]] = field(default_factory=list)


def gather(
    paths: Sequence[str], out: Path, host: str, *, limit: int, deadline: float, stop: Stop,
    sources: Sequence[Source] = SOURCES,
) -> Collected:  # fmt: skip
    """Collects a job's evidence of this node to `out`/JOB/`host`.

    limit: bytes of all files. deadline: seconds for everything. OddrankError if there is no such
    job, or the folder can't be written.
    """
    begin, clock = time.time(), time.monotonic()
    until = clock + deadline
    out = out.absolute()
    found = find_.find(paths, host, until, stop)
    target = found.target
    if stop.by:
        raise OddrankError(f"{stop.by} ended it before anything was collected")
    folder = out / target.job / host
    _prepare(out, folder, until, stop)
    tasks = _tasks(sources, target, folder, limit)
    results = children.run_all(tasks, clock + deadline * (1 - _LAST), stop)
    told = [_told(task.name, result) for task, result in zip(tasks, results, strict=True)]
    manifest: dict[str, Any] = {
        "schema": SCHEMA,
        "oddrank": __version__,
        "job": target.job,
        "host": host,
        "began": begin,
        "seconds": round(time.monotonic() - clock, 3),
        "limit": limit,
        "complete": not stop.by,
        "ended_by": stop.by,
        "ranks": [{name: getattr(rank, name) for name in _OF_RANK} for rank in target.ranks],
        "sources": told,
        "not_read": [*found.not_read, *(lack for one in told for lack in one.pop("not_read"))],
    }
    files = [file for one in told for file in one["files"]]
    if stop.by:
        until = min(until, time.monotonic() + _AFTER_SIGNAL)
    lacks = _finish(folder, manifest, until)
    return Collected(
        target.job, folder, sum(file["name"].endswith(jobs.SUFFIX) for file in files), len(files),
        sum(file["bytes"] for file in files), stop.by, found.lines,
        found.lacking, [*manifest["not_read"], *lacks],
    )  # fmt: skip


def _prepare(out: Path, folder: Path, until: float, stop: Stop) -> None:
    """Makes the node's folder. OddrankError if it can't be written, or holds a live job's records.

    The room that it sets aside is for the manifest, which must have room on a full disk.
    """

    def make(say: Say) -> None:
        say({"at": str(folder)})
        is_base = any(out.is_relative_to(base) for base in jobs.bases())
        if is_base or (out.is_dir() and jobs.records(out)):
            say({"refused": _WHERE_RECORDS_ARE.format(out)})
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _remove_halves(folder)
            write(folder / f".probe.{os.getpid()}", [b"x"])
            (folder / f".probe.{os.getpid()}").unlink()
        except OSError as error:
            advice = _ADVICE.get(error.errno or 0, "name another folder with -o")
            say({"refused": f"cannot write to {folder} ({error.strerror}): {advice}"})
            return
        with suppress(OSError):
            file = os.open(folder / _RESERVE, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            os.posix_fallocate(file, 0, _RESERVED)

    (result,) = children.run_all([Task("folder", make, _FOR_FOLDER)], until, stop)
    if refused := result.of("refused"):
        raise OddrankError(refused[0])
    if result.why:
        raise OddrankError(f"cannot write to {folder} ({result.why}): name another folder with -o")


def _tasks(sources: Sequence[Source], target: Target, folder: Path, limit: int) -> list[Task]:

    def task(source: Source, name: str, part: object, room: int) -> Task:
        def work(say: Say) -> None:
            source.work(target, part, Sink(folder, room, say))

        return Task(f"{source.name} {name}".strip(), work, source.seconds)

    tasks = []
    for source in sources:
        parts = source.parts(target)
        for name, part in parts.items():
            tasks.append(task(source, name, part, int(limit * source.share / len(parts))))
    return tasks


def _told(name: str, result: Result) -> dict[str, Any]:
    """Makes a source's entry of the manifest."""
    lacks = [*result.of("not_read"), *result.lacks(name)]
    files = result.of("file")
    return {
        "name": name,
        "complete": not result.why,
        "files": files,
        "bytes": sum(file["bytes"] for file in files),
        "not_read": [{"source": name, **lack} for lack in lacks],
    }


def _finish(folder: Path, manifest: dict[str, Any], until: float) -> list[dict[str, Any]]:

    def last(say: Say) -> None:
        _remove_halves(folder)
        say({"at": str(folder / MANIFEST)})
        (folder / _RESERVE).unlink(missing_ok=True)
        write(folder / MANIFEST, [json.dumps(manifest, indent=1).encode()])

    seconds = max(1.0, until - time.monotonic())
    until = time.monotonic() + seconds
    # Signals that came before have ended the sources; this must come to its end.
    (result,) = children.run_all([Task("manifest", last, seconds)], until, Stop())
    return [{"source": "manifest", **lack} for lack in result.lacks(result.at or str(folder))]


def _remove_halves(folder: Path) -> None:
    """Removes files that processes did not write to their end."""
    for half in folder.rglob(".*.[0-9]*"):
        if not os.path.exists(f"/proc/{half.name.rpartition('.')[2]}"):
            half.unlink(missing_ok=True)
