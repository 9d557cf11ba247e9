"""Runs a table of stages over all ranks, by a deadline: the workers' side, which measures."""

import contextlib
import ctypes
import importlib.util
import json
import math
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from oddrank import _native
from oddrank.control import rendezvous
from oddrank.control.address import fetcher, path_under
from oddrank.control.session import VERDICT_SECONDS, SessionEnded, start
from oddrank.control.stages import PUBLISHING, AnyStage, Context, RunState
from oddrank.control.walk import SKIP, Outcome, Walk
from oddrank.errors import OddrankError, type_and_text
from oddrank.job import job_folder
from oddrank.launch import Launch
from oddrank.machine import end_with, node_number

_PR_SET_CHILD_SUBREAPER = 36
# Signals that launchers send, or people through them.
_PASSED_ON = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2]
# For the address in torch's store, after a rank has died that did not know it.
_FETCH_SECONDS = 60.0
# Added to the deadline: the kernel ends worker, guard and judge a little earlier.
_KEEPER_SECONDS = 1.8


def run(
    stages: Sequence[AnyStage],
    launch: Launch,
    *,
    deadline: float,
    conclude: Callable[[Outcome], int],
    on_stage: Callable[[AnyStage, RunState], None] | None = None,
    partial: bool = False,
    enough: float = math.inf,
    no_verdict: int = 1,
) -> NoReturn:
    """Runs this rank's part of a command over all ranks; ends the process with its exit code.

    deadline: of the command, in seconds from now. conclude: prints the verdict and returns the exit
    code of all ranks. It runs in the judge's process, as does on_stage after each completed stage.
    An OddrankError of a stage's plan or judgement ends the run with that error's exit code on all
    ranks. partial: conclude runs all the same, and its outcome has the `error`.
    enough: seconds. Once the counted stages have taken so long, the others are skipped, except
    those that recheck a finding or close what an earlier stage began.
    no_verdict: exit code of a rank that hears none: rank 0 never came, or its node is lost.
    """
    try:  # if it was deleted, torch and its store would fail in various ways
        os.getcwd()
    except OSError as error:
        raise OddrankError("the working directory is gone: cd to a folder that exists") from error
    if importlib.util.find_spec("torch") is None:
        if launch.local_rank:  # the ranks of a node have one environment: its first one says it
            sys.exit(OddrankError.exit_code)
        raise OddrankError("torch is missing: pip install torch")
    rendezvous.check(launch)
    end = time.monotonic() + deadline - VERDICT_SECONDS
    rendezvous_file = ""  # unless one process per host and run starts the ranks
    if launch.one_parent:  # before a keeper becomes the parent
        restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        rendezvous_file = path_under(job_folder(), restarts)
    if launch.clears_up:
        keep_this_rank(deadline)
    session = start(
        replace(launch, node=node_number(launch)),
        deadline=deadline,
        judge=lambda root: Walk(root, stages, end, on_stage, partial=partial, enough=enough).judge(
            conclude
        ),
        rendezvous_file=rendezvous_file,
        fetcher=fetcher(rendezvous.key(), _FETCH_SECONDS) if launch.world > 1 else (),
        launcher=launch.launcher if launch.one_parent and not launch.clears_up else "",
        no_verdict=no_verdict,
    )
    meeting = rendezvous.Rendezvous(launch, session, deadline)
    session.progress(PUBLISHING if launch.rank == 0 else "find rank 0")
    meeting.start()
    code = _work(stages, Context[Any](launch, session, meeting.store, deadline, None))
    # Skips the interpreter's shutdown: torch's threads that wait for a lost rank would delay it.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def keep_this_rank(deadline: float) -> None:
    """Forks; returns in the child, which is the rank from now on. The parent becomes its keeper.

    The launcher takes the keeper for the rank. SLURM kills everything in a step's cgroup on a node
    once the node's last task has ended; mpirun kills all ranks one second after the first has
    failed. Guards and judge would die before they report. With a keeper the launcher sees a rank
    end only when the run is over, just as it ended.
    deadline: of the command, in seconds from now. Call before threads and the session exist.
    """
    core = _native.core()
    keeper = os.getpid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, no exit status could be read
    held = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    # Guard and judge become the keeper's children once their parent, the rank, has died.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    rank = os.fork()
    if rank:
        core.control_keep(rank, deadline + _KEEPER_SECONDS, [int(s) for s in _PASSED_ON])
    signal.pthread_sigmask(signal.SIG_SETMASK, held)
    end_with(keeper)  # a launcher that kills the keeper means the rank


def _work(stages: Sequence[AnyStage], context: Context[Any]) -> int:
    """Measures stage after stage; after an exception waits for the end. Returns the exit code."""
    session = context.session
    try:
        for stage in stages:
            request = json.loads(session.enter(stage.name))
            context.parameters, context.master = request["plan"], request["master"]
            measured = None if context.parameters == SKIP else stage.measure(context)
            session.publish(json.dumps(session.injector.said(measured)).encode())
    except SessionEnded as ended:
        return ended.exit_code
    except Exception as error:
        with contextlib.suppress(OddrankError):  # the guard is gone: finish() says so
            *_, (frame, line) = traceback.walk_tb(error.__traceback__)
            session.fail(type_and_text(error), f"{frame.f_code.co_filename}:{line}")
    return session.finish()
