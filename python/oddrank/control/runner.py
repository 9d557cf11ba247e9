"""Walks a table of stages over all ranks: workers measure, the judge judges, all by a deadline."""

import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from oddrank.control import findings, rendezvous
from oddrank.control.culprits import culprits
from oddrank.control.stages import Rounds, Stage
from oddrank.errors import OddrankError
from oddrank.finding import Finding

if TYPE_CHECKING:
    from oddrank.control.root import Root, Round
    from oddrank.control.session import Session
    from oddrank.launch import Launch

# Before the deadline the judge must have said its verdict and told the guards.
_RESERVE = 0.7
# Guards of one node fall silent one after the other.
_GUARDS_SETTLE = 1.0
_SKIP = "skip"


@dataclass
class Outcome:
    """What the judge has when the table is through, or cannot go on."""

    rounds: Rounds
    findings: list[Finding] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)  # of each stage, also the last one
    came: dict[str, int] = field(default_factory=dict)  # how many ranks gave a result for it
    complete: bool = True
    why: str = ""  # not complete: what came in between


def run(
    stages: Sequence[Stage],
    launch: "Launch",
    *,
    deadline: float,
    conclude: Callable[[Outcome], int],
    on_stage: Callable[[Stage, Rounds], None] | None = None,
) -> int:
    """This rank's part in a command over all ranks; returns its exit code.

    deadline: seconds from now, for everything. conclude: says the verdict and gives the exit code
    of all ranks; runs in the judge's process, as does on_stage after each stage that came through.
    """
    if importlib.util.find_spec("torch") is None:
        raise OddrankError("torch is missing: pip install torch")
    rendezvous.check(launch)
    # Late: an import of torch by one of these would come before the guard's fork.
    from oddrank.control.session import Member, start

    def judge(root: "Root") -> int:
        walk = _Walk(root, stages, began + deadline - _RESERVE, on_stage)
        return walk.judge(conclude)

    began = time.monotonic()
    member = Member(
        launch.rank, launch.local_rank, launch.world, launch.local_world, launch.node, launch.host
    )
    session = start(member, deadline=deadline, judge=judge)
    meeting = rendezvous.Rendezvous(launch, session, deadline)
    meeting.start()
    return _work(stages, _Place(launch, session, meeting, deadline))


@dataclass
class _Place:
    """The Context of a worker."""

    launch: "Launch"
    session: "Session"
    meeting: rendezvous.Rendezvous
    seconds: float
    parameters: Any = None
    kept: dict[str, Any] = field(default_factory=dict)

    def step(self, text: str, *, waiting: bool = False) -> None:
        self.session.progress(text, waiting=waiting)

    def store(self) -> Any:
        return self.meeting.store()

    def meet(self) -> None:
        while not self.meeting.finished(0.1):
            pass


def _work(stages: Sequence[Stage], place: _Place) -> int:
    from oddrank.control.session import SessionEnded

    session = place.session
    try:
        for stage in stages:
            try:
                told = session.enter(stage.name)
                place.parameters = json.loads(told) if told else None
                if place.parameters == _SKIP:
                    session.publish(b"null")
                else:
                    session.publish(json.dumps(stage.measure(place)).encode())
            except SessionEnded:
                raise
            except Exception as error:
                session.fail(_one_line(error))
                break
        return int(session.finish())
    except SessionEnded as ended:
        return int(ended.exit_code)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split("\n", 1)[0].split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class _Walk:
    """The judge's side of one run."""

    def __init__(
        self,
        root: "Root",
        stages: Sequence[Stage],
        end: float,
        on_stage: Callable[[Stage, Rounds], None] | None,
    ) -> None:
        self._root, self._stages, self._end, self._on_stage = root, stages, end, on_stage
        self._outcome = Outcome(Rounds(root.world))

    def judge(self, conclude: Callable[[Outcome], int]) -> int:
        """Walks, says the verdict, and only then lets the ranks end: launchers print after that."""
        code = 2
        try:
            for stage in self._stages:
                if not self._walk(stage):
                    break
            code = conclude(self._outcome)
        except OddrankError as error:
            sys.stderr.write(f"oddrank: {error}\n")
        finally:
            self._root.end(code)
        return code

    def _walk(self, stage: Stage) -> bool:
        """One stage; False where there is no going on."""
        outcome, rounds = self._outcome, self._outcome.rounds
        doubted = [f for f in outcome.findings if stage.confirms and f.stage == stage.confirms]
        skip = bool(stage.confirms) and not doubted
        began = time.monotonic()
        seconds = min(stage.seconds, self._end - began)
        if seconds <= 0:
            outcome.complete = False
            outcome.why = (
                f"the deadline came before stage {stage.name}, and nothing points at anybody"
            )
            return False
        self._root.go(stage.name, seconds, json.dumps(_SKIP if skip else stage.plan(rounds)))
        round, found = self._settle(stage, began + seconds)
        rounds.states = dict(round.states)
        took = time.monotonic() - began
        if not skip or found or round.reason != "complete":
            outcome.seconds[stage.name], outcome.came[stage.name] = took, len(round.results)
            _say(f"{stage.name:<12} {len(round.results)}/{rounds.world}  {took:.1f} s")
        if found or round.reason != "complete":
            outcome.findings += [findings.of(culprit, rounds) for culprit in found]
            outcome.complete = False
            outcome.why = _WHY[round.reason].format(stage=stage.name)
            return False
        if skip:
            return True
        rounds.results[stage.name] = {r: json.loads(data) for r, data in round.results.items()}
        judged = stage.judge(rounds)
        if judged and doubted:
            outcome.findings = [f for f in outcome.findings if f not in doubted]
        outcome.findings += judged
        if self._on_stage is not None:
            self._on_stage(stage, rounds)
        return True

    def _settle(self, stage: Stage, end: float) -> tuple["Round", list[Any]]:
        """Collects until the round is through, somebody can be named, or its time is over."""
        while True:
            round = self._root.collect(stage.name)
            if round.reason == "complete":
                return round, culprits(round)
            if time.monotonic() >= end:
                round = replace(round, reason="deadline")
            found = culprits(round)
            if any(culprit.cause in ("guard-lost", "link-cut", "node-lost") for culprit in found):
                time.sleep(min(_GUARDS_SETTLE, max(0.0, end - time.monotonic())))
                return self._again(round)
            if found or round.reason in ("deadline", "terminated"):
                return round, found
            # Only victims so far: who tore them down is not seen yet.
            time.sleep(min(0.25, max(0.0, end - time.monotonic())))

    def _again(self, round: "Round") -> tuple["Round", list[Any]]:
        states = {state.rank: state for state in self._root.snapshot()}
        round = replace(round, states=states)
        return round, culprits(round)


_WHY = {
    "complete": "",
    "fault": "a rank failed in stage {stage}",
    "deadline": "the deadline came in stage {stage}, and nothing points at anybody",
    "terminated": "the launcher ended the job in stage {stage}, and nothing points at anybody",
}


def _say(line: str) -> None:
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except OSError:  # a closed pipe must not cost the verdict
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
