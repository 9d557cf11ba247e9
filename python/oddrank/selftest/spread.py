"""Estimates how much healthy peers differ, from several figures of the same peers. Pure."""

import math
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace
from statistics import median
from typing import TypeVar

from oddrank.peers import (
    DEGREES_OF_DEVIATION,
    LINE,
    MANY,
    Comparison,
    deviation,
    line_of,
    of_median,
    spread_of,
    z_of,
)

_CHANCE = 4  # standard deviations
_FEW = 4  # among fewer peers a single slow one makes up most of the spread
_Name = TypeVar("_Name", bound=Hashable)


def with_common_spread(
    found: Sequence[Comparison[_Name]], smallest: float, comparisons: int, groups: int = 0
) -> list[Comparison[_Name]]:
    """Pools the healthy spread of several figures: few peers show one figure's spread badly.

    A figure whose spread is larger than the others' by more than chance keeps its own. groups: the
    number of groups of peers that are more alike, as a node's ranks are.
    """
    many = len(found[0].peers) if found else 0
    figures = _of_healthy(found, smallest)
    if many < MANY or sum(map(len, figures)) < MANY:
        return list(found)
    common, noise, count = _common(found, figures, groups)
    chance = 1 + _CHANCE / math.sqrt(2 * DEGREES_OF_DEVIATION * many)
    line = line_of(smallest, z_of(comparisons, DEGREES_OF_DEVIATION * count), common, many - 1)
    return [
        one
        if figure and deviation(figure, 0.0) > chance * math.hypot(common, noise)
        else replace(one, line=line, spread=common, visible=one.visible + line - one.line)
        for one, figure in zip(found, figures, strict=True)
    ]


def sure_line(
    found: Sequence[Comparison[_Name]], smallest: float, comparisons: int, groups: int = 0
) -> float:
    """Returns the line of the recheck: a peer below it may be healthy. Returns 0 if unknown.

    The recheck's many repeats show the spread of few peers, too.
    """
    many = len(found[0].peers) if found else 0
    figures = _of_healthy(found, smallest)
    if many < _FEW or sum(len(figure) - 1 for figure in figures) < MANY:
        return 0.0
    common, _, count = _common(found, figures, groups)
    return line_of(smallest, z_of(comparisons, DEGREES_OF_DEVIATION * count), common, many - 1)


def _common(
    found: Sequence[Comparison[_Name]], figures: Sequence[Sequence[float]], groups: int
) -> tuple[float, float, int]:
    """Returns the spread, the noise of a peer's value, and the number of deviations used."""
    errors = (
        (one.noise or 0.0) * median(of_median(peer.repeats) for peer in one.peers) for one in found
    )
    noise = median(errors)
    common = spread_of([each for figure in figures for each in figure], noise)
    if groups > 1:  # the middle of few groups is nearer to them than the true one
        common *= math.sqrt(groups / (groups - 1))
    return common, noise, sum(len(figure) - 1 for figure in figures)


def _of_healthy(found: Sequence[Comparison[_Name]], smallest: float) -> list[list[float]]:
    """Returns each figure's deviations from its middle, as logarithms.

    Leaves out peers that are slow in several figures: that is no chance, and many of them would
    widen the spread.
    """
    slow = Counter(peer.name for one in found for peer in one.peers if peer.lower > LINE * smallest)
    several = {name for name, count in slow.items() if count > 1}
    return [_deviations(one, several) for one in found]


def _deviations(found: Comparison[_Name], left_out: Collection[_Name]) -> list[float]:
    logs = [math.log(peer.value) for peer in found.peers if peer.name not in left_out]
    center = median(logs) if logs else 0.0
    return [log - center for log in logs]
