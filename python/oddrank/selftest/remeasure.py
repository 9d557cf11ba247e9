"""Plans the recheck: ranks in doubt measure again, beside peers that are not. Pure."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import median

from oddrank.control.evidence import nodes_of
from oddrank.control.stages import RunState
from oddrank.peers import MANY
from oddrank.selftest.speed_judge import Class, Look, Slow

# Per class and metric: at most so many ranks in doubt, the slowest first, and so many partners.
_MOST_DOUBTED = 256
_PARTNERS = 64
# In the recheck z standard errors are to be this share of the smallest effect looked for.
_MARGIN = 0.1
_MEDIAN = 1.2533  # see peers.of_median
# A rank sends at most so many figures of a metric.
_MOST_SENT = 400


def _sets() -> dict[str, set[int]]:
    return defaultdict(set)


@dataclass(frozen=True)
class Remeasure:
    """The plan by metric. doubted: ranks in doubt; partners: the ranks that measure beside them.

    good: in large classes the partners, as the only peers to compare with. left: ranks that were
    slow in the first measurement, but too many to measure again.
    """

    repeats: dict[str, int] = field(default_factory=dict)
    doubted: dict[str, set[int]] = field(default_factory=_sets)
    partners: dict[str, set[int]] = field(default_factory=_sets)
    good: dict[str, set[int]] = field(default_factory=_sets)
    left: set[int] = field(default_factory=set)

    def ranks(self) -> dict[str, list[int]]:
        """Returns the ranks that measure each metric."""
        return {name: sorted(self.doubted[name] | self.partners[name]) for name in self.repeats}

    def of_doubted(self, found: Iterable[Slow]) -> list[Slow]:
        """Returns those of `found` that were in doubt."""
        return [one for one in found if self.doubted[one.metric.name].issuperset(one.ranks)]


def plan(run: RunState, first: Look) -> Remeasure:
    """Plans all classes in one go, since each rank measures by itself."""
    planned = Remeasure()
    nodes = nodes_of(run)
    for one in first.classes:
        doubted = one.doubted()
        if not doubted:
            continue
        name = one.metric.name
        slowest = [peer for peer in one.ranks.peers if peer.name in doubted]
        planned.left.update(
            peer.name for peer in slowest[_MOST_DOUBTED:] if peer.lower > one.ranks.line
        )
        partners = _partners(one, doubted, nodes)
        planned.doubted[name].update(peer.name for peer in slowest[:_MOST_DOUBTED])
        planned.partners[name] |= partners
        if len(one.ranks.peers) >= MANY:
            planned.good[name] |= partners
        planned.repeats[name] = max(planned.repeats.get(name, 0), _repeats(one))
    return planned


def _partners(one: Class, doubted: Collection[int], nodes: Iterable[tuple[int, ...]]) -> set[int]:
    """Returns the ranks to measure beside `doubted`: all others of a small class.

    In a large class those nearest to the usual speed, as ranks without doubts are faster than
    average. Takes whole nodes without doubts first.
    """
    effects = one.effects
    if len(effects) < MANY:
        return set(effects) - set(doubted)
    whole: list[list[int]] = []
    other: list[list[int]] = []
    for node in nodes:
        here = [rank for rank in node if rank in effects]
        known = [rank for rank in here if rank not in doubted]
        if here and known == here:
            whole.append(here)
        else:
            other += ([rank] for rank in known)
    for some in (whole, other):
        some.sort(key=lambda ranks: abs(median(effects[rank] for rank in ranks)))
    return set(list(chain(*whole, *other))[:_PARTNERS])


def _repeats(one: Class) -> int:
    """Returns how many repeats make the noise small against the smallest effect looked for."""
    metric = one.metric
    if one.ranks.noise is None:
        return metric.most
    wanted = (one.ranks.z * _MEDIAN * one.ranks.noise / (_MARGIN * metric.smallest)) ** 2
    return max(metric.repeats, min(metric.most, math.ceil(wanted)))


def to_send(values: Sequence[float]) -> list[float]:
    """Returns the values, or medians of some hundred parts, which tell nearly as much.

    Each part has repeats from begin to end: a drift meanwhile is alike in all parts.
    """
    if len(values) <= _MOST_SENT:
        return list(values)
    return [median(values[i::_MOST_SENT]) for i in range(_MOST_SENT)]
