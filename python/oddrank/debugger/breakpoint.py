"""`oddrank.breakpoint()`: stops one rank in pdb; the others wait for it, and never for ever."""

import itertools
import math
import multiprocessing
import os
import pdb
import sys
import time
import weakref
from collections.abc import Callable
from contextlib import closing
from types import FrameType
from typing import Any

from oddrank import forks, job_store, launch, render
from oddrank.debugger.channel import Channel, Listener, terminal
from oddrank.debugger.waiting import Stopped, Waiting
from oddrank.errors import LaunchError, OddrankError
from oddrank.job_store import JobStore
from oddrank.pauses import Paused

_numbers = itertools.count()
_store: tuple[weakref.ref[Any], JobStore] | None = None
"""The process group and this process's connection to its store, from the first call on.

A weak reference: a group that outlives destroy_process_group() may abort the process at its exit,
as gloo's threads still run then.
"""
_active: "_RankPdb | None" = None


def breakpoint(
    rank: int | None = 0, when: Callable[[], object] | None = None, *, deadline: float = 3600.0
) -> None:
    """Stops `rank` at the caller's next line; all ranks call it, and the others wait.

    The debugger is at the process's terminal, or comes by `oddrank attach`. The others go on when
    it first steps or continues, when it quits or dies, and after `deadline` seconds.

    rank: None stops each process that comes here, and none waits. when: called on that rank; it
    stops if the result is true.
    In other processes than the ranks themselves (workers of a DataLoader, forked children) no rank
    waits, and `rank` is the rank that they belong to.

    Example: oddrank.breakpoint(3, when=lambda: loss.isnan())
    """
    if not (isinstance(deadline, int | float) and 0 < deadline < math.inf):
        raise OddrankError(f"deadline={deadline!r}: give a number of seconds above 0")
    if rank is not None and not hasattr(rank, "__index__"):
        raise OddrankError(f"rank={rank!r}: give the number of a rank, or None")
    if when is not None and not callable(when):
        raise OddrankError(f"when={when!r}: give a function without arguments, or None")
    frame = sys._getframe(1)
    if rank is None or not _is_rank():
        own = _own_rank()
        if (rank is None or rank == own) and (when is None or when()):
            _debug(frame, own, deadline, None)
        return
    store, key = _connected(), f"{next(_numbers)}/{rank}"
    if not 0 <= rank < store.world:
        raise OddrankError(f"rank={rank!r}: this job has the ranks 0 to {store.world - 1}")
    if store.rank != rank:
        Waiting(store, key, rank, deadline).wait()
        return
    stopped = Stopped(store, key, deadline)
    is_debugged = False
    try:
        if when is None or when():
            is_debugged = _debug(frame, rank, deadline, stopped)
    finally:
        if not is_debugged:
            stopped.over()


def _debug(frame: FrameType, rank: int, deadline: float, stopped: Stopped | None) -> bool:
    """Returns whether a debugger has come. If so, it notifies the others at its end."""
    global _active
    if _active is not None and not _active.is_over:  # it has come to the next breakpoint
        if stopped is not None:
            stopped.over()
        _active.stop_at(frame)
        return True
    end = time.monotonic() + deadline
    place = _place_of(frame)
    who = f"rank {rank} ({os.uname().nodename}, pid {os.getpid()})"
    channel: Channel | None = terminal(end)
    if channel is not None:
        _tell(f"{who} stops at {place}, in pdb at its terminal", stopped)
    else:
        waits = Paused("breakpoint", deadline, place)
        with waits, closing(Listener(rank)) as listener:
            name = rank if _is_rank() else f"{rank} --pid {os.getpid()}"
            _tell(
                f"{who} stops at {place} for a debugger, at most {deadline:g} s. On"
                f" {os.uname().nodename}: oddrank attach {name}",
                stopped,
            )
            channel = listener.accept(end)
    if channel is None:
        render.progress(f"oddrank: nobody has attached: {who} goes on", sys.stderr)
        return False
    _active = _RankPdb(channel, stopped)
    _active.stop_at(frame)
    return True


def _tell(where: str, stopped: Stopped | None) -> None:
    """Prints it on this rank and on one other: the output of either may not be shown."""
    render.progress(f"oddrank: {where}", sys.stderr)
    if stopped is not None:
        stopped.stops(where)


def _connected() -> JobStore:
    global _store
    group = _group()
    if group is None:  # a job of one rank, with a store in its own memory
        return job_store.connect("oddrank.breakpoint()", "breakpoint")
    if _store is None or _store[0]() is not group:
        _store = weakref.ref(group), job_store.connect("oddrank.breakpoint()", "breakpoint")
    return _store[1]


def _is_rank() -> bool:
    """Returns whether this process is a rank of torch's default process group, or a job of one.
    A forked child has its parent's group, but must not use it."""
    group = _group()
    if group is not None:
        return group is not forks.inherited
    return not forks.is_fork() and multiprocessing.parent_process() is None


def _group() -> Any:
    return sys.modules["torch.distributed"].group.WORLD if job_store.has_group() else None


def _own_rank() -> int:
    if job_store.has_group():
        return int(sys.modules["torch.distributed"].get_rank())
    try:
        return launch.current().rank
    except LaunchError:
        return -1


def _place_of(frame: FrameType | None) -> str:
    """Returns a frame's place as people write it: train.py:41."""
    if frame is None:
        return "?"
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


class _RankPdb(pdb.Pdb):
    """A pdb whose end is never the program's end. stopped: notifies the others; None: no others."""

    def __init__(self, channel: Channel, stopped: Stopped | None) -> None:
        # No signal handler: Ctrl-C stays the program's. No .pdbrc: it may hold `continue`.
        super().__init__(
            stdin=channel,  # type: ignore[arg-type]
            stdout=channel,  # type: ignore[arg-type]
            skip=["oddrank", "oddrank.*"],
            nosigint=True,
            readrc=False,
        )
        self._channel, self._stopped = channel, stopped
        self.is_over = False
        self._previous = sys.gettrace()

    def stop_at(self, frame: FrameType) -> None:
        """Stops at the next line of the frame."""
        sys.settrace(None)  # else, at another breakpoint, it would stop within itself
        self.set_trace(frame)

    def interaction(self, frame: FrameType | None, *more: Any) -> None:
        with Paused("breakpoint", self._channel.left, _place_of(frame)):
            super().interaction(frame, *more)
        if sys.gettrace() is None:
            self._end()
        elif self._stopped is not None:
            self._stopped.steps()

    def do_quit(self, arg: str) -> bool:
        """q(uit) | exit
        Leaves the debugger. The program goes on.
        """
        self.clear_all_breaks()
        self.set_continue()
        return True

    do_q = do_exit = do_quit

    def do_EOF(self, arg: str) -> bool:
        """EOF
        Leaves the debugger, as quit does.
        """
        if self._channel.is_late:
            self._channel.is_open = True  # for a last word
            self.message("\nthe deadline has passed: the rank goes on")
        return self.do_quit(arg)

    def do_run(self, arg: str) -> None:
        """run | restart
        Not here: a rank can't start again alone.
        """
        self.error("a rank can't start again alone")

    do_restart = do_run

    def do_interact(self, arg: str) -> None:
        """interact
        Not here: it takes a terminal. Type statements at the prompt, after a !.
        """
        self.error("it takes a terminal: type statements here, after a !")

    def _end(self) -> None:
        if not self.is_over:
            self.is_over = True
            sys.settrace(self._previous)  # oddrank's recorder has it up to Python 3.11
            self._channel.close()
            if self._stopped is not None:
                self._stopped.over()
