"""A second implementation of a guard's protocol (wire.hpp, messages.hpp), for tests of the hub."""

import hmac
import socket
import struct
import threading
from contextlib import suppress
from typing import Any

from oddrank import _native
from oddrank.control.address import listen_on
from oddrank.control.session import Root
from patience import PATIENCE

VERSION = 6
TOKEN = "a-secret"
NONCE = "nonce of a test"
HELLO, WELCOME, GO, END, STATE, RESULT, FAIL, PING, PONG = 1, 2, 4, 5, 6, 7, 8, 9, 10
REPORT, ROSTER, ASK_CLOCK, CLOCK, KNOCK, PROOF = 11, 12, 13, 14, 15, 16


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<I", len(data)) + data


def frame(kind: int, payload: bytes = b"") -> bytes:
    return struct.pack("<IB", len(payload) + 1, kind) + payload


def proof(role: str, token: str, root_nonce: str, nonce: str = NONCE) -> str:
    """Returns the proof as text, one character per byte: see `proof_text`. nonce: the guard's."""
    said = f"oddrank {role}|{nonce}|{root_nonce}".encode()
    return hmac.new(token.encode(), said, "sha256").digest().decode("latin-1")


def proof_text(value: str) -> bytes:
    return struct.pack("<I", len(value)) + value.encode("latin-1")


def knock(version: int = VERSION) -> bytes:
    return frame(KNOCK, struct.pack("<I", version) + text(NONCE))


def hello(
    proved: str, rank: int, world: int, *, node: int = 0, pid: int = 0, parting: str = ""
) -> bytes:
    numbers = (rank, world, rank, world, node, pid or 1000 + rank, 5, 60_000)
    body = proof_text(proved) + struct.pack("<6iQI", *numbers) + text(f"host{node}")
    return frame(HELLO, body + struct.pack("<i", 0) + text("") + text(parting))


def state(
    stage: int = 0, *, life: int = 0, report: int = 0, progress: int = 1, terminated: int = 0
) -> bytes:
    body = struct.pack("<Bii", life, 9 if life == 3 else 0, -1) + text("") + text("s") + text("")
    numbers = (stage, progress, False, False, terminated, 0, False, False, -1 if life == 0 else 0)
    return frame(STATE, body + struct.pack("<IQ??ii??qqQI", *numbers, -1, 0, report))


def result(stage_number: int, payload: bytes) -> bytes:
    return frame(RESULT, struct.pack("<I", stage_number) + payload)


def ask_clock(number: int) -> bytes:
    return frame(ASK_CLOCK, struct.pack("<I", number))


class Hub:
    """A hub of `world` ranks in this process, and the root that asks it."""

    def __init__(self, world: int, *, silence_ms: int = 60_000, heartbeat_ms: int = 0) -> None:
        core = _native.core()
        listener, self.port = listen_on(0)
        self.native = core.Hub(listener, world, TOKEN, "roothost", 120.0, heartbeat_ms, silence_ms)
        self.root = Root(self.native, world, 120.0)
        self.world = world

    def knock(self, rank: int, world: int = 0, **options: Any) -> "Peer":
        """Says hello as the guard of a rank."""
        return Peer(self.port).join(TOKEN, rank, world or self.world, **options)

    def join(self, rank: int, **options: Any) -> "Peer":
        """Says hello, and is welcome."""
        peer = self.knock(rank, **options)
        peer.expect(WELCOME)
        return peer

    def contacts(self) -> list[str]:
        return [state.contact for state in self.root.snapshot()]


class Peer:
    """One connection to a hub, or one that a guard has made."""

    def __init__(self, port: int, accepted: socket.socket | None = None) -> None:
        self.socket = accepted or socket.create_connection(("127.0.0.1", port))
        self.socket.settimeout(PATIENCE.limit)
        self.bytes = b""

    def join(self, token: str, rank: int, world: int, **options: Any) -> "Peer":
        """Knocks, checks the root's proof, and says hello."""
        answer = self.send(knock()).expect(PROOF)
        (size,) = struct.unpack_from("<I", answer)
        nonce = answer[4 : 4 + size].decode()
        assert answer[4 + size :] == proof_text(proof("root", token, nonce))
        return self.send(hello(proof("guard", token, nonce), rank, world, **options))

    def join_later(self, token: str, rank: int, world: int) -> "Peer":
        """Joins in a thread: a root without free files may not answer."""

        def join() -> None:
            with suppress(OSError, AssertionError):
                self.join(token, rank, world)

        threading.Thread(target=join, daemon=True).start()
        return self

    def send(self, data: bytes) -> "Peer":
        self.socket.sendall(data)
        return self

    def is_served(self) -> None:
        """Asserts that the hub answers."""
        self.send(frame(PING)).expect(PONG)

    def is_closed(self, *kinds: int, why: str = "") -> None:
        """Waits until the hub closes the connection; it may send frames of these kinds before."""
        while (got := self.receive()) is not None:
            assert got[0] in kinds, why

    def receive(self) -> tuple[int, bytes] | None:
        """Returns the next frame (kind, payload); None once the hub has closed the connection."""
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
        """Skips frames until one of `kind`; returns its payload."""
        while (got := self.receive()) is not None:
            if got[0] == kind:
                return got[1]
        raise AssertionError(f"the hub closed the connection instead of sending kind {kind}")
