"""Connects to many places at once, and sees whether a token comes back: one letter each."""

import errno
import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from oddrank.selftest.reach.listeners import TOKEN
from oddrank.selftest.reach.matrix import (
    CONNECTED,
    NO_ANSWER,
    NOT_TRIED,
    OTHER,
    REFUSED,
    SILENT,
    UNREACHABLE,
)
from oddrank.selftest.reach.ways import Place

# A second connect packet goes out after 1 s, a third after 3 s: one of them may get lost.
SECONDS = 3.0
_AT_ONCE = 128
_LETTERS = {
    errno.ECONNREFUSED: REFUSED,
    errno.ETIMEDOUT: NO_ANSWER,
    errno.EHOSTUNREACH: UNREACHABLE,
    errno.ENETUNREACH: UNREACHABLE,
    errno.ECONNRESET: SILENT,
    errno.EPIPE: SILENT,
}
# What this process lacks is nobody's firewall.
_OWN_WANT = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL}


@dataclass
class _Attempt:
    number: int
    end: float
    token: bytes
    connected: bool = False
    got: bytes = b""


class Attempts:
    """`letters`: one for each place, in order. `errors`: letter -> the kernel's word, once."""

    def __init__(self, places: Sequence[Place], seconds: float = SECONDS) -> None:
        """At once where all answer; else after `seconds`, at most twice that, for each 128 places.

        Only what was looked for after its end has failed: this process may have stood still.
        """
        self._letters = [NOT_TRIED] * len(places)
        self.errors: dict[str, str] = {}
        self._seconds = seconds
        self._selector = selectors.DefaultSelector()
        waiting = deque((n, place) for n, place in enumerate(places) if place is not None)
        while waiting or self._selector.get_map():
            while waiting and len(self._selector.get_map()) < _AT_ONCE:
                number, place = waiting.popleft()
                assert place is not None
                self._start(number, place)
            self._turn()
        self._selector.close()

    @property
    def letters(self) -> str:
        return "".join(self._letters)

    def _start(self, number: int, place: tuple[str, int]) -> None:
        attempt = _Attempt(number, time.monotonic() + self._seconds, os.urandom(TOKEN))
        try:
            connection = socket.socket(socket.AF_INET6 if ":" in place[0] else socket.AF_INET)
        except OSError as error:
            self._failed(attempt, error.errno or 0)
            return
        connection.setblocking(False)
        code = connection.connect_ex(place)
        if code in (0, errno.EINPROGRESS):
            self._selector.register(connection, selectors.EVENT_WRITE, attempt)
        else:
            connection.close()
            self._failed(attempt, code)

    def _turn(self) -> None:
        ends = [attempt.end for _, attempt in self._open()]
        if not ends:
            return
        looked = time.monotonic()
        for key, _ in self._selector.select(max(0.0, min(ends) - looked)):
            assert isinstance(key.fileobj, socket.socket)
            self._go_on(key.fileobj, key.data)
        for connection, attempt in self._open():
            if attempt.end <= looked:
                self._close(connection)
                self._letters[attempt.number] = SILENT if attempt.connected else NO_ANSWER

    def _go_on(self, connection: socket.socket, attempt: _Attempt) -> None:
        try:
            if not attempt.connected:
                code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code:
                    raise OSError(code, os.strerror(code))
                connection.send(attempt.token)
                attempt.connected = True
                attempt.end = time.monotonic() + self._seconds
                self._selector.modify(connection, selectors.EVENT_READ, attempt)
                return
            data = connection.recv(TOKEN)
        except OSError as error:
            self._close(connection)
            self._failed(attempt, error.errno or 0)
            return
        attempt.got += data
        if not data or len(attempt.got) >= TOKEN:
            self._close(connection)
            came = attempt.got == attempt.token
            self._letters[attempt.number] = CONNECTED if came else SILENT

    def _failed(self, attempt: _Attempt, code: int) -> None:
        letter = NOT_TRIED if code in _OWN_WANT else _LETTERS.get(code, OTHER)
        self._letters[attempt.number] = letter
        self.errors.setdefault(letter, os.strerror(code))

    def _open(self) -> list[tuple[socket.socket, _Attempt]]:
        return [(key.fileobj, key.data) for key in self._selector.get_map().values()]  # type: ignore[misc]

    def _close(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()
