"""How much repeats of a measurement differ by chance: in logarithms, of rates or inverse times."""

import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from oddrank.peers import DEGREES_OF_DEVIATION, LINE, deviation, of_median, z_of

# Degrees of freedom that a step between neighbours adds to a spread: simulated, of normal values.
_DEGREES_OF_STEP = 0.5


@dataclass(frozen=True)
class Noise:
    """A standard error, and how many of them lie between chance and a name."""

    error: float = 0.0
    deviations: float = 0.0

    @property
    def line(self) -> float:
        return self.error * self.deviations

    def times(self, factor: float) -> "Noise":
        return Noise(self.error * factor, self.deviations)


def log_effect(effect: float) -> float:
    """20 % slower as a difference of logarithms."""
    return -math.log1p(-effect)


def as_effect(logarithm: float) -> float:
    """And back."""
    return -math.expm1(-logarithm)


def error_wanted(effect: float, comparisons: int) -> float:
    """The standard error of a cell's median below which more repeats would show no more."""
    return LINE * log_effect(effect) / (1.5 * z_of(comparisons))


def error_of_median(repeats: Sequence[float]) -> float:
    """The standard error of the logarithm of the median of these: to know when they are enough.

    From the mean of the steps, not their median: of a few repeats that is the surer one.
    """
    steps = _steps(repeats)
    spread = statistics.fmean(steps) * math.sqrt(math.pi) / 2 if steps else math.inf
    return spread * of_median(len(repeats))


def spread_of(cells: Iterable[Sequence[float]], share: float = 0.5) -> float:
    """The standard deviation of one repeat's logarithm, pooled over cells; 0 without repeats.

    From the steps between neighbours, of which that `share` is no larger: neither a drift nor what
    came in between now and then adds to it.
    """
    steps = sorted(step for repeats in cells for step in _steps(repeats))
    if not steps:
        return 0.0
    quantile = steps[min(len(steps) - 1, math.ceil(share * len(steps)))]
    return quantile / (math.sqrt(2) * NormalDist().inv_cdf((1 + share) / 2))


def _steps(repeats: Sequence[float]) -> list[float]:
    return [abs(math.log(after / before)) for before, after in itertools.pairwise(repeats)]


def noise_of(cells: Collection[Sequence[float]], spread: float, comparisons: int) -> Noise:
    """Of one repeat, where `spread_of` found that spread in these cells."""
    steps = sum(max(0, len(repeats) - 1) for repeats in cells)
    return Noise(spread, z_of(comparisons, _DEGREES_OF_STEP * steps))


def differing(values: Sequence[float], median: float, comparisons: int) -> Noise:
    """Of one of these values, of which a few may be odd."""
    degrees = DEGREES_OF_DEVIATION * len(values)
    return Noise(deviation(values, median), z_of(comparisons, degrees))
