"""Decides how long a case is measured: blocks of iterations until the median is precise enough.

A sweep measures each case in several passes, with all other cases in between. A disturbance that
lasts (another job's traffic, a throttled clock) then hurts one pass of each case, not all passes of
one case: repeated sweeps differ less, and the error of a row says by how much.
"""

import math
import statistics
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from oddrank.bench.backend import Operation
from oddrank.bench.case import Case
from oddrank.process_group import Group

# A case is warm if two blocks in a row agree to this share, or after this many blocks: caches,
# connections and channels that are made lazily (some for each size) must not get into a figure.
_AGREES = 0.02
_MOST_WARM_BLOCKS = 6
# A block is long enough to tell the machine's noise from its trend.
_BLOCK_SECONDS = 0.02
_MOST_IN_BLOCK = 1000
# A counted block lasts at least this many times as long as the agreement after it, which hundreds
# of ranks may need longer for than for the block.
_AGREEMENTS = 4
_MOST = 20_000
_FEWEST = 20
_FEWEST_LONG = 6  # fewest iterations if one takes longer than a block
# Share of a case's time for warm-up, but at least this many blocks: in a wide sweep the share ends
# before a slow start does, and the slow start alone would be measured, with little noise.
_WARM_SHARE = 0.25
_FEWEST_WARM_BLOCKS = 3  # the first has one iteration and says little
_Z = 1.96
# Student's t, two-sided 95 %, by degrees of freedom. With fewer passes there is no interval.
_T = {2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
PASSES_THAT_TELL = 1 + min(_T)
MOST_PASSES = 1 + max(_T)


def relative_error(times: Sequence[float]) -> float:
    """Returns half the 95 % confidence interval of the median, as a share of the median.

    Uses order statistics: for any distribution, the median lies between those at
    n/2 -+ 1.96 sqrt(n)/2 in 95 % of cases (Conover, Practical Nonparametric Statistics, 3.2).
    """
    n = len(times)
    if n < 6:  # fewer have no interval of 95 %
        return math.inf
    ordered = sorted(times)
    reach = _Z * math.sqrt(n) / 2
    low = max(0, math.floor(n / 2 - reach))
    high = min(n - 1, math.ceil(n / 2 + reach))
    median = statistics.median(ordered)
    return (ordered[high] - ordered[low]) / 2 / median if median > 0 else 0.0


def error_of_passes(passes: Sequence[Sequence[float]]) -> float:
    """Returns the relative error of the median over several passes, at most MOST_PASSES.

    If the passes differ by more than the noise within each: Student's t times the standard error
    of the mean of their medians. Infinite for fewer passes than PASSES_THAT_TELL: how much passes
    differ is then unknown.
    """
    medians = [statistics.median(times) for times in passes if times]
    error = relative_error([time for times in passes for time in times])
    number, mean = len(medians), statistics.fmean(medians or [0.0])
    if number < PASSES_THAT_TELL:
        return math.inf
    if mean <= 0:
        return error
    return max(error, _T[number - 1] * statistics.stdev(medians) / math.sqrt(number) / mean)


class StoppingRule:
    """Sizes the blocks of one pass: first until warm, then until `target` or `seconds` is reached.

    Every rank has its own; all decide alike, for all get the same agreed figures. whole: seconds
    of all passes that are left; this pass takes them all if iterations are so long that few fit
    into `seconds`. most: most iterations.
    """

    def __init__(
        self, target: float, seconds: float, whole: float | None = None, *, most: int = _MOST
    ) -> None:
        self._target, self._seconds = target, seconds
        self._whole = seconds if whole is None else whole
        self._most = most
        self.takes_all = False  # whether this pass takes the time of all passes
        self._spent = 0.0
        self._warm = False
        self._blocks: list[float] = []  # medians while not warm
        self._times: list[float] = []

    def after(
        self, block: Sequence[float], spent: float, agreement: float = 0.0
    ) -> tuple[int, bool]:
        """Returns (iterations of the next block, 0 at the end; whether they count).

        block: microseconds of the last block's iterations, the slowest rank of each. spent: seconds
        from the pass's begin to the block's end. agreement: seconds that agreeing takes.
        """
        self._spent = spent
        if self._warm:
            self._times += block
        # A block may be a single iteration, and an uncommonly short one.
        one = max(1e-7, statistics.median(self._times or block) / 1e6)
        if not self._warm:
            self._blocks.append(one)
            self._warm = self._is_warm(one)
        elif not self.takes_all and one * _FEWEST_LONG > self._seconds:
            # Decides by counted iterations: the first alone may be long by chance.
            self._seconds, self.takes_all = self._whole, True
        size = max(1, min(_MOST_IN_BLOCK, math.ceil(_BLOCK_SECONDS / one)))
        if not self._warm:
            return size, False
        left = self._seconds - spent
        if self._times and left <= 0:
            return 0, True
        size = max(size, min(_MOST_IN_BLOCK, math.ceil(_AGREEMENTS * agreement / one)))
        fitting = max(1, int(left / one))
        return min(fitting, self._wanted(size, one)), True

    def _is_warm(self, one: float) -> bool:
        if one >= _BLOCK_SECONDS:  # the check by value was its warm-up
            return True
        if len(self._blocks) < _FEWEST_WARM_BLOCKS:
            return False
        if len(self._blocks) >= _MOST_WARM_BLOCKS or self._spent > _WARM_SHARE * self._seconds:
            return True
        before, now = self._blocks[-2:]
        return abs(now - before) <= _AGREES * before

    def _wanted(self, size: int, one: float) -> int:
        done, long = len(self._times), one >= _BLOCK_SECONDS
        fewest = _FEWEST_LONG if long else _FEWEST
        if done < fewest:
            return max(fewest - done, 0 if done else size)
        error = relative_error(self._times)
        if error <= self._target or done >= self._most:
            return 0
        if long:
            return 1
        # The error falls with the square root of the number. At most doubles it: a rough guess.
        needed = done * ((error / self._target) ** 2 - 1)
        return max(size, min(done, math.ceil(needed), self._most - done))


ENOUGH = 300  # fewest arrivals that separate lateness from jitter


@dataclass
class Series:
    """The counted iterations of a case, from pass to pass; the same on all ranks.

    iterations: how many the mean is of; total: their microseconds, by each block's mean on its
    slowest rank. samples: the slowest rank's microseconds of single iterations, one list a pass.
    """

    iterations: int = 0
    total: float = 0.0
    samples: list[list[float]] = field(default_factory=list)

    @property
    def mean(self) -> float | None:
        """Returns microseconds: the headline of a row."""
        return self.total / self.iterations if self.iterations else None

    def is_known(self, target: float) -> bool:
        """Returns whether there are enough passes and they differ by no more than `target`."""
        return len(self.samples) >= PASSES_THAT_TELL and error_of_passes(self.samples) <= target


def measure(
    series: Series, group: Group, operation: Operation, case: Case, rule: StoppingRule, *,
    world: Group | None = None,
) -> None:  # fmt: skip
    """Adds a pass: times blocks until `rule` ends them, with one agreement after each.

    All ranks call it together. world: the ranks of `group` and of others that measure at once: all
    decide together.
    """
    samples: list[float] = []
    count, counts = 1, False  # shows how long one takes
    began, agreement = time.monotonic(), 0.0
    while count:
        group.context.step(f"time {case}")
        block = operation.block(count)
        ended = time.monotonic()
        # The last rank to come waits for no other: its agreement, the shortest, is the true one.
        own = array("d", [*block.samples, block.mean, ended - began, -agreement])
        agreed = group.largest(own)
        common = agreed if world is None else world.largest(own)
        agreement = time.monotonic() - ended
        if counts:
            series.iterations += count
            series.total += agreed[-3] * count
            samples += agreed[:-3]
        count, counts = rule.after(common[:-3], common[-2], -common[-1])
    series.samples.append(samples)
