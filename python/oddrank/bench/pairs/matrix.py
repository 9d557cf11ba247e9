"""Which part of a matrix of links is slow: pure, from repeats to suspects.

Compared are logarithms, of bandwidths or of inverse latencies: lower is slower. A part is slow
where the median of its cells lies below the median of all others (itself excluded) by more than a
line: two thirds of the smallest effect looked for, or as many healthy spreads as one of all the
comparisons passes by chance in 1 % of runs. The spread is that of repeats, or of medians between
visits to the same cell, which also shows what lasts longer than a visit. The simplest set of
parts is found one by one: each time the one that explains most of what is left.
"""

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from oddrank.bench.pairs.noise import (
    Noise,
    as_effect,
    differing,
    log_effect,
    noise_of,
)
from oddrank.bench.pairs.parts import Cell, Part
from oddrank.peers import LINE, MANY, of_median

# The repeats of every visit to a cell.
Visits = Mapping[Cell, Sequence[Sequence[float]]]

# Standard errors above a line of what is found in 99 % of runs.
_SURELY = 2.326
# So many others' cells show a healthy spread of their own beside that of the repeats.
_ENOUGH_CELLS = 6
# So many of a part's cells must be slow, not only their median; of few, all.
_AGREEING = 0.8
_FEW = 4
_FEW_APART = 0.1
# Of too many suspects those do not count that are less far off than this share of the furthest,
# and than so many times the least that is named.
_MINOR, _BARELY = 0.25, 1.5
# So many times as many as are named are found before they are counted.
_LOOKED_AT = 2
# What lasts as long as a visit may hurt every third of them.
_MOST_VISITS = 0.683
# A part this small changes nothing about the median of all.
_SMALL = 0.05


@dataclass(frozen=True)
class Suspect:
    """A part, its median and that of the others, and by how much its logarithm lies below."""

    part: Part
    value: float
    median: float
    below: float
    error: float  # of `below`
    others: int  # cells that it was compared with


@dataclass(frozen=True)
class Judgement:
    """`suspects`, the worst first. uneven: more than a few parts clearly differ: none is named.

    seen_end, seen_link: the smallest effect (0.2 = 20 % slower) that would have been seen in 99 %
    of runs in a sender or receiver, and in a link; None where there was nothing to compare.
    """

    suspects: tuple[Suspect, ...] = ()
    uneven: bool = False
    spread: float = 0.0  # of one repeat, or between visits if that is more
    floor: float = 0.0
    seen_end: float | None = None
    seen_link: float | None = None

    def smallest(self) -> float:
        """The smallest effect that would have been seen wherever it is."""
        return max(self.seen_end or 0.0, self.seen_link or 0.0)

    def is_clear(self, suspect: Suspect) -> bool:
        """Whether also the lower bound of its difference clears the line of the effect."""
        return suspect.below - 1.645 * suspect.error > self.floor


def judge(
    visits: Visits, parts: Sequence[Part], effect: float, members: int, *, shared: bool = False
) -> Judgement:
    """`effect`: the smallest looked for, as a share; `members`: how many senders and receivers.

    shared: what one moves less another moves more, so that those far above are not odd either.
    """
    medians = _medians(visits)
    left = logs(visits)
    if not left:
        return Judgement()
    # Of one cell's median: as its repeats show it, or as its visits do.
    noise = Noise()
    spread = 0.0
    groups: tuple[list[Sequence[float]], list[Sequence[float]]] = (
        [repeats for seen in visits.values() for repeats in seen],
        [*medians.values()],
    )
    for seen, share in zip(groups, (0.5, _MOST_VISITS), strict=True):
        one = noise_of(seen, share)
        noise = noise.beside(one.times(of_median(sum(map(len, seen)) // len(left))))
        spread = max(spread, one.error)
    search = _Search(parts, LINE * log_effect(effect), noise)
    suspects: list[Suspect] = []
    most = _most_suspects(members)
    compared = search.compare(left)
    while len(suspects) <= _LOOKED_AT * most and (worst := search.worst(compared)) is not None:
        suspects.append(worst)
        gone = {*worst.part.cells}
        left = {cell: value for cell, value in left.items() if cell not in gone}
        compared = search.compare(left)
    if len(suspects) > most:
        # Beside one that is far off, what barely crosses the line is no reason to name nobody.
        far = max(suspect.below for suspect in suspects)
        barely = min(_MINOR * far, _BARELY * search.floor)
        suspects = [suspect for suspect in suspects if suspect.below > barely]
    uneven = len(suspects) > most or (not shared and search.are_apart(left.values()))
    return Judgement(
        () if uneven else tuple(sorted(suspects, key=lambda suspect: -suspect.below)),
        uneven,
        spread,
        search.floor,
        *search.smallest(compared),
    )


def below(visits: Visits, part: Part) -> float | None:
    """By how much the logarithm of the part lies below that of the others; None: not measured."""
    known, cells = logs(visits), {*part.cells}
    own = [value for cell, value in known.items() if cell in cells]
    others = [value for cell, value in known.items() if cell not in cells]
    return statistics.median(others) - statistics.median(own) if own and others else None


def logs(visits: Visits) -> dict[Cell, float]:
    """Of the median of each cell that was measured."""
    return {cell: math.log(statistics.median(seen)) for cell, seen in _medians(visits).items()}


def _medians(visits: Visits) -> dict[Cell, list[float]]:
    """Of every visit, where there was one."""
    found = {cell: [statistics.median(v) for v in seen if v] for cell, seen in visits.items()}
    return {cell: medians for cell, medians in found.items() if medians}


def _most_suspects(members: int) -> int:
    """With more of them nobody is odd: the links are of several classes, or the machines busy."""
    return min(8, max(1, members // 3))


@dataclass(frozen=True)
class _Others:
    """What a part is compared with: all cells but its own."""

    median: float
    number: int
    noise: Noise  # of one cell, as they differ; none where they are too few to tell

    @staticmethod
    def of(values: Sequence[float]) -> "_Others":
        median = statistics.median(values) if values else 0.0
        enough = len(values) >= _ENOUGH_CELLS
        return _Others(median, len(values), differing(values, median) if enough else Noise())


@dataclass(frozen=True)
class _Compared:
    """A part beside all others: its cells that are left, their median, the noise of the difference
    between both, and the line that it has to cross."""

    part: Part
    own: Sequence[float]
    value: float
    others: _Others
    noise: Noise
    line: float

    @property
    def below(self) -> float:
        return self.others.median - self.value

    def is_slow(self) -> bool:
        if self.below <= self.line:
            return False
        slow = sum(self.others.median - cell > self.below / 2 for cell in self.own)
        return slow >= (_AGREEING if len(self.own) > _FEW else 1.0) * len(self.own)

    def explains(self) -> float:
        """How much nearer its cells are to their median than to that of the others."""
        return sum(abs(self.others.median - cell) - abs(self.value - cell) for cell in self.own)

    def as_suspect(self) -> Suspect:
        medians = math.exp(self.value), math.exp(self.others.median)
        return Suspect(self.part, *medians, self.below, self.noise.error, self.others.number)


@dataclass(frozen=True)
class _Search:
    """The line of each part, and who lies below it."""

    parts: Sequence[Part]
    floor: float
    noise: Noise  # of one cell's median

    def worst(self, compared: Iterable[_Compared]) -> Suspect | None:
        """The part that explains most of what is left, of those below their line."""
        best: tuple[float, _Compared | None] = 0.0, None
        for one in compared:
            if one.is_slow() and (explained := one.explains()) > best[0] + 1e-12:
                best = explained, one
        return best[1].as_suspect() if best[1] else None

    def are_apart(self, values: Collection[float]) -> bool:
        """Whether more than a few cells are far from the others, in whatever direction: two racks,
        or so many slow ones that those seem to be the rule."""
        line = self._line(self.noise)
        median = statistics.median(values) if values else 0.0
        far = sum(abs(value - median) > line for value in values)
        return far > max(1.0, _FEW_APART * len(values))

    def smallest(self, compared: Iterable[_Compared]) -> tuple[float | None, float | None]:
        """(Of a sender or receiver, of a link): the effect that would have been above the line in
        99 % of runs, for any of them."""
        most: dict[bool, float] = {}
        for one in compared:
            surely, kind = one.line + _SURELY * one.noise.error, one.part.is_between()
            most[kind] = max(surely, most.get(kind, 0.0))
        end, link = (as_effect(most[kind]) if kind in most else None for kind in (False, True))
        return end, link

    def compare(self, left: Mapping[Cell, float]) -> list[_Compared]:
        """Every part of which enough is left, and of the others too."""
        every = _Others.of(list(left.values()))
        known = [
            (part, own, statistics.median(own)) for part in self.parts if (own := _own(part, left))
        ]
        kinds = _noise_of_kinds(known)
        # Parts of one kind, compared with all the others, have one line.
        lines: dict[tuple[str, int, int], tuple[Noise, float]] = {}
        found = []
        for part, own, value in known:
            others = every
            if len(own) > _SMALL * len(left):
                mine = set(part.cells)
                others = _Others.of([value for cell, value in left.items() if cell not in mine])
            if not others.number:
                continue
            alike = *_kind(part), len(own)
            if others is not every or alike not in lines:
                both = math.hypot(of_median(len(own)), of_median(others.number))
                noise = self.noise.beside(others.noise).times(both)
                noise = noise.beside(kinds.get(_kind(part), Noise()))
                lines[alike] = noise, self._line(noise)
            found.append(_Compared(part, own, value, others, *lines[alike]))
        return found

    def _line(self, noise: Noise) -> float:
        return max(self.floor, noise.line(len(self.parts)))


def _noise_of_kinds(
    known: Iterable[tuple[Part, Sequence[float], float]],
) -> dict[tuple[str, int], Noise]:
    """How much healthy parts of one kind differ, where there are many."""
    medians: dict[tuple[str, int], list[float]] = {}
    for part, _, value in known:
        medians.setdefault(_kind(part), []).append(value)
    return {
        kind: differing(values, statistics.median(values))
        for kind, values in medians.items()
        if len(values) >= MANY
    }


def _own(part: Part, left: Mapping[Cell, float]) -> list[float]:
    """The cells of a part that nothing has explained yet; none where they are too few to tell."""
    own = [left[cell] for cell in part.cells if cell in left]
    whole = len(part.cells)
    return own if len(own) >= min(2, whole) and 2 * len(own) >= whole else []


def _kind(part: Part) -> tuple[str, int]:
    return part.kind, len(part.cells)
