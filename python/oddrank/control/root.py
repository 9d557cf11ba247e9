"""The judge's view of all ranks: stages go out, results and states come in, every wait ends."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

Contact = Literal["never", "ok", "silent", "closed"]
Life = Literal["running", "stopped", "zombie", "dead", "uninterruptible"]
Reason = Literal["complete", "fault", "deadline", "terminated"]

# The verdict is to be out by the deadline: stages end this much earlier (or 10 % of the run).
_VERDICT_SECONDS = 1.0
# How long the guards get to say how their workers are, once a stage is over without all results.
_REFRESH_SECONDS = 0.3
_END_SECONDS = 0.3


@dataclass(frozen=True)
class RankState:
    """What the root knows of one rank. The order of fields is the native snapshot's."""

    rank: int
    host: str = ""  # "" and node -1 while never contacted
    node: int = -1
    local_rank: int = -1
    pid: int = 0
    contact: Contact = "never"  # with its guard
    state: Life = "running"  # of its worker, as the kernel says
    signal: int | None = None  # that killed it
    exit_code: int | None = None
    wchan: str = ""  # the kernel function an uninterruptible worker sleeps in
    stage: str = ""
    step: str = ""
    progress: int = 0  # marks so far: comparable between ranks of one program
    waiting: bool = False  # inside a collective
    published: bool = False  # this stage's result
    failed: str | None = None  # the exception's text
    sigterm: bool = False  # SIGTERM or SIGINT seen
    first_fault_ns: int = 0  # of the judge's monotonic clock; 0: no fault
    sigterm_by: int = 0  # pid of the signal's sender; 0: unknown or another namespace
    orphaned: bool = False  # its launcher is gone
    resolver_slow: bool = False  # reverse DNS of its host's own address gives no answer
    raised_at: str = ""  # file:line; here it is split from `failed`, the native one's last line


@dataclass(frozen=True)
class OddClaim:
    """A process of this job that was turned away; the order of fields is the native one's."""

    rank: int  # that it says it is
    other_world: bool  # its world has another size; else its rank was taken
    text: str


@dataclass(frozen=True)
class Snapshot:
    """Live progress of the stage that is being collected."""

    stage: str
    world: int
    results: int  # ranks whose result is here
    remaining: float  # seconds until the stage's deadline
    states: list[RankState]


@dataclass(frozen=True)
class Round:
    """A stage that is over. `reason` says why; only "complete" has all results."""

    stage: str
    results: dict[int, bytes]
    states: dict[int, RankState]
    reason: Reason
    limits: str = ""  # why ranks may have been unable to come (open files); "" where not so
    odd: tuple[OddClaim, ...] = ()


def _split(state: RankState) -> RankState:
    """What Session.fail has put into one text."""
    if not state.failed:
        return state
    text, _, at = state.failed.partition("\n")
    return replace(state, failed=text, raised_at=at)


class Root:
    """Made by `session.start` in the judge; used by its main thread only."""

    def __init__(self, hub: Any, world: int, deadline: float) -> None:
        """`deadline` in seconds from now, for all stages together."""
        self.world = world
        self._hub = hub
        self._reserve = min(_VERDICT_SECONDS, deadline / 10)
        self._stage = "join"
        self._number = 0
        self._stage_ends = 0.0
        self.ended = False

    def remaining(self) -> float:
        """Seconds that stages may still take: until shortly before the deadline of the run.

        The run's deadline is that of the rank that started first, of those that have come.
        """
        return max(0.0, float(self._hub.remaining()) - self._reserve)

    @property
    def limits(self) -> str:
        """Why ranks may be unable to reach the root; "" where nothing is known."""
        return str(self._hub.notes()[0])

    @property
    def odd(self) -> tuple[OddClaim, ...]:
        """The first 16 processes that claimed a taken rank or another world size."""
        return tuple(OddClaim(*claim) for claim in self._hub.notes()[1])

    @property
    def foreign(self) -> int:
        """Connections that were not of this job; they were dropped."""
        return int(self._hub.notes()[2])

    @property
    def reached_at(self) -> str:
        """The address of this host for ranks on others; "" where all that came are on this one."""
        return str(self._hub.notes()[3])

    def open_join(self, seconds: float) -> None:
        """Begin the stage "join": a rank's result is that it has come."""
        self._begin("join", seconds)
        self._hub.begin(0, "join", "", self._stage_ends - time.monotonic())

    def go(self, stage: str, seconds: float, parameters: str = "") -> None:
        """Let all ranks begin `stage`; its deadline is cut to what is left of the run."""
        self._number += 1
        self._begin(stage, seconds)
        self._hub.begin(self._number, stage, parameters, self._stage_ends - time.monotonic())

    def _begin(self, stage: str, seconds: float) -> None:
        self._stage = stage
        self._stage_ends = time.monotonic() + min(seconds, self.remaining())

    def collect(
        self,
        stage: str,
        on_progress: Callable[[Snapshot], None] | None = None,
        every: float = 0.5,
    ) -> Round:
        """Wait until `stage` is over: all results | all accounted for | fault and grace | deadline.

        `on_progress` is called every `every` seconds and once at the end.
        """
        if stage != self._stage:
            raise ValueError(f"collect({stage!r}) while {self._stage!r} is the current stage")
        reason = ""
        states: list[RankState] = []
        while not reason:
            reason = self._hub.wait(every if on_progress else 3600.0)
            if reason and reason != "complete":
                self._hub.refresh(_REFRESH_SECONDS)
                if self._hub.wait(0.0) == "complete":
                    reason = "complete"
            states = self.snapshot() if reason or on_progress else []
            if on_progress:
                on_progress(self._progress(states))
        if stage == "join":
            self._hub.send_roster()
        return Round(
            stage=stage,
            results=self._hub.results(),
            states={state.rank: state for state in states},
            reason=reason,  # type: ignore[arg-type]  # the native names are those of Reason
            limits=self.limits,
            odd=self.odd,
        )

    def _progress(self, states: list[RankState]) -> Snapshot:
        remaining = max(0.0, self._stage_ends - time.monotonic())
        return Snapshot(self._stage, self.world, self._hub.result_count(), remaining, states)

    def snapshot(self) -> list[RankState]:
        """The state of every rank as last heard, by rank."""
        return [_split(RankState(*row)) for row in self._hub.snapshot()]

    def end(self, exit_code: int) -> None:
        """Tell all ranks to end with `exit_code`; later calls do nothing."""
        if self.ended:
            return
        self.ended = True
        self._hub.end(exit_code, _END_SECONDS)
