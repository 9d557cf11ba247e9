"""The parent's side of a test with ranks: watches them, lets them go on together, ends them all.

Every wait has a deadline. When `run` returns or raises, no process of the ranks is left.
"""

import os
import selectors
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from oddrank.marker import leftovers, rank_start, warm
from oddrank.marker.protocol import DUMP, shortened
from oddrank.marker.rank_start import Rank, drain

# After the first failure the other ranks may end by themselves, or fail too, until they have used
# no CPU for _IDLE seconds, and not longer than _SETTLE: NCCL spins while it waits.
_IDLE = 1.0
_SETTLE = 15.0
# The deadline counts from the moment when all ranks begin the test. They may import for so long.
_IMPORT = 300.0
# Seconds for fixtures to end after a verdict: on ranks that had ended the test, on the others.
_TEARDOWN = 5.0
_LAST_CHANCE = 1.0
_DUMP = 1.0  # seconds for stacks to be written
_TICK = 0.05
# If a turn takes longer, this process was paused, and could not see the ranks.
_OWN_PAUSE = 1.0


class RankGroup:
    """All ranks of one test.

    late: "8 s" if the deadline has passed, or another plugin's reason to end the wait. begun: all
    ranks have imported what they need, and have begun the test. left: the processes that the test
    had left. evidence: facts from records at the verdict. cold: why the ranks could not be forked,
    and are fresh interpreters.
    """

    def __init__(self, item: pytest.Function, count: int, deadline: float, fresh: bool) -> None:
        self.item, self.count, self.deadline = item, count, deadline
        self.ranks: list[Rank] = []
        self.late = ""
        self.begun = False
        self.left: list[str] = []
        self.evidence: Any = None
        option = item.config.option
        self.debug = any(getattr(option, name, False) for name in ("usepdb", "trace"))
        # A forked process has no terminal to control.
        self._fresh = fresh or self.debug
        self.cold = ""
        self._selector = selectors.DefaultSelector()
        self._first_failure: float | None = None
        self._idle_since: tuple[float, dict[int, int]] = (0.0, {})

    @property
    def is_bad(self) -> bool:
        return bool(self.late) or any(r.has_failed or r.has_died for r in self.ranks)

    def run(self) -> None:
        """Runs the test in all ranks, until they have ended or the verdict is made."""
        with self._terminal(), rank_start.place(self.item.config) as place:
            try:
                for number in range(self.count):
                    self._start(number, place)
                self._watch(place.records)
                self._let_end()
            finally:
                self._end_all()
            if self.is_bad and self.evidence is None:
                self._collect(place.records)

    def _start(self, number: int, place: rank_start.Place) -> None:
        start = partial(
            rank_start.start, number, self.count, self.item, self.deadline, place,
            debug=self.debug and number == 0,
        )  # fmt: skip
        try:
            rank = start(fresh=self._fresh)
        except warm.Cold as error:
            self._fresh, self.cold = True, str(error)
            rank = start(fresh=True)
        self.ranks.append(rank)
        self._selector.register(rank.channel, selectors.EVENT_READ, rank.hear)
        for pipe, captured in rank.pipes.items():
            self._selector.register(pipe, selectors.EVENT_READ, partial(drain, pipe, captured))

    def _watch(self, records: Path) -> None:
        start, seconds = time.monotonic(), max(self.deadline, _IMPORT)
        turn, paused = start, 0.0
        try:
            while not self._all_ended() and not self._has_settled():
                self._wait()
                last, turn = turn, time.monotonic()
                # Not for ever: each turn may take so long.
                if turn - last > _OWN_PAUSE and paused < seconds:
                    paused += turn - last
                    start += turn - last
                self._release_if_all_hold()
                if not self.begun and all(
                    "begins" in r.passed or r.code is not None for r in self.ranks
                ):
                    self.begun = True
                    start, seconds = time.monotonic(), self.deadline
                if any("debugs" in rank.passed for rank in self.ranks):
                    continue  # a person decides how long it takes
                if not self._all_ended() and time.monotonic() >= start + seconds:
                    self.late = f"{seconds:g} s"
                    break
        except pytest.fail.Exception as error:  # pytest-timeout's, from its signal handler
            self.late = str(error)
        if not self._all_ended() and self.is_bad:
            self._collect(records)

    def _all_ended(self) -> bool:
        return all(rank.code is not None for rank in self.ranks)

    def _wait(self) -> None:
        """Reads the ranks' output and messages, and notices ranks that have ended."""
        for key, _ in self._selector.select(_TICK):
            if not key.data():
                self._selector.unregister(key.fileobj)
        for rank in self.ranks:
            if rank.code is None:
                rank.look()

    def _release_if_all_hold(self) -> None:
        living = [rank for rank in self.ranks if rank.code is None]
        if all(rank.holds for rank in living):
            for rank in living:
                rank.release()

    def _has_settled(self) -> bool:
        """Returns whether the test is decided: a rank has failed, and the others get no further."""
        now = time.monotonic()
        if any(rank.left for rank in self.ranks):
            return True
        if self._first_failure is None:
            if any(rank.has_failed or rank.has_died for rank in self.ranks):
                self._first_failure = now
            return False
        if any("debugs" in rank.passed for rank in self.ranks):
            return False
        if now - self._first_failure > _SETTLE:
            return True
        used = {r.number: r.cpu_ticks() for r in self.ranks if r.code is None and not r.holds}
        since, before = self._idle_since
        if used != before or -1 in used.values():
            self._idle_since = (now, used)
            return False
        return now - since > _IDLE

    def _collect(self, records: Path) -> None:
        """Keeps the verdict's evidence: stacks and records, while the ranks still stand there."""
        for rank in self.ranks:
            rank.was_running = rank.code is None and not rank.holds
        asked = [rank for rank in self.ranks if rank.was_running and "ready" in rank.passed]
        for rank in asked:
            with suppress(OSError):
                os.kill(rank.process.pid, DUMP)
        limit = time.monotonic() + _DUMP
        sizes: list[int] = []
        while asked and time.monotonic() < limit:
            self._wait()
            now = [rank.stacks.stat().st_size for rank in asked]
            if all(now) and now == sizes:
                break
            sizes = now
        for rank in asked:
            with suppress(OSError):
                rank.dump = shortened(rank.stacks.read_text(errors="replace"))
        # Imported here: only a failure takes the judge.
        from oddrank.marker.evidence import evidence

        self.evidence = evidence(self.ranks, records)

    def _let_end(self) -> None:
        """After a verdict fixtures may still end, for a short time."""
        start = time.monotonic()
        while not self._all_ended():
            for rank in self.ranks:
                if rank.holds:
                    rank.release()
            healthy = any(rank.code is None and not rank.was_running for rank in self.ranks)
            if time.monotonic() - start > (_TEARDOWN if healthy else _LAST_CHANCE):
                break
            self._wait()

    def _end_all(self) -> None:
        own = {rank.process.pid for rank in self.ranks}
        ended = leftovers.end(rank_start.TOKEN, own)
        self.left = [f"{name} (pid {pid})" for pid, name in ended.items() if pid not in own]
        for rank in self.ranks:
            rank.close()
        self._selector.close()

    @contextmanager
    def _terminal(self) -> Iterator[None]:
        """Gives the terminal to rank 0 if it may run a debugger."""
        if not self.debug:
            yield
            return
        capture = self.item.config.pluginmanager.getplugin("capturemanager")
        # Ctrl-C is for the debugger. Not SIG_IGN: rank 0 would inherit that.
        before = signal.signal(signal.SIGINT, lambda *_: None)
        if capture is not None:
            capture.suspend(in_=True)
        try:
            yield
        finally:
            if capture is not None:
                capture.resume()
            signal.signal(signal.SIGINT, before)
