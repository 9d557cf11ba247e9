"""How much repeats of a measurement differ by chance: in logarithms, of rates or inverse times."""

import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from oddrank.peers import DEGREES_OF_DEVIATION, LINE, deviation, of_median, z_of

# Degrees of freedom that a step between neighbours adds to a spread, times the share of the steps
# that are no larger: simulated, of normal values (0.33 at the median, 0.48 at 0.683).
_DEGREES_OF_STEP = 0.7


@dataclass(frozen=True)
class Noise:
    """A standard error, and the degrees of freedom with which it is known."""

    error: float = 0.0
    degrees: float = 1.0

    def line(self, comparisons: int) -> float:
        """What so many comparisons together exceed by chance in 1 % of runs."""
        return self.error * z_of(comparisons, self.degrees)

    def times(self, factor: float) -> "Noise":
        return Noise(self.error * factor, self.degrees)

    def beside(self, other: "Noise") -> "Noise":
        """`other` where that shows more: this noise, and something beyond it, known less well.

        Degrees of the sum: F. E. Satterthwaite, "An approximate distribution of estimates of
        variance components", Biometrics Bulletin 2 (1946), p. 110.
        """
        beyond = other.error**2 - self.error**2
        if beyond <= 0:
            return self
        parts = self.error**4 / self.degrees + beyond**2 / other.degrees
        return Noise(other.error, other.error**4 / parts)


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
    quantile = steps[math.ceil(share * len(steps)) - 1]
    return quantile / (math.sqrt(2) * NormalDist().inv_cdf((1 + share) / 2))


def _steps(repeats: Sequence[float]) -> list[float]:
    return [abs(math.log(after / before)) for before, after in itertools.pairwise(repeats)]


def noise_of(cells: Collection[Sequence[float]], share: float = 0.5) -> Noise:
    """Of one repeat: see spread_of."""
    steps = sum(max(0, len(repeats) - 1) for repeats in cells)
    return Noise(spread_of(cells, share), max(1.0, _DEGREES_OF_STEP * share * steps))


def differing(values: Sequence[float], median: float) -> Noise:
    """Of one of these values, of which a few may be odd."""
    return Noise(deviation(values, median), max(1.0, DEGREES_OF_DEVIATION * len(values)))
