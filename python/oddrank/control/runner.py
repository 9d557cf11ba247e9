"""Walks a table of stages over all ranks, by a deadline: here the workers' side, who measure."""

import contextlib
import importlib.util
import json
import math
import os
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from oddrank.control import rendezvous
from oddrank.control.culprits import PUBLISHING
from oddrank.control.inject import check
from oddrank.control.keeper import keep_this_rank
from oddrank.control.laps import Laps
from oddrank.control.meeting_point import path_under
from oddrank.control.session import Member, Session, SessionEnded, start
from oddrank.control.stages import Rounds, Stage
from oddrank.control.walk import SKIP, Outcome, Walk
from oddrank.errors import OddrankError
from oddrank.launch import Launch, job_folder

# Before the deadline the judge must have said its verdict and told the guards.
_RESERVE = 1.0


def run(
    stages: Sequence[Stage],
    launch: Launch,
    *,
    deadline: float,
    conclude: Callable[[Outcome], int],
    on_stage: Callable[[Stage, Rounds], None] | None = None,
    partial: bool = False,
    enough: float = math.inf,
    no_verdict: int = 1,
) -> NoReturn:
    """This rank's part in a command over all ranks; ends the process with its exit code.

    deadline: seconds from now, for everything. conclude: says the verdict and gives the exit code
    of all ranks; runs in the judge's process, as does on_stage after each stage that came through.
    An OddrankError of a stage's plan or judgement ends the walk with that error's exit code on all
    ranks; partial: what was measured before is worth concluding, and the outcome has the `error`.
    enough: seconds; once the stages that are counted have taken so long, the rest is skipped, but
    for those that confirm what was found or close what was begun.
    no_verdict: exit code of a rank that hears none: rank 0 never came, or its node is lost.
    """
    if importlib.util.find_spec("torch") is None:
        raise OddrankError("torch is missing: pip install torch")
    rendezvous.check(launch)
    check([stage.name for stage in stages], launch.world)
    member = Member(
        launch.rank, launch.local_rank, launch.world, launch.local_world, _node(launch), launch.host
    )
    end = time.monotonic() + deadline - _RESERVE
    meeting_point = _meeting_point(launch)  # named after the launcher, not after a keeper
    if launch.clears_up:
        keep_this_rank(deadline)
    session = start(
        member,
        deadline=deadline,
        judge=lambda root: Walk(root, stages, end, on_stage, partial=partial, enough=enough).judge(
            conclude
        ),
        meeting_point=meeting_point,
        no_verdict=no_verdict,
    )
    meeting = rendezvous.Rendezvous(launch, session, deadline)
    session.progress(PUBLISHING if launch.rank == 0 else "find rank 0")
    meeting.start()
    code = _work(stages, _Worker(launch, session, meeting, deadline))
    # Not through the interpreter's end: threads of torch that wait for a lost rank would delay it.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _node(launch: Launch) -> int:
    """The same on all ranks of a host: by its name where the launcher does not number the hosts."""
    if launch.node_is_known:
        return launch.node
    return zlib.crc32(launch.host.encode(errors="replace")) % (1 << 30)


def _meeting_point(launch: Launch) -> str:
    """Only where one process a host and a run starts the ranks, after which it can be named."""
    if not launch.one_parent:
        return ""
    return path_under(job_folder(launch), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


@dataclass
class _Worker:
    """The Context of a rank."""

    launch: Launch
    session: Session
    meeting: rendezvous.Rendezvous
    seconds: float
    parameters: Any = None
    master: str = ""
    kept: dict[str, Any] = field(default_factory=dict)

    def step(self, text: str, *, waiting: bool = False) -> None:
        self.session.progress(text, waiting=waiting)

    def laps(self, capacity: int) -> Laps:
        return self.session.laps(capacity)

    def sync_clock(self, seconds: float = 5.0) -> tuple[int, int]:
        return self.session.sync_clock(seconds)

    def own(self, values: Any) -> Any:
        if self.session.injected("value"):
            values[len(values) // 2] += 1
        return values

    def store(self) -> Any:
        return self.meeting.store()


def _work(stages: Sequence[Stage], worker: _Worker) -> int:
    """Measures stage after stage; after an exception waits for the end. Returns the exit code."""
    session = worker.session
    try:
        for stage in stages:
            told = json.loads(session.enter(stage.name))
            worker.parameters, worker.master = told["plan"], told["master"]
            measured = None if worker.parameters == SKIP else stage.measure(worker)
            session.publish(json.dumps(session.said(measured)).encode())
    except SessionEnded as ended:
        return ended.exit_code
    except Exception as error:
        with contextlib.suppress(OddrankError):  # without its guard: finish() says so
            session.fail(_one_line(error), _place(error))
    return session.finish()


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split("\n", 1)[0].split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _place(error: BaseException) -> str:
    """file:line that raised it."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    return f"{frame.f_code.co_filename}:{line}"
