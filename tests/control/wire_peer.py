"""A guard written a second time, from the description in wire.hpp: tests speak to a hub with it."""

import socket
import struct

VERSION = 2
HELLO, WELCOME, GO, END, STATE, RESULT, FAIL, PING, PONG, REPORT, ROSTER, ASK_CLOCK, CLOCK = (
    1,
    2,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    11,
    12,
    13,
    14,
)


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<I", len(data)) + data


def frame(kind: int, payload: bytes = b"") -> bytes:
    return struct.pack("<IB", len(payload) + 1, kind) + payload


def hello(
    token: str,
    rank: int,
    world: int,
    *,
    node: int = 0,
    version: int = VERSION,
    remaining_ms: int = 60_000,
    pid: int = 0,
) -> bytes:
    pid = pid or 1000 + rank
    body = struct.pack("<I", version) + text(token)
    body += struct.pack("<6iQI", rank, world, rank, world, node, pid, 5, remaining_ms)
    return frame(HELLO, body + text(f"host{node}"))


def state(
    stage_number: int = 0,
    *,
    life: int = 0,
    waiting: bool = False,
    report: int = 0,
    progress: int = 1,
    terminated: int = 0,
) -> bytes:
    body = struct.pack("<Bii", life, 9 if life == 3 else 0, -1) + text("") + text("s") + text("")
    body += struct.pack("<IQ??ii??qI", stage_number, progress, waiting, False, terminated, 0,
                        False, False, -1 if life == 0 else 0, report)  # fmt: skip
    return frame(STATE, body)


def result(stage_number: int, payload: bytes) -> bytes:
    return frame(RESULT, struct.pack("<I", stage_number) + payload)


class Peer:
    """One connection to a hub."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        self.bytes = b""

    def send(self, data: bytes) -> "Peer":
        self.socket.sendall(data)
        return self

    def receive(self) -> tuple[int, bytes] | None:
        """The next frame (kind, payload); None once the hub has closed the connection."""
        while True:
            if len(self.bytes) >= 5:
                length, kind = struct.unpack_from("<IB", self.bytes)
                if len(self.bytes) >= 4 + length:
                    payload, self.bytes = self.bytes[5 : 4 + length], self.bytes[4 + length :]
                    return kind, payload
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self.bytes += data

    def expect(self, kind: int) -> bytes:
        """The payload of the next frame of `kind`; others are skipped."""
        while (got := self.receive()) is not None:
            if got[0] == kind:
                return got[1]
        raise AssertionError(f"the hub closed the connection instead of sending kind {kind}")
