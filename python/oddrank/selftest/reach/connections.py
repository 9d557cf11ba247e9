"""Connects to many places at once; a letter for each says whether a token came back."""

import errno
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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

# The kernel sends the second SYN after 1 s, the third after 3 s: one of them may get lost.
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
# Errors of this process, not of the network.
_OWN_WANT = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL}

# Bytes of an attempt's token.
TOKEN = 16
_BACKLOG = 256
_MOST = 512
# Seconds until the next accept() if no descriptor is free.
_NO_DESCRIPTOR = 0.05


@dataclass
class _Attempt:
    number: int
    end: float
    token: bytes
    connected: bool = False
    got: bytes = b""


class Attempts:
    """`letters`: one for each place, in order. `errors`: letter -> the kernel's error text."""

    def __init__(self, places: Sequence[Place], seconds: float = SECONDS) -> None:
        """Makes all attempts: quick if all answer, else up to twice `seconds` per 128 places.

        An attempt fails only if it is checked after its end: this process may have been paused.
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


class Listeners:
    """Listens at an ephemeral port on each address, in a thread, for so many seconds.

    Not in the stages: they end at different times on different nodes, and a node that has made its
    own attempts must still answer those of others.
    """

    def __init__(self, addresses: Iterable[str], seconds: float) -> None:
        """Puts the addresses that can't be listened at into `failed`, with the error's text."""
        self.ports: dict[str, int] = {}
        self.failed: dict[str, str] = {}
        self._end = time.monotonic() + seconds
        self._selector = selectors.DefaultSelector()
        for address in addresses:
            try:
                self.ports[address] = self._listen(address)
            except OSError as error:
                self.failed[address] = error.strerror or str(error)
        threading.Thread(target=self._serve, name="oddrank-reach", daemon=True).start()

    def _listen(self, address: str) -> int:
        listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        try:
            listener.bind((address, 0))
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, True)
        return int(listener.getsockname()[1])

    def _serve(self) -> None:
        while (left := self._end - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                assert isinstance(key.fileobj, socket.socket)
                try:
                    if key.data:
                        self._accept(key.fileobj)
                    else:
                        self._send_back(key.fileobj)
                except OSError as error:  # the other end has gone, or no descriptor is free
                    if not key.data:
                        self._drop(key.fileobj)
                    elif error.errno in (errno.EMFILE, errno.ENFILE):
                        time.sleep(_NO_DESCRIPTOR)  # the listener stays readable meanwhile
        for key in [*self._selector.get_map().values()]:
            assert isinstance(key.fileobj, socket.socket)
            self._drop(key.fileobj)
        self._selector.close()

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        if len(self._selector.get_map()) > _MOST:  # foreign connections that stay open
            connection.close()
            return
        connection.setblocking(False)
        self._selector.register(connection, selectors.EVENT_READ, False)

    def _send_back(self, connection: socket.socket) -> None:
        data = connection.recv(TOKEN)
        if data:
            connection.send(data)
        else:
            self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()
