"""One rank as the parent knows it: its process, what it says and prints, and how it ends."""

import json
import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oddrank import job
from oddrank.run.marker.rank_process import MOST_TEXT
from oddrank.run.marker.warm import Forked

_CHUNK = 1 << 16
_MOST_CHUNKS = 16  # read at a time: others write too
_MOST_MESSAGES = 32 << 20
_HEAD = MOST_TEXT // 4
_TAIL = MOST_TEXT - _HEAD


class Fresh(subprocess.Popen[bytes]):
    """A rank's process with an interpreter of its own."""

    def peek(self) -> int | None:
        """Returns the exit code, negative for a signal; None while it runs. Keeps its pid."""
        try:
            seen = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # somebody else has reaped it
            return 0
        if seen is None:
            return None
        return seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status


class Captured:
    """What a rank wrote: the beginning and the end of it. live: each line is printed at once."""

    def __init__(self, live: str = "") -> None:
        self._head, self._tail = bytearray(), bytearray()
        self._count = 0
        self._live, self._line = live, bytearray()

    def add(self, data: bytes) -> None:
        self._count += len(data)
        room = _HEAD - len(self._head)
        self._head += data[: max(room, 0)]
        self._tail += data[max(room, 0) :]
        if len(self._tail) > 4 * _TAIL:
            del self._tail[:-_TAIL]
        if self._live:
            *lines, rest = (bytes(self._line) + data).split(b"\n")
            self._line = bytearray(rest[-MOST_TEXT:])
            for line in lines:
                print(f"[{self._live}] {line.decode(errors='replace')}", flush=True)

    def text(self) -> str:
        tail = bytes(self._tail[-_TAIL:])
        left_out = self._count - len(self._head) - len(tail)
        middle = f"\n... {left_out} bytes left out ...\n".encode() if left_out else b""
        return (bytes(self._head) + middle + tail).decode(errors="replace")


@dataclass
class Rank:
    """A rank. code: its exit status, negative for a signal; None while it runs.

    pipes: the descriptors from which its stdout and stderr are read; none if it has the terminal.
    """

    number: int
    process: Fresh | Forked
    channel: socket.socket
    out: Captured
    err: Captured
    pipes: dict[int, Captured]
    stacks: Path
    """The file for the stacks that it writes when it is asked for them."""
    phases: list[dict[str, Any]] = field(default_factory=list)
    """Its pytest's reports of setup, call and teardown, until the verdict is made."""
    after: list[dict[str, Any]] = field(default_factory=list)
    """Those that follow: mostly it lost a rank that could go on because of the verdict."""
    lost: dict[str, Any] | None = None
    """Why its pytest never ran the test."""
    left: dict[str, Any] | None = None
    """pytest.exit(), or KeyboardInterrupt, in the test."""
    warnings: list[dict[str, Any]] = field(default_factory=list)
    is_ready: bool = False
    """It can write its stacks."""
    begins: bool = False
    """It has imported what it needs, and begins the test with its fixtures."""
    debugs: bool = False
    """A person has a debugger in it."""
    holds: str = ""
    """The point at which it waits for the others."""
    passed: set[str] = field(default_factory=set)
    code: int | None = None
    ended: float | None = None
    """Unix time at which the parent noticed its end."""
    dump: str = ""
    """Its stacks when the verdict was made."""
    was_running: bool = False
    """Neither its end nor a point to wait at had come when the verdict was made."""
    _buffer: bytearray = field(default_factory=bytearray)
    _received: int = 0

    @property
    def has_failed(self) -> bool:
        return self.lost is not None or any(map(is_failure, self.phases))

    @property
    def has_died(self) -> bool:
        """It ended in a way that its pytest did not choose."""
        return self.code is not None and (self.code != 0 or "end" not in self.passed)

    def hear(self) -> bool:
        """Reads what it says. Returns whether more may come."""
        for _ in range(_MOST_CHUNKS):
            try:
                data = self.channel.recv(_CHUNK)
            except BlockingIOError:
                return True
            except OSError:
                data = b""
            if not data:
                self.ended = self.ended or time.time()
                return False
            self._received += len(data)
            if self._received > _MOST_MESSAGES:
                continue
            self._buffer += data
            *lines, rest = self._buffer.split(b"\n")
            self._buffer = bytearray(rest)
            for line in lines:
                with suppress(ValueError, KeyError, TypeError):  # the test wrote to our socket
                    self._heard(json.loads(line))
        return True

    def _heard(self, said: dict[str, Any]) -> None:
        kind = said["kind"]
        if kind == "ready":
            self.is_ready = True
        elif kind == "begins":
            self.begins = True
        elif kind == "debugs":
            self.debugs = True
        elif kind == "hold":
            self.holds = said["at"]
        elif kind == "phase":
            (self.after if self.was_running else self.phases).append(said)
        elif kind == "lost":
            self.lost = self.lost or said
        elif kind == "left":
            self.left = said
        elif kind == "warning":
            self.warnings.append(said)

    def release(self) -> None:
        """Lets it go on from the point at which it holds."""
        self.passed.add(self.holds)
        self.holds = ""
        with suppress(OSError):
            self.channel.send(b"\n")

    def look(self) -> None:
        """Notices its end. Does not reap it: its pid, its session's id, must not be reused yet."""
        code = self.process.peek()
        if code is None:
            return
        self.ended = self.ended or time.time()
        self.hear()
        self.code = code

    def ask_for_stacks(self, number: signal.Signals | int) -> None:
        with suppress(OSError):
            os.kill(self.process.pid, number)

    def cpu_ticks(self) -> int:
        """Returns the CPU time it has used; -1 if its main thread is about to use more."""
        if not (fields := job.stat_fields(self.process.pid)):
            return 0
        return -1 if fields[0] in "RD" else int(fields[11]) + int(fields[12])

    def close(self) -> None:
        """Reaps it, and closes its channel and pipes after a last look into them."""
        with suppress(subprocess.TimeoutExpired):  # in D state: the kernel keeps it
            self.process.wait(2.0)
        for pipe, captured in self.pipes.items():
            drain(pipe, captured)
            os.close(pipe)
        self.channel.close()


def is_failure(phase: dict[str, Any]) -> bool:
    """Returns whether a report is a failure of the rank itself.

    One without an exception says that an expected failure passed: only the parent can judge that.
    """
    return phase["outcome"] == "failed" and bool(phase["error"] or not phase["whole"])


def drain(pipe: int, captured: Captured) -> bool:
    """Reads what is in a pipe. Returns whether more may come."""
    for _ in range(_MOST_CHUNKS):
        try:
            data = os.read(pipe, _CHUNK)
        except BlockingIOError:
            return True
        if not data:
            return False
        captured.add(data)
    return True
