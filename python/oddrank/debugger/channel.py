"""The lines that a debugger reads and writes: over a socket, or at the process's terminal.

Both end by a deadline. Neither reads single keys: the terminal stays as it is, even if the process
is killed at the prompt.
"""

import fcntl
import os
import re
import select
import socket
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from oddrank import job
from oddrank.errors import OddrankError

_LONGEST_LINE = 1 << 16
_WRITE_SECONDS = 10.0  # a client that takes no text for so long is gone
_NAME = "debug-rank"
_OWN = re.compile(rf"{_NAME}(-?\d+)-(\d+)-(\d+)")
_PTS = 136  # the first major number of pseudo-terminals
_MOST_SESSIONS = 1000


class Channel:
    """A text file for pdb: readline() returns "" at the deadline, or once the other side is gone.

    The descriptor is the channel's own. end: time.monotonic().
    """

    encoding = "utf-8"

    def __init__(self, descriptor: int, end: float) -> None:
        self._descriptor, self._end = descriptor, end
        self._unread = b""
        self.is_open = True

    @property
    def is_late(self) -> bool:
        return time.monotonic() >= self._end

    @property
    def left(self) -> float:
        """Seconds to the deadline."""
        return max(0.0, self._end - time.monotonic())

    def readline(self) -> str:
        while self.is_open and b"\n" not in self._unread:
            if len(self._unread) > _LONGEST_LINE or not self._wait(select.POLLIN, self._end):
                return self._gone()
            more = b""
            with suppress(OSError):
                more = os.read(self._descriptor, 4096)
            if not more:
                return self._gone()
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode(errors="replace") + "\n" if self.is_open else ""

    def write(self, text: str) -> int:
        left = text.encode(errors="replace")
        end = time.monotonic() + _WRITE_SECONDS
        while left and self.is_open:
            try:
                if not self._wait(select.POLLOUT, end):
                    self._gone()
                else:
                    left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:
                continue
            except OSError:
                self._gone()
        return len(text)

    def flush(self) -> None:
        """Does nothing: write() has written."""

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self.is_open = -1, False

    def _gone(self) -> str:
        self.is_open = False
        return ""

    def _wait(self, event: int, end: float) -> bool:
        waiter = select.poll()
        waiter.register(self._descriptor, event)
        return bool(waiter.poll(max(0.0, end - time.monotonic()) * 1000))


def terminal(end: float) -> Channel | None:
    """Returns this process's terminal, if it is in the foreground there and no debugger has it.
    Needs neither stdin nor stdout: a DataLoader's worker has them closed or redirected."""
    try:
        opened = os.open(_device(), os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return None
    try:
        if os.tcgetpgrp(opened) == os.getpgrp():
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return Channel(opened, end)
    except OSError:
        pass
    os.close(opened)
    return None


def _device() -> str:
    """Returns the file of this process's terminal: all terminals share a lock of /dev/tty."""
    number = int(job.stat_fields(os.getpid())[4])
    major, minor = number >> 8 & 0xFFF, number & 0xFF | number >> 12 & 0xFFF00
    file = f"/dev/pts/{(major - _PTS) * 256 + minor}"
    with suppress(OSError):
        if os.stat(file).st_rdev == os.makedev(major, minor) and os.access(file, os.R_OK | os.W_OK):
            return file
    return "/dev/tty"


@dataclass(frozen=True)
class Session:
    """A process that waits for a debugger at a socket. rank: -1 outside of a job."""

    file: Path
    rank: int
    pid: int

    def connect(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        try:
            with _short(self.file) as path:
                made.connect(path)
        except OSError:
            made.close()
            raise
        return made


class Listener:
    """Waits for `oddrank attach`, at a socket that this user alone may connect to."""

    def __init__(self, rank: int) -> None:
        pid, folder = os.getpid(), job.job_folder()
        self._file = folder / f"{_NAME}{rank}-{pid}-{job.start_time(pid)}"
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            for one in (folder.parent, folder):
                one.mkdir(mode=0o700, parents=True, exist_ok=True)
                found = one.lstat()
                if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                    raise PermissionError(f"{one} is not yours")
            made = self._file.with_name(f".{self._file.name}")
            made.unlink(missing_ok=True)
            with _short(made) as path:
                self._socket.bind(path)
            made.chmod(0o600)
            self._socket.listen()
            made.rename(self._file)  # every file that sessions() finds accepts connections
        except OSError as error:
            self._socket.close()
            raise OddrankError(
                f"no debugger can attach: {folder} can't be written:"
                f" {error.strerror or error}. Set ODDRANK_DIR to a folder of yours"
            ) from error

    def accept(self, end: float) -> Channel | None:
        """Returns the channel to the debugger; None at the deadline."""
        self._socket.settimeout(max(0.0, end - time.monotonic()))
        try:
            client = self._socket.accept()[0]
        except (TimeoutError, BlockingIOError):
            return None
        client.setblocking(False)
        return Channel(client.detach(), end)

    def close(self) -> None:
        self._socket.close()
        with suppress(OSError):
            self._file.unlink()


@contextmanager
def _short(file: Path) -> Iterator[str]:
    """Yields a path of the file that is short enough for a socket, even if the folder's is not."""
    folder = os.open(file.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{file.name}"
    finally:
        os.close(folder)


def sessions(bases: Iterable[Path] | None = None) -> list[Session]:
    """Returns this user's processes on this host that wait for a debugger; removes dead ones.

    bases: the folders that hold the jobs' folders; None: as this process's variables say.
    """
    found: list[Session] = []
    for base in job.base_folders() if bases is None else bases:
        with suppress(OSError):
            if base.lstat().st_uid != os.geteuid():
                continue
            for file in list(base.glob(f"*/{_NAME}*"))[:_MOST_SESSIONS]:
                name = _OWN.fullmatch(file.name)
                if name and job.start_time(int(name[2])) == int(name[3]):
                    found.append(Session(file, int(name[1]), int(name[2])))
                elif name:
                    file.unlink(missing_ok=True)
    return sorted(found, key=lambda one: (one.rank, one.pid))
