"""A worker's session with the root: start it before torch is imported."""

import contextlib
import ctypes
import gc
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from oddrank import _native
from oddrank.control.inject import Injector
from oddrank.control.laps import Laps
from oddrank.control.meeting_point import leave
from oddrank.control.root import Root
from oddrank.errors import OddrankError

# The judge's main flow ends by the deadline; the kernel ends it for certain this much later.
_LAST_SECONDS = 1.5
_PR_SET_NAME = 15
# Bytes of an exception's text: with the place behind it, it fits into a message of the guard's.
_MOST_SAID = 1000


@dataclass(frozen=True)
class Member:
    """Which rank this process is: the fields of Launch that the control plane needs."""

    rank: int
    local_rank: int
    world: int
    local_world: int
    node: int
    host: str


class SessionEnded(Exception):
    """The root has ended the run: leave with `exit_code`, soon (the guard waits 0.3 s)."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"the run has ended with exit code {exit_code}")
        self.exit_code = exit_code


class Session:
    """One per process. What says nothing of threads belongs to the main thread."""

    def __init__(
        self,
        worker: Any,
        address: str | None,
        known: bool,
        deadline: float,
        meeting_point: str = "",
        *,
        no_verdict: int = 1,
    ) -> None:
        self._worker = worker
        self._no_verdict = no_verdict
        self._address = address
        self._known = known
        self._meeting_point = meeting_point
        self._ends = time.monotonic() + deadline
        self._injector = Injector(())
        self._stage = "join"

    def address(self) -> str | None:
        """Rank 0: "ip,ip:port#token" to hand to all other ranks; None elsewhere."""
        return self._address

    @property
    def needs_address(self) -> bool:
        """Whether `connect` must be called: not on rank 0, nor with ODDRANK_CONTROL_ADDR."""
        return not self._known

    @property
    def guard(self) -> int:
        """The pid of this rank's guard."""
        return int(self._worker.guard)

    @property
    def stage(self) -> str:
        """The stage that this rank is in."""
        return self._stage

    def connect(self, address: str) -> None:
        """Hand the root's address to the guard. Any thread. OddrankError if it is malformed."""
        if not self._known:
            self._known = True
            leave(self._meeting_point, address)
            self._worker.send_address(address)

    def next(self) -> tuple[str, str]:
        """Wait for the root's next stage: (its name, the root's parameters for it).

        SessionEnded when the root has ended the run; OddrankError when this rank's guard is gone
        or the deadline has passed.
        """
        what, number, stage, parameters, code = self._worker.wait(self._left())
        if what == "end":
            raise SessionEnded(code)
        if what == "lost":
            raise OddrankError(f"this rank's guard (pid {self.guard}) has ended: the run is over")
        if what == "timeout":
            raise OddrankError("the root said nothing until the deadline")
        self._worker.mark_stage(number, stage)
        self._stage = stage
        self._injector.enter(stage)
        return stage, parameters

    def enter(self, stage: str) -> str:
        """Like `next` for ranks that know the order of stages; returns the parameters."""
        came, parameters = self.next()
        if came != stage:
            raise OddrankError(f"this rank is at stage {stage!r}, the root at {came!r}")
        return parameters

    def progress(self, step: str, *, waiting: bool = False) -> None:
        """Mark what this rank does now; `waiting`: inside a collective. About 100 ns native."""
        self._worker.mark_step(step, waiting)
        self._injector.progress(step)

    def laps(self, capacity: int) -> Laps:
        """Stamps for up to `capacity` collectives, 16 bytes each, taken now.

        OddrankError where the capacity is not 1 to 67,108,864.
        """
        laps: Laps = self._worker.laps(capacity)
        return self._injector.laps(laps)

    def sync_clock(self, seconds: float = 5.0, *, shortcut: bool = True) -> tuple[int, int]:
        """How far the root's CLOCK_MONOTONIC is from this rank's: (offset, error), nanoseconds.

        This rank's time plus `offset` is the root's; the true offset lies within `error` of it:
        half the shortest round trip of up to 16 exchanges (F. Cristian, "Probabilistic clock
        synchronization", 1989), made in 10 ms or, by many ranks at once, in `seconds` at most.
        (0, 0) on the root's own host, where `shortcut=False` measures all the same. Clocks of two
        hosts drift apart, by up to 0.1 ms a second: ask again before each block of laps.
        OddrankError where the root cannot be reached by then.
        """
        offset, error = self._worker.sync_clock(max(0.0, min(seconds, self._left())), shortcut)
        return offset, error

    def _left(self) -> float:
        return self._ends + _LAST_SECONDS - time.monotonic()

    def wait_in_join(self, step: str) -> None:
        """Mark that this rank waits for the others to come; from any thread, nothing later on."""
        self._worker.mark_waiting_in_join(step)

    def publish(self, payload: bytes) -> None:
        """This rank's result of the stage: once, at most 64 MiB."""
        self._worker.publish(payload)

    def fail(self, text: str, at: str = "") -> None:
        """Instead of publish: this stage raised. One line: type and message; at: file:line."""
        line = _cut(" ".join(text.split()))
        self._worker.fail(f"{line}\n{_cut(at)}" if at else line)

    def injected(self, kind: str) -> bool:
        """Whether a test asks the current stage for a fault of `kind` (see inject.py)."""
        return self._injector.has(kind)

    def said(self, measured: Any) -> Any:
        """What this rank says that it has measured in the current stage: tests falsify it."""
        return self._injector.said(measured)

    def finish(self) -> int:
        """Wait for the root's last word and return its exit code; see `start` if it never comes."""
        try:
            while True:
                self.next()
        except SessionEnded as ended:
            return ended.exit_code
        except OddrankError as error:
            print(f"oddrank: {error}", file=sys.stderr)
            return self._no_verdict


def _cut(text: str) -> str:
    return text.encode()[:_MOST_SAID].decode(errors="ignore")


def start(
    member: Member,
    *,
    deadline: float,
    judge: Callable[[Root], int],
    join_seconds: float | None = None,
    meeting_point: str = "",
    no_verdict: int = 1,
) -> Session:
    """Fork this rank's guard, and on rank 0 the judge; return the worker's session.

    `deadline`: seconds from now for the whole run; all processes are gone 2 s later at the latest.
    `join_seconds`: after which a guard that has not reached the root gives up (default: deadline).
    `meeting_point`: see meeting_point.py; "" where the ranks of a host can't agree on one.
    `no_verdict`: the exit code of a rank that hears none.
    Call before torch is imported and before threads exist. From then on SIGTERM and SIGINT are
    events of the session and end nothing by themselves.
    """
    injector = Injector.of(member.rank)
    core = _native.core()
    given = os.environ.get("ODDRANK_CONTROL_ADDR", "")
    address: str | None = None
    guards_address = given
    if given:
        core.control_parse_address(given)  # here, while there is somebody to tell
    if member.rank == 0:
        listener, address, guards_address = _listen(core, given)
        leave(meeting_point, address)
        sys.stdout.flush()
        sys.stderr.flush()
        if os.fork() == 0:
            _be_judge(listener, address, member, deadline, judge)
        os.close(listener)
    worker = core.start_worker(
        member.rank,
        member.world,
        member.local_rank,
        member.local_world,
        member.node,
        member.host,
        guards_address,
        meeting_point,
        member.rank == 0,
        deadline,
        min(deadline, join_seconds if join_seconds is not None else deadline),
        no_verdict,
    )
    session = Session(
        worker, address, bool(guards_address), deadline, meeting_point, no_verdict=no_verdict
    )
    session._injector = injector
    injector.enter("join")
    return session


def _listen(core: Any, given: str) -> tuple[int, str, str]:
    """(listening descriptor, address for the others, address for rank 0's own guard)."""
    if given:
        hosts, port, token = core.control_parse_address(given)
        listener, _ = core.control_listen(port)
    else:
        listener, port = core.control_listen(0)
        hosts = core.control_interfaces(os.environ.get("MASTER_ADDR", ""))
        token = core.control_token()
    own = ",".join(["127.0.0.1", *hosts])
    return listener, f"{','.join(hosts)}:{port}#{token}", f"{own}:{port}#{token}"


def _be_judge(
    listener: int, address: str, member: Member, deadline: float, judge: Callable[[Root], int]
) -> NoReturn:
    """The judge is a process of its own: rank 0's worker may hang or die like any other."""
    core = _native.core()
    code = 2
    try:
        os.setsid()
        core.ignore_launchers_signals()
        ctypes.CDLL(None).prctl(_PR_SET_NAME, b"oddrank-judge", 0, 0, 0)
        core.kill_this_process_in(deadline + _LAST_SECONDS)
        gc.disable()  # of 10,000 ranks' results it would go through millions, and find nothing
        token = core.control_parse_address(address)[2]
        host = member.host or socket.gethostname()
        hub = core.Hub(listener, member.world, token, host, deadline)
        code = _judge(Root(hub, member.world, deadline), judge)
    except BaseException:
        traceback.print_exc()
    _leave(code)


def _judge(root: Root, judge: Callable[[Root], int]) -> int:
    """Run `judge`; whatever happens in it, the ranks are told to end."""
    code = 2
    try:
        code = judge(root)
    except OddrankError as error:
        code = error.exit_code
        print(f"oddrank: {error}", file=sys.stderr)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except Exception:
        traceback.print_exc()
    root.end(code)
    return code


def _leave(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)  # the judge is a copy of the worker: none of its exit handlers are ours
