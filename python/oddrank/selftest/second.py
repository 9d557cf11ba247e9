"""Who measures again, what, and how often: those in doubt beside peers without. Pure."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import median

from oddrank.control.nodes import nodes_of
from oddrank.control.stages import Rounds
from oddrank.peers import MANY
from oddrank.selftest.classes import Class, Look, Slow

# Of a class and metric, the slowest first.
_MOST_DOUBTED = 256
_PARTNERS = 64
# Wanted between the line and the lower bound of who is as slow as looked for, in that.
_MARGIN = 0.1
_MEDIAN = 1.2533  # see peers.of_median
# Figures of a metric that a rank sends.
_MOST_SENT = 400


def _sets() -> dict[str, set[int]]:
    return defaultdict(set)


@dataclass(frozen=True)
class Second:
    """All by metric. repeats: how many; doubted: ranks; partners: who measures beside them.

    good: of large classes the partners, to hold the others against. left: who surely seemed slow
    and is one too many.
    """

    repeats: dict[str, int] = field(default_factory=dict)
    doubted: dict[str, set[int]] = field(default_factory=_sets)
    partners: dict[str, set[int]] = field(default_factory=_sets)
    good: dict[str, set[int]] = field(default_factory=_sets)
    left: set[int] = field(default_factory=set)

    def ranks(self) -> dict[str, list[int]]:
        """Who takes part."""
        return {name: sorted(self.doubted[name] | self.partners[name]) for name in self.repeats}

    def of_doubted(self, found: Iterable[Slow]) -> list[Slow]:
        """Without those of whom there was no doubt."""
        return [one for one in found if self.doubted[one.metric.name].issuperset(one.ranks)]


def plan(rounds: Rounds, first: Look) -> Second:
    """After the first look: for all classes in one go, since each rank measures by itself."""
    planned = Second()
    nodes = nodes_of(rounds)
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
    """Of a small class everybody, else the most usual: those without doubts are faster than all
    are. Whole nodes first, where there are such without doubts.
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
    """So many that chance is small against the line's distance from what is looked for."""
    metric = one.metric
    if one.ranks.noise is None:
        return metric.most
    wanted = (one.ranks.z * _MEDIAN * one.ranks.noise / (_MARGIN * metric.smallest)) ** 2
    return max(metric.repeats, min(metric.most, math.ceil(wanted)))


def to_send(values: Sequence[float]) -> list[float]:
    """As they are, or medians of some hundred parts of them, which tell nearly as much.

    A part has repeats from begin to end: what drifts meanwhile is in all of them alike.
    """
    if len(values) <= _MOST_SENT:
        return list(values)
    return [median(values[i::_MOST_SENT]) for i in range(_MOST_SENT)]
