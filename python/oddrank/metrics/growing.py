"""Reads logs: once from end to end, or as they grow, are rotated or cut off."""

import codecs
import gzip
import os
import shlex
import stat
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from oddrank import _native
from oddrank.errors import OddrankError

_CHUNK = 1 << 20
_HEAD = 4096
_MOST_FILES = 256
_MOST_NOTES = 8
_POLL = 0.2  # seconds between two looks at logs that grow
_ADVICE = "give the logs of one training"
_GZIP = b"\x1f\x8b"
# The bytes of texts: no control characters but those of lines, colours and progress bars.
_TEXT = bytes([7, 8, 9, 10, 11, 12, 13, 27, *range(32, 256)])
# The first bytes of other packed files -> the command that unpacks them.
_PACKED = {b"\xfd7zXZ": "xz -dc", b"\x28\xb5\x2f\xfd": "zstd -dc", b"BZh": "bzip2 -dc",
           b"PK\x03\x04": "unzip -p"}  # fmt: skip


class Log:
    """A log, open. position: bytes read from it. wrong: why it can't be read; "" if it can."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = "stdin" if path == "-" else path or "''"
        self.broken = ""
        """Why the rest of a packed log can't be read."""
        self.is_damaged = False
        """What was read before that may be garbage."""
        self.file = self._open()
        self.position = 0
        self.inode = os.fstat(self.file.fileno()).st_ino

    def _open(self) -> Any:
        try:
            file = open(self._descriptor(), "rb", closefd=self.path != "-")  # noqa: SIM115
            head = file.peek(_HEAD)[:_HEAD]
        except OSError as error:
            raise OddrankError(f"cannot read {self.name}: {error.strerror}; {_ADVICE}") from error
        packed = head.startswith(_GZIP)
        self.is_misnamed = bool(head) and not packed and self.path.endswith(".gz")
        opened = gzip.GzipFile(fileobj=file) if packed else file
        self.wrong = "" if packed else self._what_is_wrong(head)
        return opened

    def _descriptor(self) -> int:
        if self.path == "-":
            return 0
        # O_NONBLOCK: opening a pipe that nobody writes to must not wait.
        descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISFIFO(mode):
            os.close(descriptor)
            if stat.S_ISDIR(mode):
                some = shlex.quote(self.path.rstrip("/")) + "/*.log"
                raise OddrankError(f"{self.name} is a folder: give the logs in it, as {some}")
            raise OddrankError(f"{self.name} is neither file nor pipe: {_ADVICE}")
        os.set_blocking(descriptor, True)
        return descriptor

    def _what_is_wrong(self, head: bytes) -> str:
        """Returns what a file is that is no log, and what to do; "" for a text."""
        quoted = shlex.quote(self.path)
        if not head:
            return f"{self.name} is empty: give a log with lines"
        for magic, command in _PACKED.items():
            if head.startswith(magic):
                return f"{self.name} is packed: {command} {quoted} | oddrank metrics -"
        if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return f"{self.name} is UTF-16: iconv -f UTF-16 -t UTF-8 {quoted} | oddrank metrics -"
        # A log that was cut off while its writer stayed where it was begins with a hole of zeros.
        body = head.lstrip(b"\0")
        is_hole = not body and len(head) == _HEAD
        if not is_hole and len(body.translate(None, _TEXT)) * 50 >= len(body):
            return f"{self.name} is binary: give logs, which are text"
        return ""

    def is_filled(self) -> bool:
        return os.fstat(self.file.fileno()).st_size > 0

    @property
    def is_pipe(self) -> bool:
        return not stat.S_ISREG(os.fstat(self.file.fileno()).st_mode)

    def read(self, buffer: bytearray) -> int:
        """Fills the buffer; returns how many bytes came, 0 at the end of what is there."""
        if self.broken:
            return 0
        try:
            count = self.file.readinto1(buffer)
        except (OSError, EOFError, zlib.error) as error:
            if not isinstance(self.file, gzip.GzipFile):
                raise OddrankError(f"cannot read {self.name}: {error}; {_ADVICE}") from error
            # A log that is cut off is right as far as it goes. Where bytes are wrong, what was
            # unpacked since may be anything: only the end of the file tells.
            self.is_damaged = not isinstance(error, EOFError)
            self.broken = f"{self.name} was read only in part: {error}"
            if self.is_damaged:
                self.broken = f"{self.name} is damaged, nothing in it is judged: {error}"
            return 0
        self.position += count
        return int(count)

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
        self.file, self.position, self.broken = self._open(), 0, ""
        self.inode = os.fstat(self.file.fileno()).st_ino
        old.close()

    @property
    def written_ns(self) -> int:
        """When it was last written: lines without a year are of the year before that."""
        return time.time_ns() if self.is_pipe else os.fstat(self.file.fileno()).st_mtime_ns


class Logs:
    """The logs of one training and what was found in them: `job`, a `_core.Metrics`.

    paths: those that are read. notes: what users should know of the others. missing: those notes
    that say what was not read. is_damaged: what was read can't be trusted.
    """

    def __init__(
        self, paths: Sequence[str], *, follow: bool = False, csv: bool = False, pattern: str = ""
    ) -> None:
        if paths.count("-") > 1:
            raise OddrankError("stdin is one log: give - once")
        if follow and "-" in paths:
            raise OddrankError("--follow reads files: stdin can't be looked at again and again")
        if len(paths) > _MOST_FILES:
            raise OddrankError(f"{len(paths)} logs are too many: give at most {_MOST_FILES}")
        every = [Log(path) for path in paths]
        if follow and (pipe := next((log for log in every if log.is_pipe), None)):
            raise OddrankError(f"--follow reads files, and {pipe.name} is a pipe: leave it out")
        # A log that is followed may be empty: the job has not begun.
        self.logs = [log for log in every if not log.wrong or (follow and not log.is_filled())]
        self.notes = [log.wrong for log in every if log not in self.logs]
        if not self.logs:
            more = len(self.notes) - _MOST_NOTES
            last = f"; and {more} more files that are no logs" if more > 0 else ""
            raise OddrankError("; ".join(self.notes[:_MOST_NOTES]) + last)
        self.notes = [f"left out: {note}" for note in self.notes]
        self.missing = list(self.notes)
        self.is_damaged = False
        self.notes += [f"{log.name} is not packed by gzip: it is read as text"
                       for log in self.logs if log.is_misnamed]  # fmt: skip
        self.paths = [log.path for log in self.logs]
        self._follows = follow
        self.job = _native.core().Metrics(
            [log.written_ns for log in self.logs], csv=csv, pattern=pattern
        )
        self._buffer = bytearray(_CHUNK)

    def _feed(self, number: int) -> int:
        count = self.logs[number].read(self._buffer)
        if count:
            self.job.feed(number, memoryview(self._buffer)[:count])
        return count

    def read_all(self) -> Iterator[None]:
        """Reads all logs to their ends. Yields after each chunk, and at the end."""
        # The last line of a log that grows may go on.
        end = self.job.pause if self._follows else self.job.end
        while (number := self.job.wanted()) >= 0:
            if not self._feed(number):
                end(number)
            yield
        for number in range(len(self.logs)):  # rows of the others are not needed for order
            while self._feed(number):
                yield
            end(number)
        self.job.flush()
        yield

    def finish(self) -> None:
        """Reads last lines that have no end. Call it once, after the reading."""
        for number, log in enumerate(self.logs):
            self.job.end(number)
            if log.broken and log.broken not in self.notes:
                self.notes.append(log.broken)
                self.missing.append(log.broken)
                self.is_damaged |= log.is_damaged
        self.job.flush()

    def follow(self, seconds: float, told: Sequence[int]) -> Iterator[None]:
        """Reads what is there, then what is appended. Yields after each look.

        Ends after so many seconds, or once a signal has told so: what has come until then is read.
        """
        for _ in self.read_all():
            yield
            if told:
                break
        deadline = time.monotonic() + seconds
        heard = time.monotonic()
        last = False
        while not last:
            last = bool(told) or time.monotonic() >= deadline
            came = 0
            for number, log in enumerate(self.logs):
                while count := self._feed(number):
                    came += count
                    if told:  # it may grow faster than it is read
                        break
                if log.has_changed():
                    while self._feed(number):  # what was written before it got another name
                        pass
                    with suppress(OddrankError):  # it has gone again: the next look finds it
                        log.open_again()
                        self.job.replace(number)
                        came += 1
            if came:
                heard = time.monotonic()
                self.job.flush()
            else:
                self.job.silence(time.monotonic() - heard)
                if not last:
                    time.sleep(min(_POLL, max(0.0, deadline - time.monotonic())))
            yield
