"""The noise of repeats of a measurement, in logarithms of rates or of inverse times."""

import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from oddrank.peers import DEGREES_OF_DEVIATION, LINE, deviation, of_median, z_of

# Degrees of freedom that a step between neighbours adds to a spread, divided by the quantile's
# share: simulated with normal values (0.33 degrees at the median, 0.48 at 0.683).
_DEGREES_OF_STEP = 0.7


@dataclass(frozen=True)
class Noise:
    """A standard error, and its degrees of freedom."""

    error: float = 0.0
    degrees: float = 1.0

    def line(self, comparisons: int) -> float:
        """Returns the line that any of `comparisons` values crosses by chance in 1 % of runs."""
        return self.error * z_of(comparisons, self.degrees)

    def times(self, factor: float) -> "Noise":
        return Noise(self.error * factor, self.degrees)

    def beside(self, other: "Noise") -> "Noise":
        """Returns `other` if it is larger: the sum of this noise and a further one.

        Degrees of the sum: F. E. Satterthwaite, "An approximate distribution of estimates of
        variance components", Biometrics Bulletin 2 (1946), p. 110.
        """
        beyond = other.error**2 - self.error**2
        if beyond <= 0:
            return self
        parts = self.error**4 / self.degrees + beyond**2 / other.degrees
        return Noise(other.error, other.error**4 / parts)


def log_effect(effect: float) -> float:
    """Converts a slowdown (0.2 is 20 %) to a difference of logarithms."""
    return -math.log1p(-effect)


def as_effect(logarithm: float) -> float:
    """Converts a difference of logarithms to a slowdown."""
    return -math.expm1(-logarithm)


def error_wanted(effect: float, comparisons: int) -> float:
    """Returns the standard error of a cell's median at which more repeats would not help."""
    return LINE * log_effect(effect) / (1.5 * z_of(comparisons))


def error_of_median(repeats: Sequence[float]) -> float:
    """Returns the standard error of the logarithm of the repeats' median, to know when to stop.

    Uses the mean of the steps, not their median: with few repeats the mean is more precise.
    """
    steps = _steps(repeats)
    spread = statistics.fmean(steps) * math.sqrt(math.pi) / 2 if steps else math.inf
    return spread * of_median(len(repeats))


def spread_of(cells: Iterable[Sequence[float]], share: float = 0.5) -> float:
    """Returns the standard deviation of one repeat's logarithm, pooled over cells; 0 if unknown.

    Uses the quantile `share` of steps between neighbours: neither a drift nor rare disturbances add
    to it.
    """
    steps = sorted(step for repeats in cells for step in _steps(repeats))
    if not steps:
        return 0.0
    quantile = steps[math.ceil(share * len(steps)) - 1]
    return quantile / (math.sqrt(2) * NormalDist().inv_cdf((1 + share) / 2))


def _steps(repeats: Sequence[float]) -> list[float]:
    return [abs(math.log(after / before)) for before, after in itertools.pairwise(repeats)]


def noise_of(cells: Collection[Sequence[float]], share: float = 0.5) -> Noise:
    """Returns the noise of one repeat; see spread_of."""
    steps = sum(max(0, len(repeats) - 1) for repeats in cells)
    return Noise(spread_of(cells, share), max(1.0, _DEGREES_OF_STEP * share * steps))


def differing(values: Sequence[float], median: float) -> Noise:
    """Returns the noise of one of these values; robust against a few odd ones."""
    return Noise(deviation(values, median), max(1.0, DEGREES_OF_DEVIATION * len(values)))
