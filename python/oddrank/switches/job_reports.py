"""Reports of the jobs that watch a switch, each by the job itself: `jobs/NAME@HOST.json`."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oddrank import job
from oddrank.switches import order_file

ENDED = "has ended"
"""The state of a job that has closed its switch."""
_MOST_BYTES = 1 << 16
_MOST_JOBS = 1000
_BAD = (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError)
"""Errors of a report that another program has written."""


@dataclass(frozen=True)
class JobReport:
    """A job's own report. seen: wall clock, in seconds. state: a sentence's part."""

    job: str
    host: str
    world: int
    steps: int
    state: str
    seen: float


_KINDS: dict[str, Callable[[Any], Any]] = {
    "job": str, "host": str, "world": int, "steps": int, "state": str, "seen": float,
}  # fmt: skip


def report(folder: Path, one: JobReport) -> None:
    """Writes what a job says of itself. OSError if it can't be written."""
    # Jobs on several hosts may have one name, such as localhost:29500.
    file = folder / order_file.JOBS / f"{job.file_name(f'{one.job}@{one.host}')}.json"
    new = file.with_name(f".{os.getpid()}.new")
    new.write_text(json.dumps(asdict(one)) + "\n", encoding="utf-8")
    new.replace(file)


def reports(folder: Path) -> list[JobReport]:
    """Returns what the jobs said of themselves, the last to speak first."""
    found = []
    with suppress(OSError):
        entries = [
            one for one in os.scandir(folder / order_file.JOBS) if one.name.endswith(".json")
        ]
        for entry in sorted(entries, key=lambda one: one.name)[:_MOST_JOBS]:
            if entry.is_file(follow_symlinks=False):
                with suppress(*_BAD), open(entry.path, "rb") as file:
                    read = json.loads(file.read(_MOST_BYTES))
                    given = {name: kind(read[name]) for name, kind in _KINDS.items()}
                    found.append(JobReport(**given))
    return sorted(found, key=lambda one: -one.seen)
