"""The lines that a debugger reads and writes: over a socket, or at the process's terminal.

Both end by a deadline. Neither reads single keys: the terminal stays as it is, even if the process
is killed at the prompt.
"""

import fcntl
import hmac
import json
import os
import secrets
import select
import socket
import stat
import termios
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oddrank import job
from oddrank.errors import OddrankError

_LONGEST_LINE = 1 << 16
_TOKEN_SECONDS = 10.0
"""A client has so long to send the token."""
_WRITE_SECONDS = 10.0
"""A client that takes no text for so long is gone."""
_FILE = "debug-"
_PTS = 136  # the first major number of pseudo-terminals
_MOST_SESSIONS = 1000
_MOST_CLIENTS = 64  # that have not sent the token yet


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
            try:
                more = os.read(self._descriptor, 4096)
            except OSError:
                more = b""
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


class Terminal(Channel):
    """The terminal of this process. Leaves it in the mode in which it was."""

    def __init__(self, descriptor: int, end: float) -> None:
        super().__init__(descriptor, end)
        self._mode = termios.tcgetattr(descriptor)

    def close(self) -> None:
        with suppress(OSError, termios.error):
            # In the background, a change of the mode would stop the process.
            here = os.tcgetpgrp(self._descriptor) == os.getpgrp()
            if here and termios.tcgetattr(self._descriptor) != self._mode:
                termios.tcsetattr(self._descriptor, termios.TCSANOW, self._mode)
        super().close()


def terminal(end: float) -> Terminal | None:
    """Returns this process's terminal, if it is in the foreground there and no debugger has it.

    Needs neither stdin nor stdout: a DataLoader's worker has them closed or redirected.
    """
    try:
        opened = os.open(_device(), os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return None
    try:
        if os.tcgetpgrp(opened) == os.getpgrp():
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return Terminal(opened, end)
    except (OSError, termios.error):
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
    """A process that waits for a debugger, as its file says. rank: -1 outside of a job."""

    rank: int
    pid: int
    started: int
    host: str
    place: str
    address: str
    port: int
    token: str

    @property
    def is_alive(self) -> bool:
        """Returns whether the process lives; True for another host's, which nobody here knows."""
        here = self.host == os.uname().nodename
        return not here or job.start_time(self.pid) == self.started


class Listener:
    """Waits for `oddrank attach`, at a TCP port that a file of this user's alone names.

    Of those who connect, one that sends the file's token first gets the debugger.
    """

    def __init__(self, rank: int, place: str, listen: str) -> None:
        try:
            self._socket = socket.create_server((listen, 0))
        except OSError as error:
            raise OddrankError(
                f"no debugger can listen at {listen!r}: {error.strerror or error}. Give listen= an"
                " address of this host, or leave it out"
            ) from error
        port = self._socket.getsockname()[1]
        address = os.uname().nodename if listen in ("", "0.0.0.0") else listen
        pid = os.getpid()
        self.session = Session(
            rank, pid, job.start_time(pid), os.uname().nodename, place, address, port,
            secrets.token_hex(16),
        )  # fmt: skip
        try:
            self._file = _write(self.session)
        except OSError as error:
            self._socket.close()
            raise OddrankError(
                f"no debugger can attach: {job.job_folder()} can't be written:"
                f" {error.strerror or error}. Set ODDRANK_DIR to a folder of yours"
            ) from error

    def accept(self, end: float) -> Channel | None:
        """Returns the channel to the debugger; None at the deadline.

        It hears all clients at the same time: those that stay silent hold nobody up.
        """
        clients: dict[int, _Client] = {}  # by descriptor, the oldest first
        try:
            return self._wait(clients, end)
        finally:
            for client in clients.values():
                client.stream.close()

    def _wait(self, clients: dict[int, "_Client"], end: float) -> Channel | None:
        token = self.session.token.encode()
        self._socket.setblocking(False)
        while (now := time.monotonic()) < end:
            waiter = select.poll()
            for descriptor in (*clients, self._socket.fileno()):  # in the order of their events
                waiter.register(descriptor, select.POLLIN)
            until = min([end, *(client.until for client in clients.values())])
            readable = waiter.poll(max(1.0, (until - now) * 1000))
            for descriptor, _ in readable:
                if descriptor == self._socket.fileno():
                    self._let_in(clients)
                elif not clients[descriptor].hear(len(token)):
                    client = clients.pop(descriptor)
                    if hmac.compare_digest(client.said, token):
                        return Channel(client.stream.detach(), end)
                    client.stream.close()
            # The oldest one's time is over; whatever had come in time has been read.
            if not readable and clients:
                clients.pop(next(iter(clients))).stream.close()
        return None

    def _let_in(self, clients: dict[int, "_Client"]) -> None:
        with suppress(OSError):  # a client that has left already
            made, _ = self._socket.accept()
            made.setblocking(False)
            if len(clients) == _MOST_CLIENTS:
                clients.pop(next(iter(clients))).stream.close()
            clients[made.fileno()] = _Client(made, time.monotonic() + _TOKEN_SECONDS)

    def close(self) -> None:
        self._socket.close()
        with suppress(OSError):
            self._file.unlink()


@dataclass
class _Client:
    """Somebody who has connected. until: when it must have sent the token."""

    stream: socket.socket
    until: float
    said: bytes = b""

    def hear(self, count: int) -> bool:
        """Takes what it sends. Returns whether more is to come, up to `count` bytes."""
        try:
            more = self.stream.recv(count - len(self.said))
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.said += more
        return bool(more) and len(self.said) < count


def _write(session: Session) -> Path:
    folder = job.job_folder()
    for one in (folder.parent, folder):
        one.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = one.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(f"{one} is not yours")
    file = folder / f"{_FILE}{session.pid}.json"
    new = folder / f".{file.name}.new"
    new.unlink(missing_ok=True)  # of a dead process with this number
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(new, flags, 0o600), "w", encoding="utf-8") as stream:
        json.dump(asdict(session), stream)
    return new.replace(file)


def sessions() -> list[Session]:
    """Returns this user's processes on this host that wait for a debugger; removes dead ones."""
    return sorted(_living(), key=lambda one: (one.rank, one.pid))


def _living() -> Iterator[Session]:
    for base in job.base_folders():
        with suppress(OSError):
            if base.lstat().st_uid != os.geteuid():
                continue
            for file in list(base.glob(f"*/{_FILE}*.json"))[:_MOST_SESSIONS]:
                with suppress(OddrankError):
                    session = read(file)
                    if session.is_alive:
                        yield session
                    else:
                        file.unlink(missing_ok=True)


def read(file: Path) -> Session:
    """Returns what the file of a waiting process says. OddrankError if it says nothing."""
    try:
        opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(opened, "rb") as stream:
            if os.fstat(opened).st_uid != os.geteuid():
                raise OddrankError(f"{file} is another user's")
            said: dict[str, Any] = json.loads(stream.read(_LONGEST_LINE))
        numbers = [int(said[name]) for name in ("rank", "pid", "started", "port")]
        host, place, address, token = (
            str(said[name]) for name in ("host", "place", "address", "token")
        )
        rank, pid, started, port = numbers
        return Session(rank, pid, started, host, place, address, port, token)
    except (OSError, ValueError, TypeError, KeyError, OverflowError) as error:
        raise OddrankError(f"{file} names no process that waits for a debugger") from error
