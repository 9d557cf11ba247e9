"""TCP connections between nodes: the ways to connect by, where each node listens, the attempts.

A way is an interface that a job may use. Many places are tried at once; a letter for each says
whether a token came back.
"""

import base64
import errno
import fcntl
import os
import socket
import socketserver
import struct
import threading
import time
import zlib
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict

from oddrank.machine import is_allowed
from oddrank.selftest import reach_matrix

RENDEZVOUS = "rendezvous"
NCCL, GLOO = "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"
# Interfaces per variable: further rails are alike.
_MOST_INTERFACES = 4
_SIOCGIFADDR = 0x8915
_ADDRESS, _RECORD = 16, 18

Place = tuple[str, int] | None  # (numeric address, port); None: the node has no such way


class Way(TypedDict):
    """Where a node listens on one of its interfaces."""

    interface: str
    address: str
    port: int


class Listening(TypedDict):
    """A node's result of stage listen.

    failed: address -> why it can't be listened at. asked: the variables that name interfaces.
    ephemeral: the kernel's range of ports.
    """

    ways: dict[str, Way]
    failed: dict[str, str]
    asked: dict[str, str]
    interfaces: list[str]
    ephemeral: str | None


def addresses(inet6: Path = Path("/proc/net/if_inet6")) -> dict[str, str]:
    """Returns interface -> its first IPv4 address, else its first global IPv6 address."""
    found: dict[str, str] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has no IPv4 address
                asked = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()))
                found[name] = socket.inet_ntoa(asked[20:24])
    with suppress(OSError):
        for line in inet6.read_text(encoding="ascii", errors="replace").splitlines():
            digits, _, _, scope, _, name = line.split()
            if int(scope, 16) == 0:  # a link-local one needs more than the address
                text = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))
                found.setdefault(name, text)
    return found


def matching(variable: str, value: str, names: Sequence[str]) -> list[str]:
    """Returns the interfaces that a variable allows, as NCCL or gloo (whole names) read it."""
    if variable == NCCL:
        listed = names if len(value) > 1 else ()  # NCCL ignores a single character
        return [name for name in listed if is_allowed(name, value)][:_MOST_INTERFACES]
    asked = {part.partition(":")[0].strip() for part in value.split(",")}
    return [name for name in names if name in asked][:_MOST_INTERFACES]


def ways(
    towards: str, known: Mapping[str, str], environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Returns way -> interface. towards: the interface that leads to the root, "" if unknown."""
    found = {RENDEZVOUS: towards} if towards in known else {}
    for variable in (NCCL, GLOO):
        value = environ.get(variable, "")
        for number, name in enumerate(matching(variable, value, [*known]), 1):
            found[variable if number == 1 else f"{variable} {number}"] = name
    return found


def pack(places: Sequence[Sequence[Place]]) -> str:
    """Packs every node's places into a text short enough for a plan: 3 to 5 bytes each."""
    records = []
    for address, port in (place or ("::", 0) for way in places for place in way):
        text = address if ":" in address else f"::ffff:{address}"
        records.append(socket.inet_pton(socket.AF_INET6, text) + port.to_bytes(2, "big"))
    columns = bytes(record[i] for i in range(_RECORD) for record in records)
    return base64.b85encode(zlib.compress(columns, 9)).decode()


def unpack(text: str, nodes: int) -> list[list[Place]]:
    columns = zlib.decompress(base64.b85decode(text))
    count, places = len(columns) // _RECORD, list[Place]()
    for record in (columns[number::count] for number in range(count)):
        address = socket.inet_ntop(socket.AF_INET6, record[:_ADDRESS]).removeprefix("::ffff:")
        port = int.from_bytes(record[_ADDRESS:], "big")
        places.append((address, port) if port else None)
    return [places[first : first + nodes] for first in range(0, count, nodes)]


# The kernel sends the second SYN after 1 s, the third after 3 s: one of them may get lost.
SECONDS = 3.0
_AT_ONCE = 128
_LETTERS = {
    errno.ECONNREFUSED: reach_matrix.REFUSED,
    errno.ETIMEDOUT: reach_matrix.NO_ANSWER,
    errno.EHOSTUNREACH: reach_matrix.UNREACHABLE,
    errno.ENETUNREACH: reach_matrix.UNREACHABLE,
    errno.ECONNRESET: reach_matrix.SILENT,
    errno.EPIPE: reach_matrix.SILENT,
}
# Errors of this process, not of the network.
_OWN_WANT = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL}

TOKEN = 16  # bytes of an attempt's token
_NO_DESCRIPTOR = 0.05  # seconds until the next accept() if no descriptor is free


def attempts(places: Sequence[Place], seconds: float = SECONDS) -> tuple[str, dict[str, str]]:
    """Tries all places. Returns a letter for each, in order, and letter -> the kernel's text.

    Quick if all answer, else up to twice `seconds` per 128 places. A process that was paused looks
    once more before it gives up, since the kernel's poll does.
    """
    letters, errors = [reach_matrix.NOT_TRIED] * len(places), dict[str, str]()
    left = deque((number, place) for number, place in enumerate(places) if place is not None)

    def work() -> None:
        while True:
            try:
                number, place = left.popleft()
            except IndexError:
                return
            letters[number] = _try(place, seconds, errors)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(_AT_ONCE, len(left)))]
    with suppress(RuntimeError):  # no further thread may be started
        for thread in threads:
            thread.start()
    work()
    for thread in threads:
        if thread.ident is not None:
            thread.join()
    return "".join(letters), errors


def _try(place: tuple[str, int], seconds: float, errors: dict[str, str]) -> str:
    """Connects, sends a token and waits for it. Returns the letter of the result."""
    token, got, late = os.urandom(TOKEN), b"", reach_matrix.NO_ANSWER
    try:
        with socket.socket(socket.AF_INET6 if ":" in place[0] else socket.AF_INET) as connection:
            connection.settimeout(seconds)
            connection.connect(place)
            late = reach_matrix.SILENT
            connection.sendall(token)
            while len(got) < TOKEN and (part := connection.recv(TOKEN)):
                got += part
    except TimeoutError as error:
        if error.errno is None:  # ours, and not the kernel's
            return late
        return _failed(error, errors)
    except OSError as error:
        return _failed(error, errors)
    return reach_matrix.CONNECTED if got == token else reach_matrix.SILENT


def _failed(error: OSError, errors: dict[str, str]) -> str:
    code = error.errno or 0
    letter = reach_matrix.NOT_TRIED if code in _OWN_WANT else _LETTERS.get(code, reach_matrix.OTHER)
    errors.setdefault(letter, os.strerror(code))
    return letter


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.settimeout(2 * SECONDS)  # foreign connections may stay open
        with suppress(OSError):  # the other end has gone
            while data := self.request.recv(TOKEN):
                self.request.sendall(data)


class _Listener(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address: str) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, 0), _Echo)

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError:
            time.sleep(_NO_DESCRIPTOR)  # it stays readable meanwhile
            raise

    def handle_error(self, request: Any, client_address: Any) -> None:
        """No thread could be started: the other end sees no answer."""

    def serve(self, seconds: float) -> None:
        end = threading.Timer(seconds, self.shutdown)
        end.daemon = True
        end.start()
        with self:
            self.serve_forever()


class Listeners:
    """Listens at an ephemeral port on each address, in threads, for so many seconds.

    Not in the stages: they end at different times on different nodes, and a node that has made its
    own attempts must still answer other nodes' attempts.
    """

    def __init__(self, addresses: Iterable[str], seconds: float) -> None:
        """Puts the addresses that can't be listened at into `failed`, with the error's text."""
        self.ports: dict[str, int] = {}
        self.failed: dict[str, str] = {}
        for address in addresses:
            try:
                listener = _Listener(address)
            except OSError as error:
                self.failed[address] = error.strerror or str(error)
                continue
            self.ports[address] = int(listener.server_address[1])
            serve = threading.Thread(target=listener.serve, args=(seconds,), daemon=True)
            serve.start()
