"""The plan of a sweep: its tasks, their passes, the memory that they need, and their time."""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from oddrank.bench.backend import capacity_of, needed
from oddrank.bench.case import COLLECTIVES, DTYPES, Case
from oddrank.bench.sampling import MOST_PASSES, PASSES_THAT_TELL
from oddrank.errors import OddrankError

# Bytes of a buffer for the windows of small cases; both buffers take 64 MiB.
_FOR_WINDOWS = 32 << 20
_MOST_CASES = 5000
# A stage's name has at most 47 characters (control's limit) and may end with a pass's number.
_LONGEST_NAME = 47 - len(f" ({MOST_PASSES})")
_FEWER = "fewer --sizes, --collectives, --dtypes or --ops"


def cases_of(
    *, collectives: Sequence[str], dtypes: Sequence[str], ops: Sequence[str], sizes: Sequence[int],
    world: int,
) -> list[Case]:  # fmt: skip
    """Returns the cases in the order of the table, each once: several sizes may round to one.

    OddrankError if there are more than _MOST_CASES.
    """
    found: dict[Case, None] = {}
    for row, dtype, op, size in product(collectives, dtypes, ops, sizes):
        found[COLLECTIVES[row].case(dtype, size, op, world)] = None
        if len(found) > _MOST_CASES:
            raise OddrankError(f"this is more than {_MOST_CASES} cases: give {_FEWER}")
    return list(found)


@dataclass(frozen=True)
class Pass:
    """One pass over a case. number: 1 to `of`; index: the case's among all; name: its stage's."""

    case: Case
    index: int
    number: int
    of: int

    @property
    def name(self) -> str:
        name = str(self.case)
        if len(name) > _LONGEST_NAME:
            name = f"{name[: _LONGEST_NAME - 7]} #{self.index}"
        return name if self.number == 1 else f"{name} ({self.number})"


def in_turn(cases: Sequence[Case], times: int) -> list[Pass]:
    """Returns all passes: all cases come between two passes to one."""
    return [
        Pass(case, index, number, times)
        for number in range(1, times + 1)
        for index, case in enumerate(cases)
    ]


def memory_of(case: Case, world: int) -> int:
    """Returns the bytes of one case in one window: the most that any rank needs."""
    return needed(_buffer_of(case, world), case.in_place)


def reserve(cases: Iterable[Case], world: int, limit: float) -> int:
    """Returns the bytes of the memory that all cases use in turn, at most `limit`.
    Enough for the largest case that fits, and for several windows of small ones."""
    largest = windows = 0
    for case in cases:
        memory = memory_of(case, world)
        if memory <= limit:
            largest = max(largest, memory)
            room = min(_FOR_WINDOWS, capacity_of(_buffer_of(case, world)))
            windows = max(windows, needed(room, case.in_place))
    return max(largest, int(min(windows, limit)))


def _buffer_of(case: Case, world: int) -> int:
    """Returns the bytes of the case's largest buffer, on the first and the last rank."""
    layouts = [COLLECTIVES[case.collective].layout(case, rank, world) for rank in (0, world - 1)]
    largest = max(max(at.send_count, at.recv_count) for at in layouts)
    return DTYPES[case.dtype] * largest


ARRIVALS = 0.4
"""Share of the budget for the check for late ranks, and again for its recheck.

The later a rank is, the longer its iterations take. If too few fit, a rank that
seems late is shown and not named."""
LEAST = 0.08  # fewest seconds of a pass, even if the budget is shorter
BUDGET, DEADLINE = 60.0, 300.0
"""Defaults in seconds; a longer budget or many cases lengthen the deadline."""
_FIXED_BYTES = 1 << 20  # a run without data takes about as long as moving so many bytes
# Seconds to start, import torch from a busy file system and connect; and its largest share of a
# deadline.
_START, _START_SHARE = 120.0, 0.4
# Seconds of a case in addition to its share: to prepare, check and agree; and to read one rank's
# result (benchmarks/bench/judge_memory.py). Then the slowest speed of the check.
_CASE, _RANK = 0.05, 4e-5
_CHECKED_BYTES_PER_SECOND = 50e6
# Seconds of the shortest useful pass if there are several, and seconds that a rank adds to agree on
# the next one.
_PASS, _PASS_OF_A_RANK = 0.3, 1e-4


class Limits(NamedTuple):
    """Seconds for all measurements, and for the whole command."""

    budget: float
    deadline: float


def limits(
    budget: float | None, deadline: float | None, cases: Sequence[Case], world: int
) -> Limits:
    """Returns both limits; derives the one that is None.

    OddrankError if the deadline is too short for the budget, or for the cases.
    """
    number = len(cases)

    def takes(seconds: float) -> float:
        return longest(seconds, number, world) + number * (_CASE + _RANK * world)

    if deadline is None:
        budget = budget or BUDGET
        checks = sum(case.bytes for case in cases) / _CHECKED_BYTES_PER_SECOND
        return Limits(budget, max(DEADLINE, math.ceil(_START + takes(budget) + checks)))
    # Ignores the check of large sizes: its time is known only once it runs.
    room = deadline - min(_START, _START_SHARE * deadline) + 1e-6
    if budget is not None and takes(budget) <= room:
        return Limits(budget, deadline)
    shorter = range(int(min(budget or BUDGET, deadline)), 0, -1)
    most = next((seconds for seconds in shorter if takes(seconds) <= room), 0)
    if budget is None and most:
        return Limits(most, deadline)
    needed = takes(budget or 1.0)
    least = math.ceil(min(needed + _START, needed / (1 - _START_SHARE)))
    what = f"{number} cases" + (f" and --budget {budget:g}" if budget else "")
    raise OddrankError(
        f"--deadline {deadline:g} is too short for {what}, which may take {least} s with start"
        f" and checks: give --deadline {least}, or {f'--budget {most}' if most else _FEWER}"
    )


def longest(budget: float, cases: int, world: int) -> float:
    """Returns the most seconds that measuring takes: at least the budget.
    Counts the check for late ranks, its recheck, and LEAST for each case."""
    looks = 2 * ARRIVALS * budget if world > 1 else 0.0
    return max(budget, looks + LEAST * cases)


def passes_within(budget: float, cases: int, world: int) -> int:
    """Returns the number of passes of each case: as many as fit at a useful length.
    Returns 1 if they would be too few to show how far they differ."""
    measuring = budget * (1.0 if world == 1 else 1 - ARRIVALS)
    fitting = int(measuring / cases / (_PASS + _PASS_OF_A_RANK * world))
    return min(MOST_PASSES, fitting) if fitting >= PASSES_THAT_TELL else 1


class Budget:
    """Shares the seconds for measuring among the passes that are still to come.

    A case's share grows with the square root of the time of one run: this makes the errors of all
    cases together smallest (J. Neyman, "On the two different aspects of the representative method",
    Journal of the Royal Statistical Society 97 (1934), p. 558, with costs). Equal shares would give
    the large cases a hundred times fewer runs.
    """

    def __init__(self, seconds: float, cases: Iterable[Case], passes: int = 1) -> None:
        self._seconds = seconds
        self._weights = [math.sqrt(_FIXED_BYTES + case.bytes) for case in cases]
        self._passes = passes
        self._left = [passes] * len(self._weights)
        self._began: float | None = None

    def part(self, of_all: float) -> float:
        """Returns the seconds for a stage before the cases: at most this share of the budget."""
        return min(self._seconds * of_all, self._unused())

    def share(self, index: int) -> tuple[float, float]:
        """Returns the seconds of the case's next pass, and of all its passes that are left.

        Later cases get the time that quick ones leave. LEAST is reserved for each pass to come, so
        all end within `longest`.
        """
        unused, left = self._unused(), self._left
        due = sum(weight * number for weight, number in zip(self._weights, left, strict=True))
        one_pass = unused * self._weights[index] / due
        whole = one_pass * left[index]
        of_all = unused - LEAST * (sum(left) - left[index])
        left[index] -= 1
        of_one = of_all - LEAST * left[index]
        return max(LEAST, min(one_pass, of_one)), max(LEAST, min(whole, of_all))

    def end(self, index: int) -> None:
        self._left[index] = 0

    def is_over(self, index: int) -> bool:
        """Returns whether the case had its last pass.
        Checks use time too: after the first pass, another one starts only if there is time left."""
        is_first = self._left[index] == self._passes
        return not self._left[index] or not (is_first or self._unused() > LEAST)

    def _unused(self) -> float:
        now = time.monotonic()
        self._began = self._began or now
        return max(0.0, self._seconds - (now - self._began))
