"""The judge's side of a run: collects each stage, names suspects, decides whether to go on."""

import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from oddrank import launch
from oddrank.control import findings
from oddrank.control.blame import Motion, blame, torn_down
from oddrank.control.rendezvous import TAKEN
from oddrank.control.session import Root
from oddrank.control.stages import JOIN, AnyStage, RankState, RunState, Skip, StageRound, nodes_of
from oddrank.errors import OddrankError
from oddrank.finding import Finding, Who
from oddrank.triage import causes
from oddrank.triage.suspects import Suspect

SKIP = "skip"  # the ranks get this instead of a plan: nothing to measure
# Share of the command's time: importing torch from a busy file system can take minutes.
JOIN_SHARE = 0.75
OVER = "no time left"
FAILED = "its plan failed"
_RAISED = object()
_SILENT = (causes.GUARD_LOST, causes.LINK_CUT, causes.NODE_LOST, causes.LOST_EACH_OTHER)
_GUARDS_SETTLE = 1.0
# A stage that takes longer prints which ranks it waits for.
_SHOW_EVERY = 5.0
_LOOK_EVERY = 0.5


@dataclass
class Outcome:
    """The judge's results after the last stage, or after one that ended the run."""

    run: RunState
    findings: list[Finding] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)  # of each stage, also the last one
    came: dict[str, int] = field(default_factory=dict)  # stage -> ranks with a result
    joined: dict[int, float] = field(default_factory=dict)  # rank -> seconds until it joined
    skipped: dict[str, str] = field(default_factory=dict)  # stage -> why there was nothing to do
    not_begun: tuple[str, ...] = ()  # shown stages behind the one that ended the run
    complete: bool = True
    why: str = ""  # why the run is not complete
    error: OddrankError | None = None  # a plan or a judgement raised it

    def attempt(
        self,
        do: Callable[[], Any],
        failed: Callable[[Exception], Finding],
        otherwise: Any,
        passes: type[Exception] | tuple[()] = (),
    ) -> Any:
        """Returns do(). If that raises, adds the finding of `failed` and returns `otherwise`.

        passes: exceptions that are raised all the same.
        """
        try:
            return do()
        except passes:
            raise
        except Exception as error:
            finding = failed(error)
            if finding not in self.findings:  # one fault may fail several stages
                traceback.print_exc()
                self.findings.append(finding)
            return otherwise


class Walk:
    """The judge's side of one run."""

    def __init__(
        self,
        root: Root,
        stages: Sequence[AnyStage],
        end: float,
        on_stage: Callable[[AnyStage, RunState], None] | None,
        *,
        partial: bool = False,
        enough: float = math.inf,
    ) -> None:
        """partial: keep a stage's OddrankError in the outcome, instead of raising it.

        enough: seconds of the counted stages, after which the others are skipped.
        """
        self._partial = partial
        self._enough, self._spent = enough, 0.0
        self._root, self._stages, self._end, self._on_stage = root, stages, end, on_stage
        self._motion = Motion()
        here = launch.current()
        self._outcome = Outcome(RunState(root.world, master=here.master, nodes=here.nodes))
        self._shown = self._began = 0.0
        names = (JOIN, *(stage.name for stage in stages if stage.shown))
        self._width = max(len(name) for name in names)

    def judge(self, conclude: Callable[[Outcome], int]) -> int:
        """Runs the stages, then conclude, then ends the ranks: launchers print after that."""
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
        known = {*outcome.seconds, *outcome.skipped}
        # No rechecks: whether they are needed is unknown.
        every = (stage for stage in self._stages if stage.shown and not stage.confirms)
        outcome.not_begun = tuple(stage.name for stage in every if stage.name not in known)
        if OVER in outcome.skipped.values():  # what was asked for has not been tested
            outcome.complete = False
        code = conclude(outcome)
        if outcome.error:
            code = outcome.error.exit_code
        self._root.end(code)
        return code

    def _join(self) -> bool:
        began = self._shown = time.monotonic()
        seconds = JOIN_SHARE * (self._end - began)
        self._root.go(JOIN, seconds)
        self._began = began
        round, found = self._settle(JOIN, began + seconds)
        self._note_joined(round.states.values())
        if TAKEN in (why := round.states[0].failed or ""):
            raise OddrankError(why)  # no rank's fault
        if not self._came_through(JOIN, began, round, found):
            return False
        self._outcome.findings += judge_join(self._outcome.run)
        return not self._interrupted(JOIN)

    def _walk(self, stage: AnyStage) -> bool:
        """Runs one stage; returns False if the run cannot go on."""
        outcome, run = self._outcome, self._outcome.run
        doubted = [
            f
            for f in outcome.findings
            if stage.confirms and f.stage == stage.confirms and f.cause != "stage-failed"
        ]
        skip = bool(stage.confirms) and not doubted
        over = self._spent >= self._enough and not (doubted or stage.closes)
        parameters: Any = SKIP if skip else Skip(OVER)
        if not skip and not over:
            parameters = self._try(stage, "its plan", partial(stage.plan, run))
            parameters = Skip(FAILED) if parameters is _RAISED else parameters
        if isinstance(parameters, Skip):
            if stage.shown:
                outcome.skipped[stage.name] = parameters.why
            skip, parameters = True, SKIP
        began = self._shown = time.monotonic()
        seconds = min(stage.seconds, self._end - began)
        if seconds <= 0:
            outcome.complete, outcome.why = False, _WHY["late"].format(stage=stage.name)
            return False
        request = {"plan": parameters, "master": self._root.reached_at}
        self._root.go(stage.name, seconds, json.dumps(request))
        round, found = self._settle(stage.name, began + seconds)
        if skip and round.reason == "complete":
            run.states = dict(round.states)
            return not self._interrupted(stage.name)
        if not self._came_through(stage.name, began, round, found, shown=stage.shown):
            return False
        run.results[stage.name] = {r: json.loads(data) for r, data in round.results.items()}
        judged = self._try(stage, "its judgement", partial(stage.conclude, run))
        if judged is not _RAISED:
            if doubted:
                outcome.findings = [f for f in outcome.findings if f not in doubted]
            outcome.findings += judged
        if self._on_stage is not None:
            self._try(stage, "what follows it", partial(self._on_stage, stage, run))
        if not stage.keeps_results:
            del run.results[stage.name]
        return not self._interrupted(stage.name)

    def _try(self, stage: AnyStage, part: str, do: Callable[[], Any]) -> Any:
        """Returns do(), or _RAISED. The walk goes on: other stages' findings must not be lost."""
        failed = partial(findings.failed, part, stage=stage.name)
        done = self._outcome.attempt(do, failed, _RAISED, passes=OddrankError)
        if done is _RAISED:
            self._outcome.complete = False
        return done

    def _came_through(
        self,
        name: str,
        began: float,
        round: StageRound,
        found: Sequence[Suspect],
        shown: bool = True,
    ) -> bool:
        """Notes and prints how many ranks completed a stage; returns False if not all did."""
        outcome, run = self._outcome, self._outcome.run
        run.states = dict(round.states)
        took = time.monotonic() - began
        outcome.seconds[name], outcome.came[name] = took, len(round.results)
        if shown or round.reason != "complete":
            _say(f"{name:<{self._width}}  {len(round.results)}/{run.world}  {took:.1f} s")
        if round.reason == "complete":
            return True
        outcome.findings += findings.of_round(round, found, run)
        if round.reason == "terminated" and not found:
            # Names, as suspects only, the ranks that the deadline would have named.
            behind = self._motion.excuse(blame(replace(round, reason="deadline")))
            outcome.findings += findings.ended_early(behind, run)
        outcome.complete = False
        why: str = "named" if found else round.reason
        if why == "deadline" and self._motion.goes_on():
            why = "slow"
        outcome.why = _WHY[why].format(stage=name, by=_sender(run), signal=run.signals())
        return False

    def _interrupted(self, name: str) -> bool:
        """Returns whether a signal ends the run although all ranks completed this stage.

        A launcher also sends SIGTERM because a rank has died: the next round names that rank.
        """
        if not any(s.sigterm for s in self._outcome.run.states.values()):
            return False
        time.sleep(_GUARDS_SETTLE)
        well = ("running", "uninterruptible")
        if any(s.contact != "ok" or s.state not in well for s in self._root.snapshot()):
            return False
        self._outcome.complete = False
        by, signal = _sender(self._outcome.run), self._outcome.run.signals()
        self._outcome.why = _WHY["interrupted"].format(stage=name, by=by, signal=signal)
        if not self._outcome.findings:
            self._outcome.why += ", with nothing found until then"
        return True

    def _settle(self, stage: str, end: float) -> tuple[StageRound, list[Suspect]]:
        """Collects until the round is complete, a rank is to blame, or its time is over."""
        settled = False
        while True:
            round = self._root.await_stage(stage, partial(self._show, stage), _LOOK_EVERY)
            if round.reason == "complete":
                return round, []
            if time.monotonic() >= end:
                round = replace(round, reason="deadline")
            found = self._motion.excuse(blame(round))
            silent = any(one.cause in _SILENT for one in found)
            if silent and not settled:
                # The guards of one node fall silent one after the other, and may come back.
                settled = True
                time.sleep(min(_GUARDS_SETTLE, max(0.0, end - time.monotonic())))
                continue
            settled = silent
            if found or round.reason in ("deadline", "terminated"):
                return round, found
            if torn_down(round):
                return replace(round, reason="terminated"), found
            # Only victims so far: the rank that tore them down has not shown its fault yet.
            time.sleep(min(0.25, max(0.0, end - time.monotonic())))

    def _show(self, stage: str, states: list[RankState], results: int, left: float) -> None:
        """Shows every few seconds which ranks a person waits for."""
        self._motion.see(states)
        if stage == JOIN:
            self._note_joined(states)
        if time.monotonic() - self._shown < _SHOW_EVERY - 0.1:
            return
        self._shown = time.monotonic()
        missing = [
            s.rank for s in states if s.contact == "never" or (stage != JOIN and not s.published)
        ]
        _say(
            f"{stage:<{self._width}}  {results}/{self._root.world}  not through yet:"
            f" {Who('rank', tuple(missing))}, at most {max(1, math.ceil(left))} s more"
        )

    def _note_joined(self, states: Iterable[RankState]) -> None:
        """Notes when a rank was first seen, by the judge's clock."""
        after = time.monotonic() - self._began
        for state in states:
            if state.contact != "never":
                self._outcome.joined.setdefault(state.rank, after)


def judge_join(run: RunState) -> list[Finding]:
    """Finds ranks with the local rank of another rank of their host.

    Launchers number the ranks of a host in the order of their ranks: only a rank that deviates
    from that is named, not the rank whose number it has.
    """
    found = []
    for members in nodes_of(run):
        has = {rank: run.states[rank].local_rank for rank in members}
        for expected, rank in enumerate(members):
            twins = [other for other in members if other != rank and has[other] == has[rank]]
            if twins and has[rank] != expected:
                found.append(findings.wrong_local_rank(run, rank, expected, twins))
    return found


def _sender(run: RunState) -> str:
    """Names the process that sent the signal: the launcher, or a kill command."""
    known = [s for s in run.states.values() if s.sigterm_by]
    return f" (from process {known[0].sigterm_by} on {known[0].host})" if known else ""


_WHY = {
    "late": "the deadline came before stage {stage}, and no rank can be named",
    "named": "later stages did not run",
    "slow": "the deadline came in stage {stage} while the ranks still came further: slow, not"
    " stuck; a longer --deadline may help",
    "deadline": "the deadline came in stage {stage}, and no rank can be named",
    "terminated": "{signal}{by} ended the job in stage {stage}, and no rank can be named",
    "interrupted": "{signal}{by} ended the job after stage {stage}",
}


def _say(line: str) -> None:
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except OSError:  # a closed pipe must not cost the verdict
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
