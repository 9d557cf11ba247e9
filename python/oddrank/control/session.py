"""A worker's session with the root, and the judge's view of all ranks: waits have deadlines."""

import ctypes
import gc
import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn

from oddrank import _native
from oddrank.control.address import ADDRESS, leave_address, listen
from oddrank.control.stages import JOIN, NoFaults, OddClaim, RankState, StageRound, Timestamps
from oddrank.errors import OddrankError
from oddrank.launch import Launch

# The judge ends by the deadline; the kernel kills it this many seconds later.
_LAST_SECONDS = 1.5
_PR_SET_NAME = 15
# Bytes of an exception's text, and of its file:line: both fit into one message of the guard.
_MOST_SAID = 1000
_MOST_NOTE = 4000  # bytes of a note: a pipe takes a write of this size whole or not at all
# Stages end this long before the deadline (or 10 % of the run), for the verdict to be out by then.
VERDICT_SECONDS = 1.0
# Time for the guards to report their workers' states, once a stage is over without all results.
_REFRESH_SECONDS = 0.3
_END_SECONDS = 0.3
# Once a rank of another world has come, the others get so many seconds to come.
_OTHERS_SECONDS = 20.0


class Root:
    """The judge's view of all ranks, made by `start`; for its main thread only."""

    def __init__(self, hub: Any, world: int, deadline: float, notes: int = -1) -> None:
        """`deadline` in seconds from now, for all stages together.

        `notes`: a descriptor from which to read the notes that rank 0 finds in torch's store.
        """
        self._notes, self._unread = notes, b""
        self._unreached: dict[int, str] = {}
        self.world = world
        self._hub = hub
        self._reserve = min(VERDICT_SECONDS, deadline / 10)
        self._stage = JOIN
        self._number = 0
        self._stage_ends = 0.0
        self._claimed = 0.0  # when a rank of another world was first seen; 0: never
        self.ended = False

    def remaining(self) -> float:
        """Seconds that stages may still take: until shortly before the deadline of the run.

        The run's deadline is the earliest of all ranks that have joined.
        """
        return max(0.0, float(self._hub.remaining()) - self._reserve)

    @property
    def odd(self) -> tuple[OddClaim, ...]:
        """The first 16 processes that claimed a taken rank or another world size."""
        return tuple(OddClaim(*claim) for claim in self._hub.notes()[1])

    @property
    def reached_at(self) -> str:
        """This host's address for ranks on other hosts; "" while none of those has joined."""
        return str(self._hub.notes()[3])

    def go(self, stage: str, seconds: float, parameters: str = "") -> None:
        """Let all ranks begin `stage`; its deadline is cut to the rest of the run's time.

        In the first one, JOIN, a rank's result is that it has joined.
        """
        self._number += stage != JOIN
        self._stage = stage
        self._stage_ends = time.monotonic() + min(seconds, self.remaining())
        self._hub.begin(self._number, stage, parameters, self._stage_ends - time.monotonic())

    def await_stage(
        self,
        stage: str,
        on_progress: Callable[[list[RankState], int, float], None] | None = None,
        every: float = 0.5,
    ) -> StageRound:
        """Wait until `stage` is over: all results | all accounted for | fault and grace | deadline.

        `on_progress` is called every `every` seconds and once at the end, with the ranks' states,
        how many results are here, and the seconds until the stage's deadline.
        """
        if stage != self._stage:
            raise ValueError(f"await_stage({stage!r}) while {self._stage!r} is the current stage")
        reason = ""
        states: list[RankState] = []
        while not reason:
            reason = self._hub.wait(every if on_progress else 3600.0)
            self._read_notes()
            if not reason and stage == JOIN and self._nobody_else_comes():
                reason = "fault"
            if reason and reason != "complete":
                self._hub.refresh(_REFRESH_SECONDS)
                if self._hub.wait(0.0) == "complete":
                    reason = "complete"
            states = self.snapshot() if reason or on_progress else []
            if on_progress:
                left = max(0.0, self._stage_ends - time.monotonic())
                on_progress(states, self._hub.result_count(), left)
        if stage == JOIN:
            self._hub.send_roster()
        return StageRound(
            stage=stage,
            results=self._hub.results(),
            states={state.rank: state for state in states},
            reason=reason,  # type: ignore[arg-type]  # the native names are those of Reason
            limits=str(self._hub.notes()[0]),
            odd=self.odd,
        )

    def _nobody_else_comes(self) -> bool:
        """Return whether the missing ranks cannot come: another world, or rank 0 out of reach.

        The others must have come first, since what ends rank 0 ends the store that they look in.
        """
        claims = {claim.rank for claim in self.odd if claim.other_world}
        if not claims and not self._unreached:
            return False
        missing = {state.rank for state in self.snapshot() if state.contact == "never"}
        if not missing & claims:
            return bool(missing) and missing <= self._unreached.keys()
        self._claimed = self._claimed or time.monotonic()
        known = claims | self._unreached.keys()
        return missing <= known or time.monotonic() - self._claimed > _OTHERS_SECONDS

    def snapshot(self) -> list[RankState]:
        """The state of every rank as last heard, by rank."""
        self._read_notes()
        return [self._made(RankState(**row)) for row in self._hub.snapshot()]

    def _read_notes(self) -> None:
        with suppress(OSError):  # there is nothing to read now
            self._unread += os.read(self._notes, 1 << 16)
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            with suppress(ValueError, KeyError, TypeError):
                note = json.loads(line)
                self._unreached |= {int(rank): str(note["why"]) for rank in note["ranks"]}

    def _made(self, state: RankState) -> RankState:
        """Splits the text of Session.fail into `failed` and `raised_at`; adds the store's note."""
        if state.failed:
            text, _, at = state.failed.partition("\n")
            state = replace(state, failed=text, raised_at=at)
        why = self._unreached.get(state.rank, "")
        return replace(state, unreached=why) if why and state.contact == "never" else state

    def end(self, exit_code: int) -> None:
        """Tell all ranks to end with `exit_code`; later calls do nothing."""
        if self.ended:
            return
        self.ended = True
        self._hub.end(exit_code, _END_SECONDS)


class SessionEnded(Exception):
    """The root has ended the run: leave with `exit_code`, soon (the guard waits 0.3 s)."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"the run has ended with exit code {exit_code}")
        self.exit_code = exit_code


class Session:
    """One per process. Methods are for the main thread unless they say otherwise."""

    def __init__(
        self, worker: Any, address: str | None, known: bool, deadline: float,
        rendezvous_file: str = "", *, injector: NoFaults, notes: int = -1, no_verdict: int = 1,
    ) -> None:  # fmt: skip
        self._worker = worker
        self._no_verdict = no_verdict
        self._notes = notes
        self.address = address
        """Rank 0: "ip,ip:port#token" to hand to all other ranks; None elsewhere."""
        self._known = known
        self._rendezvous_file = rendezvous_file
        self._ends = time.monotonic() + deadline
        self.injector = injector
        self.stage = JOIN
        """The stage that this rank is in."""

    @property
    def guard(self) -> int:
        """The pid of this rank's guard."""
        return int(self._worker.guard)

    def connect(self, address: str) -> None:
        """Hand the root's address to the guard. Any thread. OddrankError if it is malformed."""
        if not self._known:
            self._known = True
            leave_address(self._rendezvous_file, address)
            self._worker.send_address(address)

    def pass_note(self, note: bytes) -> None:
        """Hand the judge a line of JSON, {"ranks": [...], "why": "host: ..."}. Rank 0 only."""
        with suppress(OSError):  # the pipe is full, or the judge has ended
            os.write(self._notes, note[:_MOST_NOTE] + b"\n")

    def enter(self, expected: str = "") -> str:
        """Wait for the root's next stage, perhaps any; return the root's parameters for it.

        SessionEnded when the root has ended the run; OddrankError when this rank's guard is gone
        or the deadline has passed.
        """
        what, number, stage, parameters, code = self._worker.wait(self._left())
        if what == "end":
            raise SessionEnded(code)
        if what == "lost":
            raise OddrankError(f"this rank's guard (pid {self.guard}) has ended: the run is over")
        if what == "timeout":
            raise OddrankError("no word from rank 0 by the deadline")
        self._worker.mark_stage(number, stage)
        self.stage = stage
        self.injector.enter(stage)
        if expected not in ("", stage):
            raise OddrankError(f"this rank is at stage {expected!r}, the root at {stage!r}")
        return str(parameters)

    def progress(self, step: str, *, waiting: bool = False) -> None:
        """Mark what this rank does now; `waiting`: inside a collective. About 100 ns native."""
        self._worker.mark_step(step, waiting)
        self.injector.progress(step)

    def timestamps(self, capacity: int) -> Timestamps:
        """Return timestamps for up to `capacity` collectives; allocates 16 bytes for each now.

        OddrankError unless the capacity is 1 to 67,108,864.
        """
        return self.injector.timestamps(self._worker.timestamps(capacity))

    def sync_clock(self, seconds: float = 5.0, *, shortcut: bool = True) -> tuple[int, int]:
        """Return (offset, error): the root's CLOCK_MONOTONIC less this rank's, in nanoseconds.

        This rank's time plus `offset` is the root's; the true offset lies within `error` of it:
        half the shortest round trip of up to 16 exchanges (F. Cristian, "Probabilistic clock
        synchronization", 1989), made in 10 ms or, by many ranks at once, in `seconds` at most.
        (0, 0) on the root's own host, where `shortcut=False` measures all the same. Clocks of two
        hosts drift apart, by up to 0.1 ms a second: ask again before each block of timestamps.
        OddrankError if the root cannot be reached by then.
        """
        offset, error = self._worker.sync_clock(max(0.0, min(seconds, self._left())), shortcut)
        return offset, error

    def _left(self) -> float:
        return self._ends + _LAST_SECONDS - time.monotonic()

    def wait_in_join(self, step: str) -> None:
        """Mark that this rank waits for the others to join. Any thread; no effect after join."""
        self._worker.mark_waiting_in_join(step)

    def publish(self, payload: bytes) -> None:
        """Send this rank's result of the stage: once, at most 64 MiB."""
        self._worker.publish(payload)

    def fail(self, text: str, at: str = "") -> None:
        """Report that the stage raised, instead of publish. text: type, message; at: file:line."""
        line = _cut(" ".join(text.split()))
        self._worker.fail(f"{line}\n{_cut(at)}" if at else line)

    def finish(self) -> int:
        """Wait until the root ends the run; return its exit code, or `no_verdict` without one."""
        try:
            while True:
                self.enter()
        except SessionEnded as ended:
            return ended.exit_code
        except OddrankError as error:
            print(f"oddrank: {error}", file=sys.stderr)
            return self._no_verdict


def _cut(text: str) -> str:
    return text.encode()[:_MOST_SAID].decode(errors="ignore")


def start(
    here: Launch, *, deadline: float, judge: Callable[[Root], int],
    join_seconds: float | None = None, rendezvous_file: str = "", launcher: str = "",
    fetcher: Sequence[str] = (), no_verdict: int = 1,
) -> Session:  # fmt: skip
    """Fork this rank's guard, and on rank 0 the judge; return the worker's session.

    `here`: this process's place, with the number of its node as machine.node_number has it.
    `deadline`: seconds from now for the whole run; all processes are gone 2 s later at the latest.
    `join_seconds`: after which a guard that has not reached the root gives up (default: deadline).
    `rendezvous_file`: see address.path_under; "" if the ranks of a host can't agree on one.
    `launcher`: the name of this process's parent, if its end ends the job; "": it does not.
    `fetcher`: a command that prints the root's address; a guard runs it once its rank is dead.
    `no_verdict`: the exit code of a rank that hears none.
    Call before torch is imported and before threads exist. From then on SIGTERM and SIGINT are
    events of the session and end nothing by themselves.
    """
    tests = os.environ.get("ODDRANK_TESTING")
    try:
        injector = importlib.import_module(tests).Injector.of(here.rank) if tests else NoFaults()
    except (ImportError, AttributeError) as error:
        raise OddrankError(f"ODDRANK_TESTING={tests}: {error}. Unset it") from None
    core = _native.core()
    given = os.environ.get(ADDRESS, "")
    address: str | None = None
    notes = -1
    guards_address = given
    if given:
        core.control_parse_address(given)  # here, where the error is still shown
    if here.rank == 0:
        listener, address, guards_address = listen(given)
        leave_address(rendezvous_file, address)
        sys.stdout.flush()
        sys.stderr.flush()
        judges_notes, notes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        if os.fork() == 0:
            _be_judge(listener, judges_notes, address, here, deadline, judge=judge)
        os.close(listener)
        os.close(judges_notes)
    worker = core.start_worker(
        here.rank, here.world, here.local_rank, here.local_world, here.node, here.host, launcher,
        list(fetcher), guards_address, rendezvous_file, here.rank == 0, deadline,
        min(deadline, join_seconds if join_seconds is not None else deadline), no_verdict,
    )  # fmt: skip
    session = Session(
        worker, address, bool(guards_address), deadline, rendezvous_file, injector=injector,
        notes=notes, no_verdict=no_verdict,
    )  # fmt: skip
    injector.enter(JOIN)
    return session


def _be_judge(
    listener: int, notes: int, address: str, here: Launch, deadline: float, *,
    judge: Callable[[Root], int],
) -> NoReturn:  # fmt: skip
    """The judge is a process of its own: rank 0's worker may hang or die like any other."""
    core = _native.core()
    code = 2
    try:
        os.setsid()
        core.ignore_launchers_signals()
        ctypes.CDLL(None).prctl(_PR_SET_NAME, b"oddrank-judge", 0, 0, 0)
        core.kill_this_process_in(deadline + _LAST_SECONDS)
        gc.disable()  # 10,000 ranks' results are millions of objects, and no garbage
        token = core.control_parse_address(address)[2]
        hub = core.Hub(listener, here.world, token, here.host, deadline)
        code = _judge(Root(hub, here.world, deadline, notes), judge)
    except BaseException:
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)  # the judge is a fork of the worker: it must not run its exit handlers


def _judge(root: Root, judge: Callable[[Root], int]) -> int:
    """Run `judge`; always ends the ranks, even if it raises."""
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
