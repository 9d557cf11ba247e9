"""The judge's side of a walk over stages: who came through, who is to blame, when to stop."""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from oddrank import launch
from oddrank.control import findings, join
from oddrank.control.culprits import Culprit, culprits, torn_down
from oddrank.control.motion import Motion
from oddrank.control.root import RankState, Root, Round, Snapshot
from oddrank.control.stages import Rounds, Skip, Stage
from oddrank.errors import OddrankError
from oddrank.finding import Finding, Who

# What the ranks are told instead of a plan: nothing to measure.
SKIP = "skip"
OVER = "the time for it was over"
_SILENT = ("guard-lost", "link-cut", "node-lost")
_GUARDS_SETTLE = 1.0
# A stage that takes longer shows whom it waits for.
_SHOW_EVERY = 5.0
_LOOK_EVERY = 0.5


@dataclass
class Outcome:
    """What the judge has when the table is through, or cannot go on."""

    rounds: Rounds
    findings: list[Finding] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)  # of each stage, also the last one
    came: dict[str, int] = field(default_factory=dict)  # how many ranks gave a result for it
    joined: dict[int, float] = field(default_factory=dict)  # rank -> after how many seconds
    skipped: dict[str, str] = field(default_factory=dict)  # stage -> why there was nothing to do
    not_begun: tuple[str, ...] = ()  # shown stages behind the one that ended the run
    complete: bool = True
    why: str = ""  # not complete: what came in between
    error: OddrankError | None = None  # it was that what was asked for can't be done


class Walk:
    """The judge's side of one run."""

    def __init__(
        self,
        root: Root,
        stages: Sequence[Stage],
        end: float,
        on_stage: Callable[[Stage, Rounds], None] | None,
        *,
        partial: bool = False,
        enough: float = math.inf,
    ) -> None:
        """partial: an OddrankError of a stage is the outcome's; else the error alone is said.

        enough: seconds of the counted stages, after which the others are skipped.
        """
        self._partial = partial
        self._enough, self._spent = enough, 0.0
        self._root, self._stages, self._end, self._on_stage = root, stages, end, on_stage
        self._motion = Motion()
        here = launch.current()
        self._outcome = Outcome(Rounds(root.world, master=here.master, nodes=here.nodes))
        self._shown = self._began = 0.0
        names = (join.NAME, *(stage.name for stage in stages if stage.shown))
        self._width = max(len(name) for name in names)

    def judge(self, conclude: Callable[[Outcome], int]) -> int:
        """Walks, says the verdict, and only then lets the ranks end: launchers print after that."""
        outcome = self._outcome
        try:
            if self._join():
                for stage in self._stages:
                    began = time.monotonic()
                    if not self._walk(stage):
                        break
                    if stage.counted:
                        self._spent += time.monotonic() - began
        except OddrankError as error:  # of a plan or a judgement
            if not self._partial:
                raise
            outcome.complete, outcome.why, outcome.error = False, str(error), error
        outcome.not_begun = self._not_begun()
        code = conclude(outcome)
        if outcome.error:
            code = outcome.error.exit_code
        self._root.end(code)
        return code

    def _not_begun(self) -> tuple[str, ...]:
        """A stage that confirms is none of them: whether there was a need for it is not known."""
        told = {*self._outcome.seconds, *self._outcome.skipped}
        every = (stage for stage in self._stages if stage.shown and not stage.confirms)
        return tuple(stage.name for stage in every if stage.name not in told)

    def _join(self) -> bool:
        began = self._shown = time.monotonic()
        seconds = join.SHARE * (self._end - began)
        self._root.open_join(seconds)
        self._began = began
        round, found = self._settle(join.NAME, began + seconds)
        self._note_joined(round.states.values())
        if not self._came_through(join.NAME, began, round, found):
            return False
        self._outcome.findings += join.judge(self._outcome.rounds)
        return not self._interrupted(join.NAME)

    def _walk(self, stage: Stage) -> bool:
        """One stage; False where there is no going on."""
        outcome, rounds = self._outcome, self._outcome.rounds
        doubted = [f for f in outcome.findings if stage.confirms and f.stage == stage.confirms]
        skip = bool(stage.confirms) and not doubted
        over = self._spent >= self._enough and not (doubted or stage.closes)
        parameters = SKIP if skip else Skip(OVER) if over else stage.plan(rounds)
        if isinstance(parameters, Skip):
            if stage.shown:
                outcome.skipped[stage.name] = parameters.why
            skip, parameters = True, SKIP
        began = self._shown = time.monotonic()
        seconds = min(stage.seconds, self._end - began)
        if seconds <= 0:
            outcome.complete = False
            outcome.why = _WHY["late"].format(stage=stage.name)
            return False
        told = {"plan": parameters, "master": self._root.reached_at}
        self._root.go(stage.name, seconds, json.dumps(told))
        round, found = self._settle(stage.name, began + seconds)
        if skip and round.reason == "complete":
            rounds.states = dict(round.states)
            return not self._interrupted(stage.name)
        if not self._came_through(stage.name, began, round, found, shown=stage.shown):
            return False
        rounds.results[stage.name] = {r: json.loads(data) for r, data in round.results.items()}
        judged = stage.judge(rounds)
        if doubted:
            outcome.findings = [f for f in outcome.findings if f not in doubted]
        outcome.findings += judged
        if self._on_stage is not None:
            self._on_stage(stage, rounds)
        if not stage.kept:
            del rounds.results[stage.name]
        return not self._interrupted(stage.name)

    def _came_through(
        self, name: str, began: float, round: Round, found: Sequence[Culprit], shown: bool = True
    ) -> bool:
        """Notes and shows how far the ranks came; False where not all did."""
        outcome, rounds = self._outcome, self._outcome.rounds
        rounds.states = dict(round.states)
        took = time.monotonic() - began
        outcome.seconds[name], outcome.came[name] = took, len(round.results)
        if shown or round.reason != "complete":
            _say(f"{name:<{self._width}}  {len(round.results)}/{rounds.world}  {took:.1f} s")
        if round.reason == "complete":
            return True
        outcome.findings += findings.of_round(round, found, rounds)
        if round.reason == "terminated" and not found:
            # Whom the deadline would have found: the others may have come further but for the end.
            behind = self._motion.excuse(culprits(replace(round, reason="deadline")))
            outcome.findings += findings.ended_early(behind, rounds)
        outcome.complete = False
        why: str = "named" if found else round.reason
        if why == "deadline" and self._motion.goes_on():
            why = "slow"
        outcome.why = _WHY[why].format(stage=name, by=_sender(rounds))
        return False

    def _interrupted(self, name: str) -> bool:
        """Whether somebody wants the end though all came through this stage.

        A launcher also sends SIGTERM because a rank has died: the next round names that one.
        """
        if not any(s.sigterm for s in self._outcome.rounds.states.values()):
            return False
        time.sleep(_GUARDS_SETTLE)
        if any(s.contact != "ok" or s.state != "running" for s in self._root.snapshot()):
            return False
        self._outcome.complete = False
        nothing = "" if self._outcome.findings else ", with nothing found until then"
        by = _sender(self._outcome.rounds)
        self._outcome.why = _WHY["interrupted"].format(stage=name, by=by) + nothing
        return True

    def _settle(self, stage: str, end: float) -> tuple[Round, list[Culprit]]:
        """Collects until the round is through, somebody can be named, or its time is over."""
        while True:
            round = self._root.collect(stage, self._show, _LOOK_EVERY)
            if round.reason == "complete":
                return round, []
            if time.monotonic() >= end:
                round = replace(round, reason="deadline")
            found = self._motion.excuse(culprits(round))
            if any(culprit.cause in _SILENT for culprit in found):
                # The guards of one node fall silent one after the other, and may come back.
                time.sleep(min(_GUARDS_SETTLE, max(0.0, end - time.monotonic())))
                round = replace(round, states={s.rank: s for s in self._root.snapshot()})
                found = self._motion.excuse(culprits(round))
            if found or round.reason in ("deadline", "terminated"):
                return round, found
            if torn_down(round):
                return replace(round, reason="terminated"), found
            # Only victims so far: who tore them down is not seen yet.
            time.sleep(min(0.25, max(0.0, end - time.monotonic())))

    def _show(self, now: Snapshot) -> None:
        """A line every few seconds for who sits and waits."""
        self._motion.see(now.states)
        if now.stage == join.NAME:
            self._note_joined(now.states)
        if time.monotonic() - self._shown < _SHOW_EVERY - 0.1:
            return
        self._shown = time.monotonic()
        missing = [
            s.rank
            for s in now.states
            if s.contact == "never" or (now.stage != join.NAME and not s.published)
        ]
        _say(
            f"{now.stage:<{self._width}}  {now.results}/{now.world}  not through yet:"
            f" {Who('rank', tuple(missing))}, at most {now.remaining:.0f} s more"
        )

    def _note_joined(self, states: Iterable[RankState]) -> None:
        """When a rank was first seen, by the judge's clock: as often as it looks."""
        after = time.monotonic() - self._began
        for state in states:
            if state.contact != "never":
                self._outcome.joined.setdefault(state.rank, after)


def _sender(rounds: Rounds) -> str:
    """The process that sent the signal, which may be the launcher or somebody's kill."""
    known = [s for s in rounds.states.values() if s.sigterm_by]
    return f" (from process {known[0].sigterm_by} on {known[0].host})" if known else ""


_WHY = {
    "late": "the deadline came before stage {stage}, and nothing points at anybody",
    "named": "the stages after {stage} were not run",
    "fault": "a rank failed in stage {stage}, and nothing points at anybody",
    "slow": "the deadline came in stage {stage} while the ranks still came further: slow, not"
    " stuck; a longer --deadline may help",
    "deadline": "the deadline came in stage {stage}, and nothing points at anybody",
    "terminated": "SIGTERM or SIGINT{by} ended the job in stage {stage}, and nobody can be named",
    "interrupted": "SIGTERM or SIGINT{by} ended the job after stage {stage}",
}


def _say(line: str) -> None:
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except OSError:  # a closed pipe must not cost the verdict
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
