"""`oddrank.switch()`: a folder from which people and schedulers tell a running job to save or end.

Rank 0 alone reads the order, in a thread of its own: a file system that hangs blocks that thread
only. Another thread of each rank agrees with the other ranks through the job's store.
"""

import itertools
import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from oddrank import job, job_store, render
from oddrank.errors import OddrankError
from oddrank.job_store import Poller
from oddrank.switches import order_file
from oddrank.switches.agreement import IDLE, Agreement, RefusedError, Root, Wanted
from oddrank.switches.order_file import KILL, OFF, SAVE, JobReport, Order
from oddrank.switches.signals import Signals

_READ_EVERY = 1.0
_REPORT_EVERY = 10.0
_FIRST_READ_SECONDS = 10.0  # the start waits so long for the order, then goes on without
_START_SECONDS = 300.0  # the start waits so long for rank 0
_TERM_SECONDS = 8.0  # without agreement by then, a rank ends by SIGTERM as without a switch
_SAME_SECONDS = 10.0  # a signal so soon after a save is about that save: schedulers send several

_numbers = itertools.count()
_open: "weakref.WeakSet[Switch]" = weakref.WeakSet()


def switch(path: str | os.PathLike[str], *, signals: bool = True) -> "Switch":
    """Begins to watch a folder; all ranks call it, after init_process_group(). Returns a Switch.

    Each rank calls poll() of the Switch after each step. `oddrank switch kill|save DIR` writes
    an order. signals: SIGUSR1 (save) and SIGTERM (kill), sent to one rank or to all, are orders,
    too.

    Makes the folder, but not its parent. Raises RefusedError, a SwitchError, on all ranks if the
    folder says kill already, or has an order that can't be read.

    Example: order = oddrank.switch("/shared/run1").poll()
    """
    try:
        folder = Path(os.fsdecode(path))
    except TypeError:
        raise OddrankError(f"oddrank.switch({path!r}): give a folder as text or a Path") from None
    if not os.fsdecode(path):
        raise OddrankError("oddrank.switch(''): give the name of a folder")
    if signals and threading.current_thread() is not threading.main_thread():
        raise OddrankError("only the main thread can take signals: give signals=False")
    for one in _open:
        raise OddrankError(f"this process watches {one.path} already: remove() that switch first")
    return Switch(folder, signals)


class Switch:
    """A watched folder. A context manager; remove() ends it.

    poll(): called by each rank after each step. Returns the order to obey now, on all ranks after
    the same step: "" (nearly always), "save" (write a checkpoint) or "kill" (write one, then leave
    the loop). It costs less than a microsecond.
    """

    poll: Callable[[], str]

    def __init__(self, path: Path, signals: bool) -> None:
        self.path = path
        store = job_store.connect("oddrank.switch()", f"switch/{next(_numbers)}")
        self._store, self._agreement = store, Agreement(store)
        self.poll = self._agreement.poll
        self._saves = 0
        self._signalled, self._signalled_at = 0, -math.inf  # signals to save that rank 0 has seen
        self._terminated = math.inf  # when this rank got its first SIGTERM
        self._started = threading.Event()
        self._refusal: str | None = None  # "" once rank 0 says that the job may start
        self._signals: Signals | None = None
        self._folder = _Folder(path, self) if store.rank == 0 else None
        self._root = Root(self._agreement, self._wanted, self._tell)
        self._poller = Poller("switch", self._turn, self._lost, self._last)
        if self._folder is not None:
            self._refusal = self._folder.first()
        self._poller.start()
        if not self._started.wait(_START_SECONDS):
            self._tell(f"rank 0 has not called oddrank.switch() for {_START_SECONDS:g} s")
        if self._refusal:
            self._end()
            raise RefusedError(self._refusal)
        if signals:
            self._signals = Signals(self._poller)
        _open.add(self)

    @property
    def steps(self) -> int:
        """Calls of poll()."""
        return self._agreement.steps

    def remove(self) -> None:
        """Stops watching; orders can't be agreed any more. May be called twice."""
        if self._signals is not None:
            self._signals.restore()
        self._end()
        _open.discard(self)

    def __enter__(self) -> "Switch":
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()

    def report(self) -> JobReport:
        """Returns rank 0's report for `oddrank switch status`."""
        name, host = job.job_name(), os.uname().nodename
        state, world = self._root.state, self._store.world
        return JobReport(name, host, world, self.steps, state, time.time())

    def _end(self) -> None:
        self._poller.stop()
        if self._folder is not None:
            self._folder.poller.stop()

    def _turn(self, woken: bytes) -> float:
        if not self._started.is_set():
            return self._start()
        if self._signals is not None:
            self._pass_on(self._signals, woken)
        if self._folder is not None:
            self._folder.tell_silence()
            self._root.turn()
        return self._agreement.turn()

    def _start(self) -> float:
        """Passes on whether the job may start: else only rank 0 would know, and the others hang."""
        if self._store.rank == 0:
            self._store.put("start", self._refusal or "")
        else:
            self._refusal = self._store.look("start")
        if self._refusal is not None:
            self._started.set()
        return self._store.pace(0.05)

    def _pass_on(self, signals: Signals, woken: bytes) -> None:
        """Reports this rank's signals to rank 0."""
        agreement, now = self._agreement, time.monotonic()
        for word in signals.noted(woken):
            self._store.count(f"signals/{word}", 1)
            if word == KILL:
                self._terminated = min(self._terminated, now)
        if self._terminated < math.inf and agreement.last != KILL:
            waits = now - self._terminated - 3 * self._store.pace(1.0)
            unheard = waits > _TERM_SECONDS and agreement.state == IDLE
            if unheard or agreement.refused == KILL:
                signals.end_by_default()

    def _wanted(self) -> list[Wanted]:
        """Returns the orders of now; a signal's alone, as the process may soon be ended."""
        assert self._folder is not None
        if self._store.count(f"signals/{KILL}"):
            return [Wanted(KILL, "kill (SIGTERM)", "signal kill", urgent=True)]
        if self._has_new_signal():
            return [Wanted(SAVE, "save (SIGUSR1)", f"signal save {self._saves}", urgent=True)]
        order = self._folder.order
        # A save that was there before is for earlier jobs.
        is_over = order.word == SAVE and order.key == self._folder.begun
        return [] if order.word == OFF or is_over else [Wanted(order.word, str(order), order.key)]

    def _has_new_signal(self) -> bool:
        """Returns whether a signal orders a save that was not obeyed yet.
        Counts from the time a signal was seen: this thread may check it again much later."""
        same = self._agreement.obeyed + _SAME_SECONDS
        if self._signalled_at < same:
            self._saves = self._signalled
        count = self._store.count(f"signals/{SAVE}")
        if count > self._signalled:
            self._signalled, self._signalled_at = count, time.monotonic()
            if self._signalled_at < same:
                self._saves = count
        return count > self._saves

    def _lost(self, error: Exception) -> None:
        why = f"the job's store does not answer ({type(error).__name__})"
        self._agreement.fail(why)
        self._started.set()
        if self._signals is not None and self._terminated < math.inf:
            self._signals.end_by_default()
        self._tell(f"ends: {why}")

    def _last(self) -> None:
        self._store.count("closed", 1)

    def _tell(self, text: str) -> None:
        if self._store.rank == 0:
            render.progress(f"oddrank: switch {self.path}: {text}", sys.stderr)


class _Folder:
    """Rank 0's files, read and written in a thread, as a file system may hang.

    path: absolute. order: as last read. begun: the key of the first one; None: not yet.
    """

    def __init__(self, path: Path, switch: Switch) -> None:
        self.path = path.absolute()
        self._switch = switch
        self.order = Order()
        self.begun: str | None = None
        self._first = threading.Event()
        self._lock = threading.Lock()  # guards the two below
        self._starts = True  # first() has not returned: the job can still be refused
        self._refusal = ""
        self._read_at = time.monotonic()
        self._is_silent = False
        self._warned = ""
        self._reported: tuple[float, str] = (-math.inf, "")
        self.poller = Poller("switch-file", self._turn, self._lost, self._last)

    def first(self) -> str:
        """Starts to read; returns why the job must not start, "" if it may."""
        self.poller.start()
        self._first.wait(_FIRST_READ_SECONDS)
        with self._lock:
            self._starts = False
            return self._refusal

    def tell_silence(self) -> None:
        """Says once that the file system hangs, and once that it answers again."""
        silent = time.monotonic() - self._read_at > _FIRST_READ_SECONDS
        if silent != self._is_silent:
            self._is_silent = silent
            hangs = "the file system hangs; signals still work, orders wait"
            self._switch._tell(hangs if silent else "the file system answers again")

    def _turn(self, woken: bytes) -> float:
        if self.begun is None and order_file.prepare(self.path):
            self._switch._tell("this folder is new: if it should not be, check the path")
        self._read()
        self._read_at = time.monotonic()
        self._first.set()
        self._report()
        return _READ_EVERY

    def _read(self) -> None:
        text = ""
        try:
            self.order = order_file.read(self.path)
        except (OSError, OddrankError) as error:  # it takes back nothing
            text = f"an order can't be read: {error}"
        if self.begun is None:
            self.begun = self.order.key
            self._refuse(text or order_file.refusal(self.path, self.order))
        if text not in ("", self._warned) and not self._refusal:
            self._switch._tell(text)
        self._warned = text

    def _refuse(self, why: str) -> bool:
        """Refuses the job. Returns False if it is too late for that."""
        with self._lock:
            if self._starts:
                self._refusal = why
            return self._starts

    def _report(self, state: str = "") -> None:
        one = self._switch.report()
        at, last = self._reported
        is_due = state or one.state != last or time.monotonic() > at + _REPORT_EVERY
        if is_due and not self._refusal:  # a refused job watches nothing
            self._reported = time.monotonic(), one.state
            with suppress(OSError):
                order_file.report(self.path, replace(one, state=state or one.state))

    def _lost(self, error: Exception) -> None:
        if not self._refuse(str(error)):
            self._switch._tell(f"watches no longer: {error}")
        self._first.set()

    def _last(self) -> None:
        if self.begun is not None:
            self._report(order_file.ENDED)
