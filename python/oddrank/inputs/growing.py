"""Reads files while they grow: also those that are rotated or truncated meanwhile."""

import math
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from oddrank.errors import OddrankError
from oddrank.inputs import HEAD, files

_CHUNK = 1 << 20
_KNOWN = 256  # bytes that identify the file that was read
_POLL = 0.2  # seconds between two checks


class Follower:
    """Reads the growth of a file.

    A file that another one replaced (rotation) is read to its end first. One that was truncated is
    read from its beginning: its last bytes differ from the ones read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._file = -1
        self._at = 0
        self._last = b""

    def read(self) -> Iterator[bytes]:
        """Yields the text added since the last call; b"" where a new file begins."""
        while self._file >= 0 or self._open():
            yield from self._rest()
            if not self._is_replaced():
                return
            yield from self._rest()  # written before the new one was made
            self.close()
            if self._open():
                yield b""

    def _rest(self) -> Iterator[bytes]:
        while True:
            known = len(self._last)
            block = os.pread(self._file, _CHUNK + known, self._at - known)
            if not block.startswith(self._last) and block[:known] != bytes(known):
                self._at, self._last = 0, b""
                yield b""
            elif len(block) == known:
                return
            else:  # if its writer keeps its offset, a truncated file is zeros up to there
                self._at += len(block) - known
                self._last = block[-_KNOWN:]
                yield block[known:]

    def _open(self) -> bool:
        self._at, self._last = 0, b""
        with suppress(OSError):
            self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        return self._file >= 0

    def _is_replaced(self) -> bool:
        try:
            there = os.stat(self._path)
        except OSError:
            return False  # the new one is about to come
        return not os.path.samestat(there, os.fstat(self._file))

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


def check(paths: Sequence[str]) -> None:
    """Raises OddrankError for inputs that can't be followed: stdin, pipes, folders, UTF-16, ..."""
    for path in paths:
        is_text = os.path.isfile(path)
        with suppress(OSError):  # reported when it is read
            if is_text and os.path.getsize(path):
                with open(path, "rb") as file:
                    is_text = files.packing(file.read(HEAD)) is None
        if not is_text:
            raise OddrankError(
                f"--follow reads text files that grow, and {path!r} is none: leave it out"
            )


def follow(
    followers: Sequence[Follower], seconds: float | None, told: Sequence[int]
) -> Iterator[tuple[int, bytes] | None]:
    """Yields (number of the file, new text), and None after each pass over all files.
    Ends after so many seconds, or after a signal: text until then can be judged."""
    end = math.inf if seconds is None else time.monotonic() + seconds
    while True:
        last = time.monotonic() >= end
        for number, follower in enumerate(followers):
            for chunk in follower.read():
                yield number, chunk
                if told:  # it may grow faster than it is read
                    break
        yield None
        if last or told:
            return
        time.sleep(min(_POLL, max(0.0, end - time.monotonic())))


@contextmanager
def until_signal() -> Iterator[list[int]]:
    """Yields a list that gets the first signal to end; a second one works as ever.
    SIGTERM comes at the end of an allocation."""
    told: list[int] = []
    before: dict[int, Any] = {}

    def end(number: int, _: Any) -> None:
        told.append(number)
        restore()

    def restore() -> None:
        while before:
            number, handler = before.popitem()
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    if threading.current_thread() is threading.main_thread():  # others may not handle signals
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) != signal.SIG_IGN:  # as shells set it for `... &`
                before[number] = signal.signal(number, end)
    try:
        yield told
    finally:
        restore()
