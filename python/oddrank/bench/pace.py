"""How many iterations are enough: pure, from the times so far. Rank 0 alone decides by it."""

import math
import statistics
import time
from collections.abc import Callable, Sequence

# Warm when two blocks in a row agree to this, or after so many blocks: caches, connections and
# lazily made channels (some per size) must not get into a figure.
_AGREES = 0.02
_MOST_WARM_BLOCKS = 6
# A block is long enough to tell the machine's noise from its trend.
_BLOCK_SECONDS = 0.02
_MOST_IN_BLOCK = 1000
_MOST = 20_000
_FEWEST = 20
# Where one iteration takes longer than a block.
_FEWEST_LONG = 6
# Share of a case's time for getting warm, but never fewer blocks: in a wide sweep a share is over
# before a slow start is, which is then all that is measured, and quiet enough to be believed.
_WARM_SHARE = 0.25
_FEWEST_WARM_BLOCKS = 3  # the first has one iteration and says little
_Z = 1.96
# Student's t, two-sided 95 %, by degrees of freedom. Two visits tell next to nothing (12.7).
_T = {2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
VISITS_THAT_TELL = 1 + min(_T)
MOST_VISITS = 1 + max(_T)


def relative_error(times: Sequence[float]) -> float:
    """Half the 95 % confidence interval of the median, as a part of the median.

    From order statistics: whatever the distribution, the median lies between those at
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


def error_of_visits(visits: Sequence[Sequence[float]]) -> float:
    """The same of the median of several visits, at most MOST_VISITS.

    They may lie apart by more than the noise within each: then from the standard error of the mean
    of their medians, with Student's t.
    """
    medians = [statistics.median(times) for times in visits if times]
    error = relative_error([time for times in visits for time in times])
    number, mean = len(medians), statistics.fmean(medians or [0.0])
    if number - 1 not in _T or mean <= 0:
        return error
    return max(error, _T[number - 1] * statistics.stdev(medians) / math.sqrt(number) / mean)


class Pace:
    """Blocks of one visit to a case: first until warm, then until `target` or `seconds` is reached.

    whole: the seconds of all visits that are left, which one takes at once where iterations are
    so long that few fit into `seconds`. least: iterations wanted whatever the error says, while
    there is time; most: of them.
    """

    def __init__(
        self,
        target: float,
        seconds: float,
        whole: float | None = None,
        *,
        least: int = _FEWEST,
        most: int = _MOST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target, self._seconds, self._clock = target, seconds, clock
        self._whole = seconds if whole is None else whole
        self._least, self._most = least, most
        self.takes_all = False  # of the time of all visits
        self._began = clock()
        self._warm = False
        self._blocks: list[float] = []  # medians while not warm
        self._times: list[float] = []

    def first(self) -> int:
        """Iterations of the first block: it tells how long one takes."""
        return 1

    def after(self, block: Sequence[float]) -> tuple[int, bool]:
        """(iterations of the next block, 0 at the end; whether they count).

        block: microseconds of the last block's iterations, the slowest rank of each.
        """
        if self._warm:
            self._times += block
        # A block may be a single iteration, and an uncommonly short one.
        one = max(1e-7, statistics.median(self._times or block) / 1e6)
        if not self._warm:
            self._blocks.append(one)
            self._warm = self._is_warm(one)
        elif not self.takes_all and one * _FEWEST_LONG > self._seconds:
            # By what counts: the first iteration alone may be long by chance.
            self._seconds, self.takes_all = self._whole, True
        size = max(1, min(_MOST_IN_BLOCK, math.ceil(_BLOCK_SECONDS / one)))
        if not self._warm:
            return size, False
        left = self._seconds - (self._clock() - self._began)
        if self._times and left <= 0:
            return 0, True
        fitting = max(1, int(left / one))
        return min(fitting, self._wanted(size, one)), True

    def _is_warm(self, one: float) -> bool:
        if one >= _BLOCK_SECONDS:  # the check by value has run it, too
            return True
        if len(self._blocks) < _FEWEST_WARM_BLOCKS:
            return False
        spent = self._clock() - self._began
        if len(self._blocks) >= _MOST_WARM_BLOCKS or spent > _WARM_SHARE * self._seconds:
            return True
        before, now = self._blocks[-2:]
        return abs(now - before) <= _AGREES * before

    def _wanted(self, size: int, one: float) -> int:
        """Iterations still needed; 0: no more."""
        done, long = len(self._times), one >= _BLOCK_SECONDS
        fewest = min(self._least, _FEWEST_LONG) if long else self._least
        if done < fewest:
            return max(fewest - done, 0 if done else size)
        error = relative_error(self._times)
        if error <= self._target or done >= self._most:
            return 0
        if long:
            return 1
        # The error falls with the square root; never more than doubled, for the guess is rough.
        needed = done * ((error / self._target) ** 2 - 1)
        return max(size, min(done, math.ceil(needed), self._most - done))
