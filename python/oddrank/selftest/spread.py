"""How much healthy peers differ, told by several figures of the same peers together. Pure."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from statistics import median
from typing import TypeVar

from oddrank.peers import (
    DEGREES_OF_DEVIATION,
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
    found: Sequence[Comparison[_Name]],
    smallest: float,
    comparisons: int,
    *,
    groups: int = 0,
    again: bool,
) -> list[Comparison[_Name]]:
    """Of several figures of the same peers: who are not many tell the healthy spread of one figure
    badly, and that of all figures well.

    A figure whose spread is larger than the others' by more than chance keeps its own. groups: how
    many there are of peers that are more alike, such as a node's ranks. again: the second look,
    whose many repeats show also what few peers differ by; no line comes nearer by it.
    """
    many = len(found[0].peers) if found else 0
    told = len(found) * (many - 1)
    if told < MANY or many < (_FEW if again else MANY):
        return list(found)
    figures = [_deviations(one) for one in found]
    noise = median((one.noise or 0.0) * of_median(one.peers[0].repeats) for one in found)
    common = spread_of([each for figure in figures for each in figure], noise)
    if groups > 1:  # the middle of few groups is nearer to them than the truth is
        common *= math.sqrt(groups / (groups - 1))
    largest = math.hypot(common, noise) * (1 + _CHANCE / math.sqrt(2 * DEGREES_OF_DEVIATION * many))
    z = z_of(comparisons, DEGREES_OF_DEVIATION * told)
    line = line_of(smallest, z, common, many - 1)
    changed = []
    for one, figure in zip(found, figures, strict=True):
        if deviation(figure, 0.0) > largest or (again and one.line > line):
            changed.append(one)
        else:
            visible = one.visible + line - one.line
            changed.append(replace(one, line=line, spread=common, visible=visible))
    return changed


def _deviations(found: Comparison[_Name]) -> list[float]:
    """Of the peers' values from their median, as logarithms."""
    logs = [math.log(peer.value) for peer in found.peers]
    center = median(logs)
    return [log - center for log in logs]
