"""The judge's view of all ranks: begins stages and collects results, each wait with a deadline."""

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from oddrank.control.stages import JOIN, OddClaim, RankState, StageRound

# Stages end this long before the deadline (or 10 % of the run), for the verdict to be out by then.
VERDICT_SECONDS = 1.0
# Time for the guards to report their workers' states, once a stage is over without all results.
_REFRESH_SECONDS = 0.3
_END_SECONDS = 0.3
# Once a rank of another world has come, the others get so many seconds to come.
_OTHERS_SECONDS = 20.0


@dataclass(frozen=True)
class Snapshot:
    """Live progress of the stage that is being collected."""

    stage: str
    world: int
    results: int  # ranks whose result is here
    remaining: float  # seconds until the stage's deadline
    states: list[RankState]


class Root:
    """Made by `session.start` in the judge; used by its main thread only."""

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
    def limits(self) -> str:
        """Why ranks may be unable to reach the root; "" if nothing is known."""
        return str(self._hub.notes()[0])

    @property
    def odd(self) -> tuple[OddClaim, ...]:
        """The first 16 processes that claimed a taken rank or another world size."""
        return tuple(OddClaim(*claim) for claim in self._hub.notes()[1])

    @property
    def reached_at(self) -> str:
        """This host's address for ranks on other hosts; "" while none of those has joined."""
        return str(self._hub.notes()[3])

    def open_join(self, seconds: float) -> None:
        """Begin the stage JOIN: a rank's result is that it has joined."""
        self._begin(JOIN, seconds)

    def go(self, stage: str, seconds: float, parameters: str = "") -> None:
        """Let all ranks begin `stage`; its deadline is cut to what is left of the run."""
        self._number += 1
        self._begin(stage, seconds, parameters)

    def _begin(self, stage: str, seconds: float, parameters: str = "") -> None:
        self._stage = stage
        self._stage_ends = time.monotonic() + min(seconds, self.remaining())
        self._hub.begin(self._number, stage, parameters, self._stage_ends - time.monotonic())

    def collect(
        self, stage: str, on_progress: Callable[[Snapshot], None] | None = None, every: float = 0.5
    ) -> StageRound:
        """Wait until `stage` is over: all results | all accounted for | fault and grace | deadline.

        `on_progress` is called every `every` seconds and once at the end.
        """
        if stage != self._stage:
            raise ValueError(f"collect({stage!r}) while {self._stage!r} is the current stage")
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
                remaining = max(0.0, self._stage_ends - time.monotonic())
                results = self._hub.result_count()
                on_progress(Snapshot(stage, self.world, results, remaining, states))
        if stage == JOIN:
            self._hub.send_roster()
        return StageRound(
            stage=stage,
            results=self._hub.results(),
            states={state.rank: state for state in states},
            reason=reason,  # type: ignore[arg-type]  # the native names are those of Reason
            limits=self.limits,
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
