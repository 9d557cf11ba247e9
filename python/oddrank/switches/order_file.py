"""The folder of a switch: the order that people write, and what each job that watches it says.

`order` has one line: a word, then who wrote it and when. `echo kill > DIR/order` is enough. The
file always exists and is changed in place: NFS shows a change of a file that is opened anew at
once, but a new or renamed file only after up to a minute.
"""

import fnmatch
import json
import os
import re
import shlex
import stat
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from oddrank import job
from oddrank.errors import OddrankError

KILL, SAVE, DUMP, PAUSE, RESUME, OFF = "kill", "save", "dump", "pause", "resume", "off"
WORDS = (KILL, SAVE, DUMP, PAUSE, RESUME, OFF)
LASTING = (KILL, PAUSE)
"""These hold until another word takes their place; a job that starts under one is refused."""
ENDED = "has ended"
"""The state of a job that has closed its switch."""
NONE = (RESUME, OFF)
"""Nothing is ordered."""
_ORDER, _JOBS = "order", "jobs"
_MOST_BYTES = 512
_MOST_REPORT = 1 << 16
_MOST_JOBS = 1000
_OLD_SECONDS = 7 * 24 * 3600
ANSWERS_SECONDS = 30.0
"""A file system that has not answered a command after so long is not waited for."""

_BAD = (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError)
"""Errors of a report that another program has written."""

Value = TypeVar("Value")


@dataclass(frozen=True)
class Order:
    """What the file says. by: for people. jobs: a pattern of names of jobs. at: ns, of the file."""

    word: str = OFF
    by: str = ""
    jobs: str = "*"
    at: int = 0

    def is_for(self, name: str) -> bool:
        return fnmatch.fnmatchcase(name, self.jobs)

    def __str__(self) -> str:
        """Returns the order as messages name it: kill (alice@login1, 2026-11-24T01:29:09Z)."""
        return f"{self.word} ({self.by})" if self.by else self.word


@dataclass(frozen=True)
class JobReport:
    """What a job says of itself. seen: wall clock, in seconds. state: a sentence's part."""

    job: str
    host: str
    world: int
    steps: int
    state: str
    seen: float


def prepare(folder: Path) -> None:
    """Makes the folder and the order, as a job that begins to watch it. OddrankError if it can't.

    Those who may write to the folder may write the order, but for everybody else.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        mode = stat.S_IMODE(folder.stat().st_mode) & 0o664 | 0o600
        file = folder / _ORDER
        with suppress(FileExistsError):
            made = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC)
            try:
                os.fchmod(made, mode)
                os.write(made, b"off\n")
            finally:
                os.close(made)
        (folder / _JOBS).mkdir(exist_ok=True)
        with suppress(OSError):  # another user's
            (folder / _JOBS).chmod(stat.S_IMODE(folder.stat().st_mode))
        _remove_old(folder / _JOBS)
    except OSError as error:
        raise OddrankError(
            f"the switch {folder} can't be used: {error.strerror or error}. Give a folder that all"
            " who may stop the job can write to"
        ) from error


def read(folder: Path) -> Order:
    """Returns the order. OSError if it can't be read; OddrankError if it is none."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    file = os.open(folder / _ORDER, flags)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise OddrankError(f"{folder / _ORDER} is no regular file: remove it")
        text = os.read(file, _MOST_BYTES).decode(errors="replace")
    finally:
        os.close(file)
    line = text.partition("\n")[0]  # of a stranger: nothing in it may move a cursor
    words = "".join(one if one.isprintable() else " " for one in line).split()
    if not words:
        return Order(at=found.st_mtime_ns)
    if words[0].lower() not in WORDS:
        raise OddrankError(f"{folder / _ORDER} says {words[0][:40]!r}: it takes {', '.join(WORDS)}")
    said = dict(word.split("=", 1) for word in words[1:] if "=" in word)
    by = " ".join(filter(None, (said.get("by"), said.get("at"))))
    return Order(words[0].lower(), by.replace(" ", ", "), said.get("jobs", "*"), found.st_mtime_ns)


def write(folder: Path, word: str, jobs: str, by: str) -> None:
    """Writes an order in place. OddrankError if the folder is no switch, or can't be written."""
    file = folder / _ORDER
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    text = f"{word} by={by} at={at}{'' if jobs == '*' else f' jobs={jobs}'}\n".encode()
    try:
        opened = os.open(file, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            # A reader sees one line or the other: the rest of a longer line is behind the first.
            os.write(opened, text)
            os.ftruncate(opened, len(text))
            os.fsync(opened)
        finally:
            os.close(opened)
    except FileNotFoundError as error:
        raise OddrankError(
            f"{folder} is no switch: no job has called oddrank.switch({str(folder)!r}). Check the"
            " path"
        ) from error
    except OSError as error:
        raise OddrankError(
            f"{file} can't be written: {error.strerror or error}. Ask its owner, or for a folder"
            " that your group can write to"
        ) from error


def refusal(folder: Path, order: Order, name: str) -> str:
    """Returns why the job `name` must not start under this order; "" if it may."""
    if order.word not in LASTING or not order.is_for(name):
        return ""
    return (
        f"the switch {folder} says {order}: no job may start. If it was for an earlier job:"
        f" oddrank switch off {shlex.quote(str(folder))}"
    )


def report(folder: Path, one: JobReport) -> None:
    """Writes what a job says of itself. OSError if it can't be written."""
    # Jobs on several hosts may have one name, such as localhost:29500.
    file = folder / _JOBS / f"{job.file_name(f'{one.job}@{one.host}')}.json"
    new = file.with_name(f".{os.getpid()}.new")
    new.write_text(json.dumps(asdict(one)) + "\n", encoding="utf-8")
    new.replace(file)


def reports(folder: Path) -> list[JobReport]:
    """Returns what the jobs said of themselves, the last to speak first."""
    found = []
    with suppress(OSError):
        for entry in sorted(os.scandir(folder / _JOBS), key=lambda one: one.name)[:_MOST_JOBS]:
            if entry.name.endswith(".json") and entry.is_file(follow_symlinks=False):
                with suppress(*_BAD), open(entry.path, "rb") as file:
                    found.append(_job_report(json.loads(file.read(_MOST_REPORT))))
    return sorted(found, key=lambda one: -one.seen)


def _job_report(read: Mapping[str, Any]) -> JobReport:
    names = ("job", "host", "state")
    texts = {name: str(read[name]) for name in names}
    return JobReport(
        world=int(read["world"]), steps=int(read["steps"]), seen=float(read["seen"]), **texts
    )


def _remove_old(folder: Path) -> None:
    for entry in os.scandir(folder):
        if re.fullmatch(r".*\.(json|new)", entry.name):
            with suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime + _OLD_SECONDS < time.time():
                    os.unlink(entry)


def in_time(folder: Path, action: Callable[[], Value]) -> Value:
    """Returns the result of an action on the folder. OddrankError if it does not end in time."""
    results: list[Value] = []
    errors: list[Exception] = []

    def act() -> None:
        try:
            results.append(action())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(ANSWERS_SECONDS)
    if thread.is_alive():
        raise OddrankError(
            f"{folder} does not answer within {ANSWERS_SECONDS:g} s: its file system hangs"
        )
    if errors:
        raise errors[0]
    return results[0]
