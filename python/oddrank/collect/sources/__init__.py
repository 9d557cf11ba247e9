"""A source of evidence: a row of the table, its work, and the place for its files.

The work runs in a child process. It may block and be killed at any moment: files put until then
count.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from oddrank.collect.children import Say
from oddrank.errors import OddrankError
from oddrank.finding import size_text
from oddrank.machine import small_file

_PIECE = 1 << 20
# Variables of ranks that say where evidence is.
FLIGHT_FILE = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
FLIGHT_PIPE = ("TORCH_FR_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
ERROR_FILE = ("TORCHELASTIC_ERROR_FILE",)
RAS = ("NCCL_RAS_ADDR",)
NAMES = frozenset((
    *FLIGHT_FILE, *FLIGHT_PIPE, *ERROR_FILE, *RAS, "NCCL_RAS_ENABLE", "HOME", "XDG_CACHE_HOME",
))  # fmt: skip
"""Variables that sources use. They stay in this process: values of others may be secrets."""


@dataclass(frozen=True)
class Rank:
    """A process of the job on this node.

    started: in ticks since boot. environ: its variables in NAMES, as it began;
    empty if it is gone or not readable. world: 0 if unknown.
    """

    rank: int
    local_rank: int | None
    world: int
    pid: int
    started: int
    uid: int
    alive: bool
    environ: Mapping[str, str] = field(default_factory=dict)

    @property
    def since(self) -> float:
        """Unix time at which it began; 0 if unknown."""
        lines = small_file("/proc/stat").splitlines()
        boot = next((line.split()[1] for line in lines if line.startswith("btime ")), "")
        return int(boot) + self.started / os.sysconf("SC_CLK_TCK") if boot and self.started else 0

    @property
    def name(self) -> str:
        return f"rank{self.rank}-{self.pid}"


@dataclass(frozen=True)
class Target:
    """The job to collect. records: files, perhaps none; ranks: this node's, in order."""

    job: str
    host: str
    records: Sequence[str] = ()
    ranks: Sequence[Rank] = ()

    @property
    def living(self) -> list[Rank]:
        return [rank for rank in self.ranks if rank.alive]

    def values(self, *names: str) -> dict[str, list[Rank]]:
        """Returns the values that the ranks have for the first of these variables, and whose."""
        found: dict[str, list[Rank]] = {}
        for rank in self.ranks:
            value = next((rank.environ[name] for name in names if rank.environ.get(name)), "")
            if value:
                found.setdefault(value, []).append(rank)
        return found


@dataclass(frozen=True)
class Source:
    """A row of the table of sources.

    seconds: its deadline. share: of --limit, all its parts together. parts: a process each, so that
    one that hangs costs no other.
    """

    name: str
    seconds: float
    share: float
    work: Callable[[Target, Any, "Sink"], None]
    parts: Callable[[Target], Mapping[str, Any]] = lambda target: {"": None}


class Sink:
    """Puts files into the node's folder, each whole or not at all, readable by the owner only.

    room: bytes that may still be put.
    """

    def __init__(self, folder: Path, room: int, say: Say) -> None:
        self.folder = folder
        self.room, self._say = room, say

    def at(self, what: object) -> None:
        """Announces the next read: the parent names it if it never ends."""
        self._say({"at": str(what)})

    def lacks(self, what: object, why: object, *, absent: bool = False) -> None:
        """Notes a source that could not be read. why: words, or the error. absent: none here."""
        if isinstance(why, OSError):
            why = why.strerror or repr(why)
        self._say({"not_read": {"what": str(what), "why": str(why), "absent": absent}})

    def put(self, name: str, content: bytes | Iterable[bytes], size: int = 0, of: str = "") -> bool:
        """Writes a file; returns whether it did. size: if known, refuses a file without room."""
        pieces = [content] if isinstance(content, bytes) else content
        size = len(content) if isinstance(content, bytes) else size
        if size > self.room:
            self.lacks(of or name, _no_room(size))
            return False
        try:
            written = write(self.folder / name, pieces, self.room)
        except (OddrankError, OSError) as error:
            self.lacks(of or name, error)
            return False
        self.room -= written
        self._say({"file": {"name": name, "bytes": written, **({"of": of} if of else {})}})
        return True


def write(file: Path, pieces: Iterable[bytes], most: int = 1 << 62) -> int:
    """Writes a file beside its place and moves it there; returns its size.

    OddrankError if it is larger than `most`: it may grow while it is read.
    """
    half = file.parent / f".{file.name}.{os.getpid()}"
    written = 0
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        made = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(made, "wb") as copy:
            for piece in pieces:
                written += len(piece)
                if written > most:
                    raise OddrankError(_no_room(written))
                copy.write(piece)
        half.replace(file)
    finally:
        half.unlink(missing_ok=True)
    return written


def _no_room(size: int) -> str:
    return f"it has {size_text(size)}, over the share of its source: raise --limit"


@contextmanager
def opened(file: str | Path, owner: int | None = None) -> Iterator[tuple[int, os.stat_result]]:
    """Opens a file that anybody may have named or made. Waits for no other process.

    Follows no symbolic link, opens no pipe or device. owner: the user that it must belong to.
    OddrankError says why not. All checks use the open file, which cannot be exchanged.
    """
    try:
        source = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        is_link = os.path.islink(file)
        raise OddrankError("it is a symbolic link" if is_link else error.strerror) from None
    except ValueError:
        raise OddrankError("it is no path") from None
    try:
        facts = os.fstat(source)
        if not stat.S_ISREG(facts.st_mode):
            raise OddrankError("it is no file but a folder, pipe or device")
        if owner is not None and facts.st_uid != owner:
            raise OddrankError("it belongs to another user than the job")
        yield source, facts
    finally:
        os.close(source)


def pieces(source: int, size: int) -> Iterator[bytes]:
    """Yields a file's content, at most `size` bytes."""
    while size > 0 and (piece := os.read(source, min(size, _PIECE))):
        yield piece
        size -= len(piece)


def copy(
    sink: Sink, file: str | Path, name: str, owner: int | None = None,
    check: Callable[[int, os.stat_result], None] = lambda source, facts: None,
) -> None:  # fmt: skip
    """Copies a file, with its time of change, or notes why not. check: raises OddrankError."""
    sink.at(file)
    try:
        with opened(file, owner) as (source, facts):
            check(source, facts)
            if sink.put(name, pieces(source, facts.st_size), facts.st_size, of=str(file)):
                with suppress(OSError):
                    os.utime(sink.folder / name, ns=(facts.st_mtime_ns, facts.st_mtime_ns))
    except (OddrankError, OSError) as error:
        sink.lacks(file, error)


def iso(seconds: float) -> str:
    """Returns a time as 2026-11-23T15:04:05.123456+00:00."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="microseconds")
