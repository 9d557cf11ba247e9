"""Decides when a job has died or stands still: a pure state machine over its ranks' states.

Guards report transitions only (csrc/run/program_guard.cpp): a rank is `quiet` once nothing has
moved for some seconds, and `moving` again at once. triage decides which rank is to blame.
"""

import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from oddrank.control.stages import RankState
from oddrank.triage.facts import GONE

# A stall is longer than --stall, and than so many times the longest pause that this job has made
# twice. One long pause is no habit: a checkpoint that is loaded, a first compilation.
_TIMES_USUAL = 3.0
# It may take so many times as long until the first step, and while awaited ranks work.
PATIENCE = 10.0
# Signals by which a launcher or a user ends mostly all ranks at once: no rank is first.
_TOLD_TO_END = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_TOLD_SECONDS = 2.0
_STILL_SECONDS = 600.0
_FAULT_SECONDS = 3.0  # a fault that the root knows of for longer is an earlier one

# A process that uses less in a second is not at work: heartbeats and logging use less.
_CPU = 0.2
_BYTES = 64 << 10


@dataclass(frozen=True)
class Event:
    """An event of a job.

    death: ranks have died, and none before. cascade: more have died after them. stall: no rank has
    moved for `seconds`. still: a reported stall goes on. moved: it is over, and took `seconds`.
    end: every rank has ended, or all contact to it is lost.
    """

    kind: Literal["death", "cascade", "stall", "still", "moved", "end"]
    ranks: tuple[int, ...] = ()
    seconds: float = 0.0
    told: bool = False
    """At a death: a user or a launcher ended the whole job."""
    last: bool = False
    """At a stall: report it even if no rank can be named."""
    started: bool = True
    """A rank had made a step or a collective. Then the last stall names ranks at work, too.
    Without one, the job may never make steps, or not record them."""


@dataclass
class _Rank:
    """The state kept of a rank. Times are on the clock of feed(); 0: not yet."""

    key: tuple[Any, ...] = ()
    """Its guard's last message."""
    progress: int = 0
    paused: bool = False
    """It waited on purpose when its guard spoke last."""
    last: float = 0.0
    """When it last did something: moved, came, or ended."""
    ended: float = 0.0


@dataclass
class Watch:
    """One job. `began` and all times: seconds of one clock that never jumps."""

    began: float
    stall: float
    refused: bool = False
    """A rank was started twice, or with another WORLD_SIZE: such a start never ends by itself."""
    longest: tuple[float, float] = (0.0, 0.0)
    """The two longest pauses of the whole job that ended before they were reported to the user."""
    _ranks: dict[int, _Rank] = field(default_factory=dict)
    _since: float | None = 0.0
    """Since when no rank moves; None: one does."""
    _again: float | None = None
    """When a rank first moved after a reported stall."""
    _started: bool = False
    _told: bool = False
    """The present stall was reported to the user."""
    _looks: int = 0
    _paused: bool = False
    """A rank was paused on purpose since the job stands: how long it stood says nothing."""
    _next_still: float = 0.0
    _dead: set[int] = field(default_factory=set)
    _told_to_end: bool = False
    """A user or a launcher ended the job: a launcher may wait long for ranks that do not end."""
    _dead_told: int = 0
    """Number of dead ranks when the stall was reported."""
    _ended: bool = False

    def __post_init__(self) -> None:
        self._since = self.began

    @property
    def limit(self) -> float:
        """Seconds without any progress that are a stall."""
        limit = max(self.stall, _TIMES_USUAL * self.longest[1])
        return limit if self._started or self.refused else PATIENCE * limit

    @property
    def goes_well(self) -> bool:
        """Returns whether a rank moves and none has died."""
        return self._since is None and not self._dead

    def tell(self) -> None:
        """Notes that the present stall was reported: from now on its age and its end count."""
        self._told, self._dead_told = True, len(self._dead)

    def excuse(self, now: float) -> None:
        """Notes that the present stall is a pause on purpose: its age counts anew from now."""
        self._since, self._told, self._looks, self._paused = now, False, 0, True

    def ended_at(self, state: RankState) -> float | None:
        """Returns when a rank ended, as its guard saw it; None if it has not."""
        seen = self._ranks[state.rank].ended if state.rank in self._ranks else 0.0
        if not seen:
            return None
        told = state.first_fault_ns / 1e9
        return told if seen - told < _FAULT_SECONDS else seen  # it had been stopped before

    def quiet(self, now: float, states: Sequence[RankState]) -> dict[int, float]:
        """Returns the seconds since each living rank moved."""
        return {
            s.rank: 0.0 if s.stage == "moving" else now - known.last
            for s in states
            if (known := self._ranks.get(s.rank)) is not None
            and is_heard(s) and not has_ended(s)
        }  # fmt: skip

    def feed(self, now: float, states: Sequence[RankState]) -> list[Event]:
        """Takes the states of all ranks; returns what has happened since the last call."""
        if self._ended:
            return []
        before = self._started
        moves = [self._note(now, s, self._ranks.setdefault(s.rank, _Rank())) for s in states]
        # Once all are gone, no rank comes any more to show that a death is one of many.
        lost = any(s.contact in ("never", "silent") for s in states)
        goes_on = any(is_heard(s) and not has_ended(s) for s in states)
        over = any(s.contact != "never" for s in states) and not lost and not goes_on
        found = [*self._deaths(now, states, over=over)]
        goes = any(moves)
        if self._told and not over and (goes or self._again is not None):
            # Ranks that stood move on their way out of a Ctrl-C, too.
            self._again = self._again or now
            ends = any(has_died(s) and s.rank not in self._dead for s in states)
            goes = now - self._again >= _TOLD_SECONDS and not ends
        if goes:
            found += self._go_on(now, healthy=before)
        elif goes_on:
            found += () if self._told_to_end or self._again is not None else self._stand(now)
        else:  # no guard is heard: a stall and a cut cable look the same
            self._since = now
        if over:
            self._ended = True
            found.append(Event("end"))
        return found

    def _note(self, now: float, state: RankState, known: _Rank) -> bool:
        if state.contact == "never":
            return False
        # Not how long it has been quiet: an answer may be read long after it was given.
        key = (state.state, state.stage, state.progress)
        changed, known.key = key != known.key, key
        # A guard looks once a second: a rank may have gone on and ended well in between.
        moved, known.progress = state.progress > known.progress, state.progress
        moved = moved and not (self._told and has_died(state))
        # A pause on purpose that begins or ends is no stall: what follows it counts anew.
        was_paused = known.paused
        known.paused = state.stage == "paused" and not has_ended(state)
        moved = moved or (was_paused != known.paused and not has_ended(state))
        self._paused = self._paused or known.paused
        self._started = self._started or state.progress > 0
        if has_ended(state):
            known.ended = known.ended or now
            known.last = max(known.last, known.ended)
        elif changed:
            known.last = now - max(0, state.quiet_ms) / 1000
        return moved or (is_heard(state) and not has_ended(state) and state.stage == "moving")

    def _deaths(self, now: float, states: Sequence[RankState], *, over: bool) -> Iterable[Event]:
        new = [s for s in states if has_died(s) and s.rank not in self._dead]
        if self._dead and new:
            self._dead |= {s.rank for s in new}
            yield Event("cascade", _ranks(new))
            return
        # If no guard saw how a rank ended, its parent was faster: it may have been well.
        seen = [s for s in new if (s.signal, s.exit_code) != (None, None)]
        first = [s for s in seen if _signal(s) not in _TOLD_TO_END]
        if not first:
            # A launcher or a user mostly ends all ranks: the others' ends come within moments.
            old = [s for s in new if over or now - self._ranks[s.rank].ended >= _TOLD_SECONDS]
            first = [s for s in old if _signal(s) in _TOLD_TO_END or not over]
        if not first:
            return
        # No user interrupts one rank of many. Others may not end of it: they wait in C++.
        signals = {*map(_signal, first)}
        told = signals <= _TOLD_TO_END and (over or len(first) > 1 or signal.SIGINT in signals)
        self._dead |= {s.rank for s in new}
        self._told_to_end = told
        yield Event("death", _ranks(first), told=told)
        if len(new) > len(first):
            yield Event("cascade", _ranks(s for s in new if s not in first))

    def _go_on(self, now: float, *, healthy: bool) -> Iterable[Event]:
        """A rank moves. healthy: the pause before, if there was one, was not the job's start."""
        if self._since is None:
            return
        gap, self._since, self._again = (self._again or now) - self._since, None, None
        # Calls that fail because a rank has died since then end, too: that is no progress.
        if self._told and len(self._dead) == self._dead_told:
            yield Event("moved", seconds=gap)
        elif healthy and not self._told and not self._paused:
            first, second, _ = sorted((*self.longest, gap), reverse=True)
            self.longest = first, second
        self._told, self._looks = False, 0
        self._paused = any(known.paused for known in self._ranks.values())

    def _stand(self, now: float) -> Iterable[Event]:
        self._since = max([self._since or 0.0, *(known.last for known in self._ranks.values())])
        pause = now - self._since
        if self._told:
            if pause >= self._next_still:
                self._next_still = 2 * pause
                yield Event("still", seconds=pause)
            return
        if pause >= (self._looks + 1) * self.limit:
            last = pause >= PATIENCE * self.limit or not self._started
            self._looks += 1
            self._next_still = max(_STILL_SECONDS, 2 * pause)
            if last and self._started:
                self.tell()
            yield Event("stall", seconds=pause, last=last, started=self._started)


@dataclass(frozen=True)
class Work:
    """The work that a process and its descendants had done when a guard looked.

    started: of the process, in clock ticks since boot.
    """

    started: int
    seconds: float
    cpu_seconds: float
    io_bytes: int


def is_at_work(before: Work, after: Work, *, spins: bool = False) -> bool:
    """Returns whether a process worked between two looks: evaluated, saved or compiled.

    spins: it stands in a call that waits. Then CPU time is no work: CUDA's and NCCL's threads wait
    in loops.
    """
    seconds = after.seconds - before.seconds
    if before.started != after.started or seconds <= 0:
        return False
    computes = not spins and after.cpu_seconds - before.cpu_seconds >= _CPU * seconds
    return computes or after.io_bytes - before.io_bytes >= _BYTES * seconds


@dataclass(frozen=True)
class Awaited:
    """A rank that others wait for.

    spins: as of is_at_work(). rests: seconds since a thread that makes its calls ran
    a recorded line, or 0.0 if another one computes; None: not known.
    """

    spins: bool
    rests: float | None = None


def anybody_works(
    ranks: Mapping[int, Awaited],
    before: Mapping[int, Work],
    after: Mapping[int, Work],
    seconds: float,
) -> bool:
    """Returns whether any of these ranks is at work in a stall of so many seconds."""
    # A rank that evaluates on its GPU may run a few lines a second, and not one in a short look.
    both = before.keys() & after.keys()
    return any(
        (one.rests is not None and one.rests < seconds / 2)
        or (rank in both and is_at_work(before[rank], after[rank], spins=one.spins))
        for rank, one in ranks.items()
    )


def is_heard(state: RankState) -> bool:
    """Returns whether its guard is in contact: nothing is known of a rank without one."""
    return state.contact == "ok"


def has_ended(state: RankState) -> bool:
    return state.state in GONE


def has_died(state: RankState) -> bool:
    """Returns whether its process ended other than by exit code 0. Only its guard knows that."""
    return has_ended(state) and state.exit_code != 0


def _signal(state: RankState) -> int:
    """Returns the signal of its end, be it by an exit code, as shells tell it; below 1: none."""
    return state.signal or (state.exit_code or 0) - 128


def _ranks(states: Iterable[RankState]) -> tuple[int, ...]:
    return tuple(sorted(s.rank for s in states))
