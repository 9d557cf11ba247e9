"""Reads logs: once from end to end, or as they grow, are rotated or cut off."""

import gzip
import os
import stat
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from oddrank import _native
from oddrank.errors import OddrankError

_CHUNK = 1 << 20
_MOST_FILES = 256
_POLL = 0.2  # seconds between two looks at logs that grow
_ADVICE = "give the logs of one training"


class Log:
    """A log, open. position: bytes read from it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.file = self._open()
        self.position = 0
        self.inode = os.fstat(self.file.fileno()).st_ino

    def _open(self) -> Any:
        if self.path == "-":
            return open(0, "rb", buffering=0, closefd=False)
        try:
            # O_NONBLOCK: opening a pipe that nobody writes to must not wait.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise OddrankError(f"{self.path} is no regular file: {_ADVICE}")
            file = open(descriptor, "rb", buffering=0)  # noqa: SIM115
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            return gzip.GzipFile(fileobj=file) if packed else file
        except OSError as error:
            raise OddrankError(f"cannot read {self.path}: {error.strerror}; {_ADVICE}") from error

    def read(self, buffer: bytearray) -> int:
        """Fills the buffer; returns how many bytes came, 0 at the end of what is there."""
        try:
            count = self.file.readinto(buffer)
        except (OSError, EOFError, zlib.error) as error:
            raise OddrankError(f"cannot read {self.path}: {error}; {_ADVICE}") from error
        self.position += count or 0
        return count or 0

    def has_changed(self) -> bool:
        """Returns whether another file has its name now, or it was cut off."""
        try:
            now = os.stat(self.path)
        except OSError:
            return False  # between two files: the next look finds the new one
        shorter = now.st_size < self.position and not isinstance(self.file, gzip.GzipFile)
        return now.st_ino != self.inode or shorter

    def open_again(self) -> None:
        """Opens the file that has its name now, at its beginning."""
        old = self.file
        self.file, self.position = self._open(), 0
        self.inode = os.fstat(self.file.fileno()).st_ino
        old.close()

    @property
    def written_ns(self) -> int:
        """When it was last written: lines without a year are of the year before that."""
        return time.time_ns() if self.path == "-" else os.fstat(self.file.fileno()).st_mtime_ns


class Logs:
    """The logs of one training and what was found in them: `job`, a `_core.Metrics`."""

    def __init__(self, paths: Sequence[str], *, follow: bool = False, csv: bool = False) -> None:
        if follow and "-" in paths:
            raise OddrankError("--follow reads files: stdin can't be looked at again and again")
        if len(paths) > _MOST_FILES:
            raise OddrankError(f"{len(paths)} logs are too many: give at most {_MOST_FILES}")
        self.logs = [Log(path) for path in paths]
        self.job = _native.core().Metrics([log.written_ns for log in self.logs], csv=csv)
        self._buffer = bytearray(_CHUNK)

    def _feed(self, number: int) -> int:
        count = self.logs[number].read(self._buffer)
        if count:
            self.job.feed(number, memoryview(self._buffer)[:count])
        return count

    def read_all(self) -> Iterator[None]:
        """Reads all logs to their ends. Yields after each chunk, and at the end."""
        while (number := self.job.wanted()) >= 0:
            if not self._feed(number):
                self.job.end(number)
            yield
        for number, log in enumerate(self.logs):  # rows of the others are not needed for order
            while self._feed(number):
                yield
            if log.path != "-":
                self.job.end(number)
        self.job.flush()
        yield

    def follow(self, seconds: float) -> Iterator[None]:
        """Reads what is there, then what is appended. Yields after each look with news."""
        yield from self.read_all()
        deadline = time.monotonic() + seconds
        heard = time.monotonic()
        while time.monotonic() < deadline:
            came = 0
            for number, log in enumerate(self.logs):
                while count := self._feed(number):
                    came += count
                if log.has_changed():
                    while self._feed(number):  # what was written before it got another name
                        pass
                    with suppress(OddrankError):  # it has gone again: the next look finds it
                        log.open_again()
                    self.job.end(number)
                    came += 1
            if came:
                heard = time.monotonic()
                self.job.flush()
            else:
                self.job.silence(time.monotonic() - heard)
                time.sleep(min(_POLL, max(0.0, deadline - time.monotonic())))
            yield
