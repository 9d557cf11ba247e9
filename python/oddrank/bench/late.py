"""Who comes late to collectives: pure, from every rank's arrivals."""

import bisect
from collections.abc import Mapping
from dataclasses import dataclass

from oddrank import peers
from oddrank.bench.arrival import ENOUGH, Arrival

# A rank is late from three times the healthy spread on; the line lies at two thirds of that
# (DESIGN.md, "How to judge": a line at the effect itself finds it half of the time).
SMALLEST_EFFECT = 3.0
_LINE = SMALLEST_EFFECT * 2 / 3


@dataclass(frozen=True)
class Late:
    """A rank that comes `by` microseconds late (median) by its own doing, in `share` of iterations.

    behind: what the first rank waits for it; line: from where on a rank is called late; spread:
    the healthy one; others: median of what the others take.
    """

    rank: int
    by: float
    behind: float
    share: float
    line: float
    spread: float
    others: float
    n: int


def are_enough(arrivals: Mapping[int, Arrival]) -> bool:
    """Whether the iterations are as many as naming somebody takes."""
    return bool(arrivals) and min(a.n for a in arrivals.values()) >= ENOUGH


def judge(arrivals: Mapping[int, Arrival]) -> list[Late]:
    """The late ranks, the latest first. Empty with one rank.

    Where `are_enough` says no, these are suspicions: nobody is named by them.

    Medians count, never means or durations: jitter has no median, and who is late shows the
    shortest times. Late is who takes longer on its own and comes behind the others for it: either
    alone may come from how the collective lets its ranks go.
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
            share = _share_above(a, a.median - behind + line / 2)
            found.append(Late(rank, own, behind, share, line, a.spread, a.own - own, a.n))
    return sorted(found, key=lambda late: -late.by)


def both_times(first: Mapping[int, Arrival], again: Mapping[int, Arrival]) -> list[Late]:
    """Those that were late when measured twice, as they were the second time."""
    before = {one.rank for one in judge(first)}
    return [one for one in judge(again) if one.rank in before]


def smallest_effect(arrivals: Mapping[int, Arrival]) -> float | None:
    """Microseconds from which on a rank would have been called late; None: nobody could be."""
    if not are_enough(arrivals):
        return None
    return max(SMALLEST_EFFECT * (a.spread + a.error) for a in arrivals.values())


def _share_above(a: Arrival, line: float) -> float:
    return 1 - bisect.bisect_right(a.quantiles, line) / len(a.quantiles)
