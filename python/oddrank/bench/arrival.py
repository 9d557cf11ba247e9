"""When every rank came to each run of a collective, on one clock: who makes the others wait."""

import statistics
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oddrank.bench.group import Group
    from oddrank.control import Laps

# Fewer arrivals tell jitter from lateness too rarely.
ENOUGH = 300
# The error of a clock that could not be compared.
UNKNOWN_NS = 1_000_000_000_000
# 5 % steps: the share of iterations above any line can be read off.
_STEPS = 20


@dataclass
class Stamps:
    """Of iterations that follow another: when this rank came, and since when it was free to.

    starts: nanoseconds of this rank's CLOCK_MONOTONIC; gaps: since it left the one before.
    """

    starts: "array[int]" = field(default_factory=lambda: array("q"))
    gaps: "array[int]" = field(default_factory=lambda: array("q"))

    def add(self, laps: "Laps") -> None:
        """A block: its first iteration follows none that would have brought the ranks together."""
        starts, durations = array("q", laps.starts()), array("q", laps.durations())
        self.starts += starts[1:]
        self.gaps += array(
            "q",
            (starts[i] - starts[i - 1] - durations[i - 1] for i in range(1, len(starts))),
        )

    def follow(self, later: "Stamps", offset: int) -> None:
        """Those of a later visit, on rank 0's clock; offset: nanoseconds from this rank's to it."""
        self.starts += array("q", (ns + offset for ns in later.starts))
        self.gaps += later.gaps


@dataclass(frozen=True)
class Arrival:
    """One rank's arrivals, in microseconds.

    median, quantiles (0 %, 5 % ... 100 %): behind the first rank of each iteration, what the other
    ranks wait for. own: median between leaving one collective and coming to the next, the part of
    it that is this rank's own doing: some ranks leave a collective later by its algorithm.
    spread: the median over iterations of last minus first once every rank's own part is taken off,
    which is what a machine without a late rank shows; the same on all ranks. error: the bound of
    this rank's clock offset; n: iterations.
    """

    n: int
    median: float
    own: float
    quantiles: tuple[float, ...]
    spread: float
    error: float

    def as_payload(self) -> dict[str, Any]:
        return asdict(self)

    def in_short(self) -> dict[str, float]:
        """Without the quantiles: what a row of a sweep shows."""
        return {"n": self.n, "median": self.median, "spread": self.spread, "error": self.error}

    @staticmethod
    def of_payload(payload: dict[str, Any]) -> "Arrival":
        return Arrival(**{**payload, "quantiles": tuple(payload["quantiles"])})


def arrival(group: "Group", stamps: Stamps, clock: tuple[int, int]) -> Arrival | None:
    """This rank's arrivals; all ranks call it together. None where there are none to compare.

    clock: nanoseconds to add to this rank's clock to get rank 0's, and its error bound.
    """
    offset, error = clock
    (worst,) = group.largest([float(error)])
    if not stamps.starts or worst >= UNKNOWN_NS:
        return None
    came = array("d", ((ns + offset) / 1e3 for ns in stamps.starts))
    first = group.smallest(came)
    behind = sorted(mine - one for mine, one in zip(came, first, strict=True))
    own = statistics.median(stamps.gaps) / 1e3
    levelled = array("d", (at - own for at in came))
    last, earliest = group.largest(levelled), group.smallest(levelled)
    return Arrival(
        n=len(behind),
        median=statistics.median(behind),
        own=own,
        quantiles=quantiles_of(behind),
        spread=statistics.median(high - low for high, low in zip(last, earliest, strict=True)),
        error=error / 1e3,
    )


def quantiles_of(ordered: Sequence[float]) -> tuple[float, ...]:
    """Of ascending values, from the smallest to the largest in steps of 5 %."""
    top = len(ordered) - 1
    return tuple(ordered[round(top * step / _STEPS)] for step in range(_STEPS + 1))
