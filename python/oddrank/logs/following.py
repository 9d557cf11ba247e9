"""Reads files while they grow: also those that are rotated or truncated meanwhile."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

_CHUNK = 1 << 20
_POLL = 0.2


class Follower:
    """Reads what was added to a file.

    A file that another one replaced (rotation) is read to its end first. One that is shorter than
    what was read begins anew: if it grows beyond that between two looks, this is not seen.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._at = 0
        self.restarts = 0
        """How often another file, or the same one from its beginning, took the place."""

    def begin(self, at: int) -> None:
        """Opens the file now, to be read from there on."""
        if self._open():
            assert self._file is not None
            self._at = self._file.seek(at)

    def read(self) -> Iterator[bytes]:
        """Yields what has come since the last call; b"" where a new file begins."""
        if self._file is None and not self._open():
            return
        while True:
            yield from self._rest()
            assert self._file is not None
            if os.fstat(self._file.fileno()).st_size < self._at:
                self._file.seek(0)
                self._at = 0
            elif self._is_replaced():
                yield from self._rest()  # what came before the new one was made
                self._file.close()
                self._file = None
                if not self._open():
                    return
            else:
                return
            self.restarts += 1
            yield b""

    def _rest(self) -> Iterator[bytes]:
        assert self._file is not None
        while chunk := self._file.read(_CHUNK):
            self._at += len(chunk)
            yield chunk

    def _open(self) -> bool:
        with suppress(OSError):
            self._file = open(self._path, "rb", buffering=0)  # noqa: SIM115 (read later)
            self._at = 0
        return self._file is not None

    def _is_replaced(self) -> bool:
        assert self._file is not None
        try:
            there = os.stat(self._path)
        except OSError:
            return False  # the new one is about to come
        return not os.path.samestat(there, os.fstat(self._file.fileno()))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def follow(
    followers: Sequence[Follower], seconds: float | None
) -> Iterator[tuple[int, bytes] | None]:
    """Yields (number of the file, what came), and None after each look at all of them.

    Ends after so many seconds, or by Ctrl-C or SIGTERM: what came until then can be judged.
    """
    end = None if seconds is None else time.monotonic() + seconds
    with until_signal() as told:
        while True:
            last = end is not None and time.monotonic() >= end
            for number, follower in enumerate(followers):
                for chunk in follower.read():
                    yield number, chunk
                    if told:
                        break
            yield None
            if last or told:
                return
            time.sleep(_POLL)


@contextmanager
def until_signal() -> Iterator[list[int]]:
    """Yields a list that gets the first signal to end; a second one works as ever.

    SIGTERM comes at the end of an allocation.
    """
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
