"""The folder of a switch: the order that people write.

It is one line of the file `order`: a word, then its writer and time. `echo kill > DIR/order` is
enough. An order is written beside the file and then takes its place: a reader sees the old order or
the new one, and nothing in between. The file always exists: an NFS client that opens a name whose
file was replaced looks the name up again, but may see a new name only after a minute.
"""

import errno
import json
import os
import re
import shlex
import stat
import string
import threading
import time
from collections.abc import Callable
from concurrent import futures
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from oddrank import job
from oddrank.errors import OddrankError

KILL, SAVE, OFF = "kill", "save", "off"
WORDS = (KILL, SAVE, OFF)
JOBS = "jobs"  # the folder of the jobs' reports, in the switch's folder
ORDER = "order"
_OLD_SECONDS = 7 * 24 * 3600
ANSWERS_SECONDS = 30.0  # a command waits no longer for a file system that does not answer

Value = TypeVar("Value")


@dataclass(frozen=True)
class Order:
    """An order. by: for people. at: ns, of the file. id: of the command; "" if a shell wrote it."""

    word: str = OFF
    by: str = ""
    at: int = 0
    id: str = ""

    @property
    def key(self) -> str:
        """Differs from any other order's key, also from a later equal order's.

        The file's time is not enough for a command's order: it is the same within a tick of the
        clock.
        """
        return f"{self.by} {self.id or self.at}"

    def __str__(self) -> str:
        """Returns the order as messages name it: kill (alice@login1, 2026-11-24T01:29:09Z)."""
        return f"{self.word} ({self.by})" if self.by else self.word


def prepare(folder: Path) -> bool:
    """Makes the files that a job needs to watch the folder. Returns whether the folder is new.

    Its owner and group may write orders if they may write to the folder; other users may not.
    OddrankError if it can't be made, or if its parent is missing: then the path is misspelt.
    """
    try:
        is_new = not folder.is_dir()
        folder.mkdir(exist_ok=True)
        like = folder.stat()
        with suppress(FileExistsError):
            _create(folder / ORDER, b"", like)  # a word could replace an order of this moment
        (folder / JOBS).mkdir(exist_ok=True)
        with suppress(OSError):  # another user's
            _share_folder(folder / JOBS, like)
        _remove_old(folder / JOBS, r".*\.(json|new)")
        _remove_old(folder, r"\..*\.new")
    except FileNotFoundError as error:
        raise OddrankError(
            f"the switch {folder} can't be made: {folder.parent} does not exist. Check the path"
        ) from error
    except OSError as error:
        raise OddrankError(
            f"the switch {folder} can't be used: {error.strerror or error}. Give a folder that all"
            " who may stop the job can write to"
        ) from error
    return is_new


def _create(file: Path, text: bytes, like: os.stat_result) -> None:
    """Makes a file with the access rights of the switch's folder, whose status is `like`."""
    with open(file, "xb", buffering=0) as made:
        _share(made.fileno(), like, stat.S_IMODE(like.st_mode) & 0o664 | 0o600)
        _fill(made.fileno(), text)


def _fill(file: int, text: bytes) -> None:
    """Writes all of a text, and has the disk keep it."""
    while text:
        text = text[os.write(file, text) :]
    os.fsync(file)


def _share_folder(path: Path, like: os.stat_result) -> None:
    # Not through a link: root would give away the folder that a stranger's link names.
    made = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _share(made, like, stat.S_IMODE(like.st_mode))
    finally:
        os.close(made)


def _share(made: int, like: os.stat_result, mode: int) -> None:
    """Gives a descriptor's file the folder's group, and a mode; as root the folder's owner, too.
    With root's or another primary group, the job could not read an order in a private folder."""
    with suppress(OSError):  # some file systems allow it to no user
        os.fchown(made, like.st_uid if os.geteuid() == 0 else -1, like.st_gid)
    os.fchmod(made, mode)


def read(folder: Path, *, again: bool = True) -> Order:
    """Returns the order, `off` if the file is empty.

    OSError if it can't be read, FileNotFoundError in a folder that no job has watched;
    OddrankError if it is no order.
    """
    path = folder / ORDER
    file = _open(path, os.O_RDONLY)
    try:
        at = os.fstat(file).st_mtime_ns
        text = os.read(file, _MOST_BYTES).decode(errors="replace")
    except OSError as error:  # an NFS server forgets an open file that is replaced
        if error.errno == errno.ESTALE and again:
            return read(folder, again=False)
        raise
    finally:
        os.close(file)
    line = text.partition("\n")[0]  # from a stranger: nothing in it may move a cursor
    words = "".join(one if one.isprintable() else " " for one in line).split()
    if not words and not text.strip("\0" + string.whitespace):
        return Order()
    word = words[0].lower() if words else ""
    if word not in WORDS:
        shown = words[0][:40] if words else text.strip()[:40]
        raise OddrankError(f"{path} says {shown!r}: it takes {', '.join(WORDS)}")
    said = dict(one.split("=", 1) for one in words[1:] if "=" in one)
    by = ", ".join(filter(None, (said.get("by"), said.get("at"))))
    return Order(word, by, at, said.get("id", ""))


def _open(path: Path, flags: int) -> int:
    """Opens a regular file of a stranger, without waiting. OddrankError if it is none."""
    try:
        file = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):  # link, folder, FIFO
            raise _irregular(path) from error
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _irregular(path)
    return file


def _irregular(path: Path) -> OddrankError:
    return OddrankError(f"{path} is no regular file: remove it")


def write(folder: Path, word: str, by: str) -> None:
    """Writes an order in the place of the one before; a save takes no kill's.

    OddrankError if the folder is no switch, or can't be written.
    """
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    text = f"{word} by={by} at={at} id={time.time_ns()}-{os.getpid()}\n".encode()
    try:
        like = folder.stat()
        if not os.path.lexists(folder / ORDER):
            raise FileNotFoundError(folder)
    except FileNotFoundError as error:
        raise OddrankError(
            f"{folder} is no switch: no job has called oddrank.switch({str(folder)!r}). Check the"
            " path"
        ) from error
    except OSError as error:
        raise _unwritable(folder, error) from error
    before = Order()
    with suppress(OSError, OddrankError):  # a file that is no order may be replaced
        before = read(folder)
    if word == SAVE and before.word == KILL:
        off = f"to withdraw it: oddrank switch off {shlex.quote(str(folder))}"
        raise OddrankError(f"{folder} says {before}, and a save would undo that; {off}")
    try:
        _replace(folder / ORDER, text, like)
    except OSError as error:
        raise _unwritable(folder / ORDER, error) from error


def _unwritable(path: Path, error: OSError) -> OddrankError:
    then = "Check the path"
    if isinstance(error, PermissionError):
        then = "Ask its owner, or for a folder that your group can write to"
    return OddrankError(f"{path} can't be written: {error.strerror or error}. {then}")


def _replace(path: Path, text: bytes, like: os.stat_result) -> None:
    """Lets an order take the place of the one in the file. OddrankError if that is no file."""
    with suppress(FileNotFoundError):  # somebody has removed it, or it is new
        os.close(_open(path, os.O_WRONLY))
    new = path.with_name(f".{time.time_ns()}-{os.getpid()}.new")
    try:
        _create(new, text, like)
        new.replace(path)
    finally:
        with suppress(OSError):
            new.unlink()


def refusal(folder: Path, order: Order) -> str:
    """Returns why no job may start under this order; "" if jobs may."""
    if order.word != KILL:
        return ""
    return (
        f"the switch {folder} says {order}: no job may start. If it was for an earlier job:"
        f" oddrank switch off {shlex.quote(str(folder))}"
    )


def _remove_old(folder: Path, names: str) -> None:
    for entry in os.scandir(folder):
        if re.fullmatch(names, entry.name):
            with suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime + _OLD_SECONDS < time.time():
                    os.unlink(entry)


def in_time(folder: Path, action: Callable[[], Value]) -> Value:
    """Returns the result of an action on the folder. OddrankError if it does not end in time."""
    done: futures.Future[Value] = futures.Future()

    def act() -> None:
        try:
            done.set_result(action())
        except Exception as error:
            done.set_exception(error)

    threading.Thread(target=act, daemon=True).start()
    try:
        return done.result(ANSWERS_SECONDS)
    except futures.TimeoutError:
        if done.done():  # the action's own
            raise
    raise OddrankError(
        f"{folder} does not answer within {ANSWERS_SECONDS:g} s: its file system hangs"
    )


ENDED = "has ended"  # the state of a job that has closed its switch
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
    """Writes a job's report on itself. OSError if it can't be written."""
    # Jobs on several hosts may have one name, such as localhost:29500.
    file = folder / JOBS / f"{job.file_name(f'{one.job}@{one.host}')}.json"
    new = file.with_name(f".{os.getpid()}.new")
    new.write_text(json.dumps(asdict(one)) + "\n", encoding="utf-8")
    new.replace(file)


def reports(folder: Path) -> list[JobReport]:
    """Returns the jobs' reports on themselves, the newest first."""
    found = []
    with suppress(OSError):
        entries = [one for one in os.scandir(folder / JOBS) if one.name.endswith(".json")]
        for entry in sorted(entries, key=lambda one: one.name)[:_MOST_JOBS]:
            if entry.is_file(follow_symlinks=False):
                with suppress(*_BAD), open(entry.path, "rb") as file:
                    read = json.loads(file.read(_MOST_BYTES))
                    given = {name: kind(read[name]) for name, kind in _KINDS.items()}
                    found.append(JobReport(**given))
    return sorted(found, key=lambda one: -one.seen)
