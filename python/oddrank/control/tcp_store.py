"""Sets and reads a key of torch's TCPStore without torch, whose import takes seconds.

The wire format is that of c10d's TCPStoreBackend.hpp, the same for both of its servers and in all
torches that oddrank supports: a client says VALIDATE and a number, then sends queries. A text is
its length as 64 bits, then its bytes; keys begin with "/".
"""

import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress

_VALIDATE, _SET, _GET, _CHECK, _WAIT = 0, 1, 3, 5, 6
_MAGIC = 0x3C85F7CE
_DONE = b"\0"  # the answer of CHECK and WAIT: the key is there
_CONNECT_SECONDS = 5.0
# Then it is asked anew: a store whose host was lost says nothing.
_ANSWER_SECONDS = 60.0
_FIRST_PAUSE, _MOST_PAUSE = 0.1, 1.0
_MOST_BYTES = 4096


def put(master: tuple[str, int], key: str, value: str, seconds: float) -> None:
    """Sets the key once there is a store.

    Raises:
        TimeoutError: None has taken it within `seconds`.

    """
    name = _text(f"/{key}")
    put = struct.pack("<B", _SET) + name + _text(value)
    _ask(master, put + struct.pack("<BQ", _CHECK, 1) + name, lambda link: "", seconds)


def get(master: tuple[str, int], key: str, seconds: float) -> str:
    """Returns the key's value once somebody has set it.

    Raises:
        TimeoutError: There was none within `seconds`.

    """
    name = _text(f"/{key}")

    def read(link: socket.socket) -> str:
        link.sendall(struct.pack("<B", _GET) + name)
        (size,) = struct.unpack("<Q", _bytes(link, 8))
        return _bytes(link, size).decode()

    return _ask(master, struct.pack("<BQ", _WAIT, 1) + name, read, seconds)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _ask(
    master: tuple[str, int], query: bytes, then: Callable[[socket.socket], str], seconds: float
) -> str:
    """Sends a query until it is answered; returns what `then` reads behind the answer."""
    end, pause = time.monotonic() + seconds, _FIRST_PAUSE
    while (left := end - time.monotonic()) > 0:
        with suppress(OSError, ValueError):  # not there yet, gone, or no store
            link = socket.create_connection(master, min(_CONNECT_SECONDS, left))
            with link:
                link.settimeout(min(_ANSWER_SECONDS, left))
                link.sendall(struct.pack("<BI", _VALIDATE, _MAGIC) + query)
                if link.recv(1) == _DONE:
                    return then(link)
        time.sleep(pause)
        pause = min(2 * pause, _MOST_PAUSE)
    raise TimeoutError(f"no answer from torch's store at {master[0]}:{master[1]}")


def _bytes(link: socket.socket, count: int) -> bytes:
    """Returns so many bytes of the connection. If they come in pieces, the store is asked anew."""
    data = link.recv(count) if count <= _MOST_BYTES else b""
    if len(data) < count:
        raise ValueError("no value of a store")
    return data
