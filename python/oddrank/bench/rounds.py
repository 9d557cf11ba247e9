"""The rounds of a sweep that is repeated: each row's best, median and worst, in bounded memory."""

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TextIO

from oddrank.bench.plan import Pass
from oddrank.bench.row import Row, Table
from oddrank.render import progress, table

# Rounds whose times are kept for the median: evenly spread over all.
_MOST_KEPT = 1024
_COLUMNS = ("case", "rounds", "best us", "median us", "worst us", "worst in round", "at")


@dataclass
class History:
    """A row's mean time, in microseconds, over all rounds. worst_at: seconds since 1970."""

    number: int = 0
    best: float = math.inf
    worst: float = -math.inf
    worst_round: int = 0
    worst_at: float = 0.0
    _kept: list[float] = field(default_factory=list)
    _step: int = 1

    def add(self, value: float, in_round: int, at: float) -> None:
        if self.number % self._step == 0:
            self._kept.append(value)
            if len(self._kept) > _MOST_KEPT:
                self._kept, self._step = self._kept[::2], 2 * self._step
        self.number += 1
        self.best = min(self.best, value)
        if value > self.worst:
            self.worst, self.worst_round, self.worst_at = value, in_round, at

    @property
    def median(self) -> float:
        """The median over the rounds kept: beyond 1024 rounds, of evenly spread ones."""
        return statistics.median(self._kept)

    def as_data(self) -> dict[str, Any]:
        return {
            "rounds": self.number,
            "best_us": self.best,
            "median_us": self.median,
            "worst_us": self.worst,
            "worst_round": self.worst_round,
            "worst_at": _clock(self.worst_at),
        }


class Rounds:
    """Collects the rows of each round by their tasks' names."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.number = 0  # complete rounds
        self._clock, self._began = clock, clock()
        self._now: dict[str, Row] = {}
        self._last: dict[str, Row] = {}
        self._histories: dict[str, History] = {}

    def add(self, name: str, row: Row) -> None:
        """Takes a row of the round that runs; a later pass's replaces it."""
        self._now[name] = row

    def end(self) -> str:
        """Ends a round, if one has run, and returns its line."""
        self.number += 1
        now = self._clock()
        farthest, by = "", 0.0
        for name, row in self._now.items():
            if row.mean_us is None:
                continue
            history = self._histories.setdefault(name, History())
            history.add(row.mean_us, self.number, now)
            ratio = row.mean_us / history.median if history.median > 0 else 0.0
            if ratio > by and self.number > 1:
                farthest, by = name, ratio
        took = now - self._began
        text = f"round {self.number}  {_clock(now)}  {len(self._now)} rows in {took:.1f} s"
        if farthest:
            text += f"; slowest against its median: {farthest}, {by:.2f} times"
        self._last, self._now, self._began = self._now, {}, now
        return text

    def rows(self, *, whole: bool) -> dict[str, Row]:
        """Returns the rows with their histories. whole: those of the last complete round, if there
        is one; else those of the round that ran last, where it came to them."""
        found = {**self._last, **({} if whole and self._last else self._now)}
        return {
            name: replace(row, rounds=self._histories[name].as_data())
            if name in self._histories
            else row
            for name, row in found.items()
        }


class Display:
    """Shows the rows of a sweep as they come; if it is repeated, a line for each further round.

    first: the pass with which each round begins.
    """

    def __init__(self, first: Pass, stream: TextIO) -> None:
        self._first, self._stream = first, stream
        self._table, self._rounds = Table(stream), Rounds()
        self._has_begun = False

    def add(self, one_pass: Pass, row: Row) -> None:
        """Shows the row of a case after that pass."""
        if one_pass is self._first and self._has_begun:
            progress(self._rounds.end(), self._stream)
        self._has_begun = True
        self._rounds.add(one_pass.task.name, row)
        if not self._rounds.number:
            self._table.add(one_pass, row)

    def end(self, rounds: int, *, whole: bool) -> dict[str, Row]:
        """Returns the rows by their tasks' names, as Rounds.rows does; shows them again if there
        were more passes or rounds. rounds: complete ones; 0: the sweep was not repeated."""
        while self._rounds.number < rounds:
            progress(self._rounds.end(), self._stream)
        rows = self._rounds.rows(whole=whole)
        self._table.end(rows.values())
        if rounds:
            progress("", self._stream)
            table(_COLUMNS, _cells(rows), self._stream)
        return rows


def _cells(rows: Mapping[str, Row]) -> Iterable[tuple[object, ...]]:
    """Yields the lines of the table of rounds."""
    for name, row in rows.items():
        if (told := row.rounds) is not None:
            yield (
                name, told["rounds"], *(f"{told[key]:.1f}" for key in _TIMES),
                told["worst_round"], told["worst_at"],
            )  # fmt: skip


_TIMES = ("best_us", "median_us", "worst_us")


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
