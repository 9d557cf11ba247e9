"""The rule for late ranks: compares how long each rank takes on its own, and when it arrives.

A rank is late if it spends longer than its peers between collectives and arrives after them. Pure:
`oddrank bench` measures arrivals for it, `oddrank run` reads them in records.
"""

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oddrank import peers

# Quantiles in steps of 5 %: enough to read the share of iterations above any line.
_STEPS = 20

SMALLEST_EFFECT = 3.0
"""The smallest lateness looked for, in healthy spreads."""
# The line lies at two thirds of it: a line at the effect itself would find it half of the time.
_LINE = SMALLEST_EFFECT * 2 / 3


@dataclass(frozen=True)
class Arrival:
    """One rank's arrivals, in microseconds.

    median, quantiles (0 %, 5 % ... 100 %): delay behind the first rank of each iteration. own:
    median time between leaving one collective and arriving at the next: only this time is the
    rank's own, since some ranks leave a collective later by its algorithm. spread: median over
    iterations of the last minus the first arrival, with every rank's own time subtracted: the value
    of a machine without a late rank, the same on all ranks. error: error bound of this rank's clock
    offset; n: iterations.
    """

    n: int
    median: float
    own: float
    quantiles: tuple[float, ...]
    spread: float
    error: float


def quantiles_of(ordered: Sequence[float]) -> tuple[float, ...]:
    """Returns the quantiles of ascending values, 0 % to 100 % in steps of 5 %."""
    top = len(ordered) - 1
    return tuple(ordered[round(top * step / _STEPS)] for step in range(_STEPS + 1))


@dataclass(frozen=True)
class Late:
    """A late rank; times in microseconds.

    by: its own time minus the others' median; behind: the same of its delay behind the first rank;
    share: share of iterations in which it is late; line: smallest delay that counts as late;
    spread: healthy spread; others: the others' median own time.
    """

    rank: int
    by: float
    behind: float
    share: float
    line: float
    spread: float
    others: float
    n: int


def late_ranks(arrivals: Mapping[int, Arrival]) -> list[Late]:
    """Returns the late ranks, the latest first. Empty with one rank.

    Few iterations give suspicions, which name no rank: how many are needed is the caller's to say.

    Uses medians of arrivals: jitter hardly moves a median, and durations would show the late rank
    as the fastest. Needs both a longer own time and a later arrival: either alone may come from the
    order in which the collective releases its ranks.
    """
    if len(arrivals) < 2:
        return []
    worst_clock = max(a.error for a in arrivals.values())
    found = []
    owns = peers.medians_of_others([a.own for a in arrivals.values()])
    medians = peers.medians_of_others([a.median for a in arrivals.values()])
    for (rank, a), usual, first in zip(arrivals.items(), owns, medians, strict=True):
        own, behind = a.own - usual, a.median - first
        line = _LINE * a.spread
        if own > line and behind > line / 2 + a.error + worst_clock:
            at = a.median - behind + line / 2
            share = 1 - bisect.bisect_right(a.quantiles, at) / len(a.quantiles)
            found.append(Late(rank, own, behind, share, line, a.spread, a.own - own, a.n))
    return sorted(found, key=lambda one: -one.by)


def both_times(first: Mapping[int, Arrival], again: Mapping[int, Arrival]) -> list[Late]:
    """Returns the ranks that were late in both measurements, with the figures of the second."""
    before = {one.rank for one in late_ranks(first)}
    return [one for one in late_ranks(again) if one.rank in before]
