"""How much healthy peers differ, told by several figures of the same peers together. Pure."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from statistics import median
from typing import TypeVar

from oddrank.peers import DEGREES_OF_DEVIATION, MANY, Comparison, line_of, z_of

_FIGURES = 8  # so many tell a common spread
_CHANCE = 4  # standard deviations
_Name = TypeVar("_Name", bound=Hashable)


def with_common_spread(
    found: Sequence[Comparison[_Name]], smallest: float, comparisons: int
) -> list[Comparison[_Name]]:
    """Of several figures of the same peers: who are not many tell the healthy spread of one figure
    badly, and that of all figures well.

    A figure whose spread is larger than the others' by more than chance keeps its own.
    """
    many = len(found[0].peers) if found else 0
    if len(found) < _FIGURES or many < MANY:
        return list(found)
    common = median(one.spread for one in found)
    degrees = DEGREES_OF_DEVIATION * many
    largest = common * (1 + _CHANCE / math.sqrt(2 * degrees))
    z = z_of(comparisons, degrees * len(found))
    changed = []
    for one in found:
        spread = common if one.spread <= largest else one.spread
        line = line_of(smallest, z, spread, many - 1)
        changed.append(
            replace(one, line=line, spread=spread, visible=one.visible + line - one.line)
        )
    return changed
