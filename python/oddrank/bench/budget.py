"""The seconds of a sweep: how many its deadline leaves for measuring, and who gets them."""

import math
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from oddrank.bench.case import Case
from oddrank.bench.pace import MOST_VISITS, VISITS_THAT_TELL
from oddrank.errors import OddrankError

ARRIVALS = 0.4
"""Of the budget, the first time and again: the later a rank, the longer its iterations take.

Where too few fit, who seems late is told and not named."""
LEAST = 0.08
"""Seconds of a visit, whatever the budget, and each case has one: half of it is to get it warm."""
BUDGET, DEADLINE = 60.0, 300.0
"""Seconds where neither is given; a longer budget, or many cases, make the deadline longer."""
_FIXED_BYTES = 1 << 20  # a run of no bytes takes about as long as moving so many
# To start, import torch from a busy file system and connect: so long, or this share of a deadline.
_START, _START_SHARE = 120.0, 0.4
# Of a case beside its share: prepared, checked by value, agreed on; of each rank: its result read
# (benchmarks/bench/judge_memory.py); and the slowest pace of the check.
_CASE, _RANK = 0.05, 4e-5
_CHECKED_BYTES_PER_SECOND = 50e6
# The shortest visit, on average, where there are several, and for ranks to agree on the next one.
_VISIT, _VISIT_OF_A_RANK = 0.3, 1e-4
_FEWER = "fewer --sizes, --collectives, --dtypes, --ops or --place"


class Limits(NamedTuple):
    """Seconds: of all that is measured, and of the whole command."""

    budget: float
    deadline: float


def limits(
    budget: float | None, deadline: float | None, cases: Sequence[Case], world: int
) -> Limits:
    """What was given, and what follows from it for what was not (None).

    OddrankError where the deadline is too short for the budget, or for the cases.
    """
    number = len(cases)
    if deadline is None:
        budget = budget or BUDGET
        checks = sum(case.bytes for case in cases) / _CHECKED_BYTES_PER_SECOND
        needed = _START + longest(budget, number, world) + _beside(number, world) + checks
        return Limits(budget, max(DEADLINE, math.ceil(needed)))
    left = _left(deadline, number, world)
    most = _most_within(left, number, world)
    if budget is None and most >= 1:
        return Limits(min(BUDGET, most), deadline)
    if budget is not None and longest(budget, number, world) <= left:
        return Limits(budget, deadline)
    what = f"{number} cases" + (f" and --budget {budget:g}" if budget else "")
    needed = _least_deadline(budget or 1.0, number, world)
    instead = f"--budget {most:g}" if most >= 1 else _FEWER
    raise OddrankError(
        f"--deadline {deadline:g} is too short for {what}, which may take {needed} s with start"
        f" and checks: give --deadline {needed}, or {instead}"
    )


def longest(budget: float, cases: int, world: int) -> float:
    """Seconds that measuring takes at the most; the looks at late ranks, a second one where there
    is need, take nothing of the least that each case has."""
    looks = 2 * ARRIVALS * budget if world > 1 else 0.0
    return max(budget, looks + LEAST * cases)


def _beside(cases: int, world: int) -> float:
    return cases * (_CASE + _RANK * world)


def _left(deadline: float, cases: int, world: int) -> float:
    """Seconds for measuring. How long the check of large sizes takes is only known once it runs:
    nothing is refused for it."""
    start = min(_START, _START_SHARE * deadline)
    return round(deadline - start - _beside(cases, world), 6)


def _most_within(left: float, cases: int, world: int) -> int:
    """The longest budget in whole seconds with which measuring takes no longer; 0 or less: none."""
    beyond = left - LEAST * cases
    if world > 1:
        return math.floor(min(left, beyond / (2 * ARRIVALS)) + 1e-6)
    return math.floor(left) if beyond >= 0 else 0


def _least_deadline(budget: float, cases: int, world: int) -> int:
    """The shortest in whole seconds that leaves it."""
    needed = longest(budget, cases, world) + _beside(cases, world)
    return math.ceil(min(needed + _START, needed / (1 - _START_SHARE)))


def visits(budget: float, cases: int, world: int) -> int:
    """How often each case is visited: as often as the visits are long enough to be worth it, and
    once where they would be too few to tell how far they lie apart."""
    measuring = budget * (1.0 if world == 1 else 1 - ARRIVALS)
    fitting = int(measuring / cases / (_VISIT + _VISIT_OF_A_RANK * world))
    return min(MOST_VISITS, fitting) if fitting >= VISITS_THAT_TELL else 1


class Budget:
    """Seconds for all that is measured, shared among what is still to come.

    A case's share grows with the square root of what a run of it takes: so the errors of all are
    smallest together (J. Neyman, "On the two different aspects of the representative method",
    Journal of the Royal Statistical Society 97 (1934), p. 558, with costs). Alike for all, the
    large ones would have a hundred times fewer runs.
    """

    def __init__(self, seconds: float, cases: Iterable[Case], visits: int = 1) -> None:
        self._seconds = seconds
        self._weights = [math.sqrt(_FIXED_BYTES + case.bytes) for case in cases]
        self._visits = visits
        self._left = [visits] * len(self._weights)
        self._began: float | None = None

    def part(self, of_all: float) -> float:
        """Seconds of something that comes before the cases: at most that part of all."""
        return min(self._seconds * of_all, self._unused())

    def share(self, place: int) -> tuple[float, float]:
        """Seconds of the next visit to that case, and of all that are left to it.

        What quick ones leave is there for the slow, but never the least that the visits to come
        have: so all end within `longest`.
        """
        unused, left = self._unused(), self._left
        due = sum(weight * number for weight, number in zip(self._weights, left, strict=True))
        visit = unused * self._weights[place] / due
        whole = visit * left[place]
        of_all = unused - LEAST * (sum(left) - left[place])
        left[place] -= 1
        of_one = of_all - LEAST * left[place]
        return max(LEAST, min(visit, of_one)), max(LEAST, min(whole, of_all))

    def end(self, place: int) -> None:
        """No further visits to that case."""
        self._left[place] = 0

    def is_over(self, place: int) -> bool:
        """Whether that case has had its last visit: another one than the first only has time that
        is left, for what checks took is gone, too."""
        is_first = self._left[place] == self._visits
        return not self._left[place] or not (is_first or self._unused() > LEAST)

    def _unused(self) -> float:
        now = time.monotonic()
        self._began = self._began or now
        return max(0.0, self._seconds - (now - self._began))
