"""How the stopped rank notifies the other ranks, and how they wait for it.

All of it runs through the job's store, in threads: the stopped rank says that it stops, that it
goes on under the debugger, and that this is over. Meanwhile it counts up a heartbeat.
"""

import json
import math
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

from oddrank import job_store, render
from oddrank.job_store import JobStore, Poller
from oddrank.pauses import Paused

STOPS, STEPS, OVER = "stops", "steps", "over"
_BEAT_SECONDS = 1.0
_LOST_SECONDS = 30.0  # without a heartbeat for so long, the stopped rank is dead: the others go on
_MORE_SECONDS = 600.0
"""The timeouts of process groups end so long after the deadline: the others have to catch up."""
_NOTE_SECONDS = 30.0  # a rank that has not come to the breakpoint by then is named


class Stopped:
    """The part of the rank that stops: notifies the others, and sends heartbeats."""

    def __init__(self, store: JobStore, key: str, deadline: float) -> None:
        self._store, self._key = store, key
        self._state, self._put = "", ""
        self._where = ""
        self._timeouts = _Timeouts(deadline)
        self._poller = Poller("stopped-rank", self._turn, lambda error: None, self._tell)
        self._poller.start()

    def stops(self, where: str) -> None:
        self._where = where
        self._timeouts.extend()
        self._say(STOPS)

    def steps(self) -> None:
        """Lets the others go on to the collective in which they wait for this rank."""
        self._say(STEPS)

    def over(self) -> None:
        """Ends it. If stops() was not called, no rank stopped."""
        self._timeouts.restore()
        self._say(OVER)
        self._poller.stop()

    def _say(self, state: str) -> None:
        if state != self._state:
            self._state = state
            self._poller.wake()

    def _turn(self, woken: bytes) -> float:
        self._tell()
        if self._state:  # a call that stops nowhere leaves little in the store
            self._store.count(f"{self._key}/beat", 1)
        return _BEAT_SECONDS

    def _tell(self) -> None:
        state = self._state
        if state != self._put:
            self._put = state
            self._store.put(f"{self._key}/state", json.dumps([state, self._where]))


class Waiting:
    """The part of another rank: waits until the stopped one lets it go on, dies, or is late."""

    def __init__(self, store: JobStore, key: str, rank: int, deadline: float) -> None:
        self._store, self._key, self._rank = store, key, rank
        self._begun = time.monotonic()
        self._deadline, self._end = deadline, self._begun + deadline
        self._speaks = store.rank == (1 if rank == 0 else 0)
        self._timeouts = _Timeouts(deadline)
        self._beat = (-1, self._begun)
        self._state, self._noted = "", False
        self._goes_on = threading.Event()
        self._paused = Paused("waits", deadline, str(rank))
        self._poller = Poller("waiting-rank", self._turn, self._lost)

    def wait(self) -> None:
        self._poller.start()
        # The thread decides. It has a deadline for the rank to come, and one from then on.
        if not self._goes_on.wait(2 * self._deadline + _LOST_SECONDS):
            self._paused.close()  # the thread may yet hear that the rank stops
            self._say("the store does not answer: the others go on")

    def _turn(self, woken: bytes) -> float | None:
        now = time.monotonic()
        text = self._store.look(f"{self._key}/state")
        state, where = json.loads(text) if text is not None else ("", "")
        if state == OVER:
            self._go_on("")
            return None
        if now > self._end:
            self._go_on("the deadline has passed: the others go on")
            return None
        if state == "":
            if not self._noted and now - self._begun > _NOTE_SECONDS:
                self._noted = True
                self._say(f"rank {self._rank} has not come to the breakpoint yet; the others wait")
            # A breakpoint whose `when` is false should cost little.
            return self._store.pace(min(_BEAT_SECONDS / 2, max(1e-3, (now - self._begun) / 4)))
        if state != self._state:
            self._state = state
            if state == STOPS:
                self._end = now + self._deadline
                self._paused.begin()
                self._say(where)
            self._timeouts.extend()
        if state == STEPS:
            self._let_go()  # the timeouts stay long until it is over
        beat = self._store.count(f"{self._key}/beat")
        if beat != self._beat[0]:
            self._beat = beat, now
        elif now - self._beat[1] > _LOST_SECONDS:
            self._go_on(f"rank {self._rank} is dead or stopped: the others go on")
            return None
        return self._store.pace(_BEAT_SECONDS / 2)

    def _go_on(self, why: str) -> None:
        if why:
            self._say(why)
        self._timeouts.restore()
        self._let_go()

    def _let_go(self) -> None:
        self._paused.close()
        self._goes_on.set()

    def _lost(self, error: Exception) -> None:
        self._go_on(f"the job's store does not answer ({type(error).__name__}): the others go on")

    def _say(self, text: str) -> None:
        if self._speaks:
            render.progress(f"oddrank: {text}", sys.stderr)


class _Timeouts:
    """Timeouts of this rank's process groups while a debugger has a rank, for later collectives."""

    def __init__(self, deadline: float) -> None:
        self._seconds = deadline + _MORE_SECONDS
        self._before: list[tuple[Any, timedelta]] = []

    def extend(self) -> None:
        if self._before or not math.isfinite(self._seconds):
            return
        longer = timedelta(seconds=self._seconds)
        for backend in _backends():
            with suppress(AttributeError, RuntimeError):  # neither gloo nor NCCL
                before = backend.options._timeout
                if before < longer:
                    backend._set_default_timeout(longer)
                    self._before.append((backend, before))

    def restore(self) -> None:
        for backend, before in self._before:
            backend._set_default_timeout(before)
        self._before = []


def _backends() -> Iterator[Any]:
    """Yields the backends of all process groups of which this rank is a member."""
    if not job_store.has_group():  # a job of one rank: torch is not imported for it
        return
    from torch.distributed import distributed_c10d

    seen = set()
    for group in list(distributed_c10d._world.pg_map):
        for device in group._device_types:
            with suppress(RuntimeError):  # no backend for this device
                backend = group._get_backend(device)
                if id(backend) not in seen:
                    seen.add(id(backend))
                    yield backend
