"""How much healthy peers differ, told by several figures of the same peers together. Pure."""

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
_FEW = 4  # of fewer a single slow one makes up most of the spread
_Name = TypeVar("_Name", bound=Hashable)


def with_common_spread(
    found: Sequence[Comparison[_Name]], smallest: float, comparisons: int, groups: int = 0
) -> list[Comparison[_Name]]:
    """Of several figures of the same peers: who are not many tell the healthy spread of one figure
    badly, and that of all figures well.

    A figure whose spread is larger than the others' by more than chance keeps its own. groups: how
    many there are of peers that are more alike, such as a node's ranks.
    """
    many = len(found[0].peers) if found else 0
    figures = _of_healthy(found, smallest)
    if many < MANY or sum(map(len, figures)) < MANY:
        return list(found)
    common, noise, told = _common(found, figures, groups)
    chance = 1 + _CHANCE / math.sqrt(2 * DEGREES_OF_DEVIATION * many)
    line = line_of(smallest, z_of(comparisons, DEGREES_OF_DEVIATION * told), common, many - 1)
    return [
        one
        if figure and deviation(figure, 0.0) > chance * math.hypot(common, noise)
        else replace(one, line=line, spread=common, visible=one.visible + line - one.line)
        for one, figure in zip(found, figures, strict=True)
    ]


def sure_line(
    found: Sequence[Comparison[_Name]], smallest: float, comparisons: int, groups: int = 0
) -> float:
    """Of the second look, whose many repeats show also what few peers differ by: who lags less may
    still be healthy. 0 where that can't be told.
    """
    many = len(found[0].peers) if found else 0
    figures = _of_healthy(found, smallest)
    if many < _FEW or sum(len(figure) - 1 for figure in figures) < MANY:
        return 0.0
    common, _, told = _common(found, figures, groups)
    return line_of(smallest, z_of(comparisons, DEGREES_OF_DEVIATION * told), common, many - 1)


def _common(
    found: Sequence[Comparison[_Name]], figures: Sequence[Sequence[float]], groups: int
) -> tuple[float, float, int]:
    """The spread, the noise of a peer's value, and by how many deviations they are told."""
    errors = (
        (one.noise or 0.0) * median(of_median(peer.repeats) for peer in one.peers) for one in found
    )
    noise = median(errors)
    common = spread_of([each for figure in figures for each in figure], noise)
    if groups > 1:  # the middle of few groups is nearer to them than the truth is
        common *= math.sqrt(groups / (groups - 1))
    return common, noise, sum(len(figure) - 1 for figure in figures)


def _of_healthy(found: Sequence[Comparison[_Name]], smallest: float) -> list[list[float]]:
    """Of each figure the deviations from the middle, as logarithms, of the peers that may be
    healthy: chance makes nobody slow in several figures, and many who are would seem the rule.
    """
    slow = Counter(peer.name for one in found for peer in one.peers if peer.lower > LINE * smallest)
    several = {name for name, count in slow.items() if count > 1}
    return [_deviations(one, several) for one in found]


def _deviations(found: Comparison[_Name], left_out: Collection[_Name]) -> list[float]:
    logs = [math.log(peer.value) for peer in found.peers if peer.name not in left_out]
    center = median(logs) if logs else 0.0
    return [log - center for log in logs]
