"""Finds the slow parts of a matrix of links. Pure: from repeats to suspects.

A part is a set of cells (from, to), between ranks or between nodes: a sender, a receiver, both, a
link, one way of it, or all links inside a node. If two parts are the same set, the smaller claim is
kept: with two ranks alone, the link, its sender or its receiver may be slow.

Compares logarithms of bandwidths or of inverse latencies: lower is slower. A part is slow if the
median of its cells lies below the median of all other cells by more than a line. The line is two
thirds of the smallest effect looked for, or as many healthy spreads as any of the comparisons
exceeds by chance in 1 % of runs, if that is more. The spread comes from repeats, or from medians of
passes over the same cell, which also shows disturbances longer than a pass. The search takes one
part at a time: the one that explains most of the remaining cells.
"""

import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, get_args

from oddrank.finding import grouped
from oddrank.peers import DEGREES_OF_DEVIATION, LINE, MANY, deviation, of_median, z_of

# Degrees of freedom that a step between neighbours adds to a spread, divided by the quantile's
# share: simulated with normal values (0.33 degrees at the median, 0.48 at 0.683).
_DEGREES_OF_STEP = 0.7


@dataclass(frozen=True)
class Noise:
    """A standard error, and its degrees of freedom."""

    error: float = 0.0
    degrees: float = 1.0

    def line(self, comparisons: int) -> float:
        """Returns the line that any of `comparisons` values crosses by chance in 1 % of runs."""
        return self.error * z_of(comparisons, self.degrees)

    def times(self, factor: float) -> "Noise":
        return Noise(self.error * factor, self.degrees)

    def beside(self, other: "Noise") -> "Noise":
        """Returns `other` if it is larger: the sum of this noise and a further one.

        Degrees of the sum: F. E. Satterthwaite, "An approximate distribution of estimates of
        variance components", Biometrics Bulletin 2 (1946), p. 110.
        """
        beyond = other.error**2 - self.error**2
        if beyond <= 0:
            return self
        parts = self.error**4 / self.degrees + beyond**2 / other.degrees
        return Noise(other.error, other.error**4 / parts)


def log_effect(effect: float) -> float:
    """Converts a slowdown (0.2 is 20 %) to a difference of logarithms."""
    return -math.log1p(-effect)


def error_wanted(effect: float, comparisons: int) -> float:
    """Returns the standard error of a cell's median at which more repeats would not help."""
    return LINE * log_effect(effect) / (1.5 * z_of(comparisons))


def error_of_median(repeats: Sequence[float]) -> float:
    """Returns the standard error of the logarithm of the repeats' median, to know when to stop.
    Uses the mean of the steps, not their median: with few repeats the mean is more precise."""
    steps = _steps(repeats)
    spread = statistics.fmean(steps) * math.sqrt(math.pi) / 2 if steps else math.inf
    return spread * of_median(len(repeats))


def _steps(repeats: Sequence[float]) -> list[float]:
    return [abs(math.log(after / before)) for before, after in itertools.pairwise(repeats)]


def noise_of(cells: Collection[Sequence[float]], share: float = 0.5) -> Noise:
    """Returns the noise of one repeat's logarithm, pooled over cells; of error 0 if unknown.

    Uses the quantile `share` of steps between neighbours: neither a drift nor rare disturbances add
    to it.
    """
    steps = sorted(step for repeats in cells for step in _steps(repeats))
    if not steps:
        return Noise()
    quantile = steps[math.ceil(share * len(steps)) - 1]
    error = quantile / (math.sqrt(2) * NormalDist().inv_cdf((1 + share) / 2))
    return Noise(error, max(1.0, _DEGREES_OF_STEP * share * len(steps)))


def differing(values: Sequence[float], median: float) -> Noise:
    """Returns the noise of one of these values; robust against a few odd ones."""
    return Noise(deviation(values, median), max(1.0, DEGREES_OF_DEVIATION * len(values)))


Cell = tuple[int, int]
# From the smallest claim to the largest. link: both ways between `ranks` and `to`; way: from
# `ranks` to `to`; both: sender and receiver; among: links between `ranks`.
Kind = Literal["link", "way", "both", "sender", "receiver", "among"]


@dataclass(frozen=True)
class Part:
    """A part. `ranks` are the slow ones; for a way and a link, `to` is the other end."""

    kind: Kind
    ranks: tuple[int, ...]
    to: tuple[int, ...] = ()
    cells: tuple[Cell, ...] = ()

    def is_between(self) -> bool:
        return self.kind in ("way", "link")

    def names_as(self, other: "Part") -> bool:
        """Returns whether both name the same ranks, in any direction."""
        return self.is_between() == other.is_between() and self.touched() == other.touched()

    def touched(self) -> set[int]:
        return {*self.ranks, *self.to}


def parts_of(
    cells: Iterable[Cell], groups: Sequence[tuple[int, ...]], *, directed: bool = True,
    nodes: Sequence[tuple[int, ...]] = (),
) -> list[Part]:  # fmt: skip
    """Returns the parts, from the smallest claim to the largest; of equal ones the first.

    directed: whether to include senders, receivers and ways. groups: the ranks of each number in a
    cell; nodes: nodes that may be slow inside.
    """
    node_of = {rank: number for number, node in enumerate(nodes) for rank in node}
    found: dict[Kind, dict[tuple[int, ...], list[Cell]]] = {kind: {} for kind in get_args(Kind)}
    for cell in sorted(cells):
        sender, receiver = cell
        ends: list[tuple[Kind, tuple[int, ...]]] = [
            ("link", (min(cell), max(cell))), ("both", (sender,)), ("both", (receiver,))
        ]  # fmt: skip
        if directed:
            ends += [("way", cell), ("sender", (sender,)), ("receiver", (receiver,))]
        if sender in node_of and node_of[sender] == node_of.get(receiver):
            ends.append(("among", (node_of[sender],)))
        for kind, end in ends:
            found[kind].setdefault(end, []).append(cell)
    first: dict[tuple[Cell, ...], Part] = {}
    for kind, parts in found.items():
        for end, own in sorted(parts.items()):
            of = nodes if kind == "among" else groups
            to = of[end[1]] if end[1:] else ()
            first.setdefault(tuple(own), Part(kind, of[end[0]], to, tuple(own)))
    return list(first.values())


Unit = Literal["GB/s", "us"]  # bandwidths, or latencies one way, which one rank of a pair measures
Passes = Mapping[Cell, Sequence[Sequence[float]]]  # the repeats of every pass to a cell

_SURELY = 2.326  # an effect this many standard errors above the line is found in 99 % of runs
_ENOUGH_CELLS = 6  # fewest other cells that show a healthy spread
# Share of a part's cells that must be slow; all cells if there are at most _FEW.
_AGREEING = 0.8
_FEW = 4
_FEW_APART = 0.1  # share of cells that may be far from the median in a matrix that is not uneven
# If there are too many suspects, ignores those below this share of the largest effect, and below
# this multiple of the floor of the line.
_MINOR, _BARELY = 0.25, 1.5
# Searches for this many times the suspects that may be named, to see whether there are too many.
_LOOKED_AT = 2
# Quantile of steps between passes: a disturbance as long as a pass may hurt every third pass.
_MOST_PASSES = 0.683
_SMALL = 0.05  # a part with at most this share of all cells hardly changes the median of all


@dataclass(frozen=True)
class Suspect:
    """A slow part: its median, the others' median, and the difference of their logarithms."""

    part: Part
    value: float
    median: float
    below: float
    error: float  # of `below`
    others: int  # cells that it was compared with


@dataclass(frozen=True)
class Judgement:
    """suspects: the worst first. uneven: too many parts differ to name one.

    seen_end, seen_link: smallest effect (0.2 = 20 % slower) that 99 % of runs find in a sender or
    receiver, and in a link; None if there was nothing to compare.
    """

    suspects: tuple[Suspect, ...] = ()
    uneven: bool = False
    spread: float = 0.0  # of one repeat, or between passes if that is more
    floor: float = 0.0
    seen_end: float | None = None
    seen_link: float | None = None

    def smallest(self) -> float:
        """Returns the smallest effect that is found wherever it is."""
        return max(self.seen_end or 0.0, self.seen_link or 0.0)

    def is_clear(self, suspect: Suspect) -> bool:
        """Returns whether the lower bound of its difference is above the floor of the line, too."""
        return suspect.below - 1.645 * suspect.error > self.floor


def judge(
    passes: Passes, parts: Sequence[Part], effect: float, members: int, *, shared: bool = False
) -> Judgement:
    """Finds the suspects of a matrix.

    effect: the smallest looked for, as a share; members: number of ranks or nodes in the matrix.
    shared: members share a network card, where one is fast because another is slow: cells far from
    the median don't make the matrix uneven.
    """
    medians = _medians(passes)
    left = log_rates(passes)
    if not left:
        return Judgement()
    # Noise of one cell's median, from its repeats or from its passes.
    noise = Noise()
    spread = 0.0
    groups: tuple[list[Sequence[float]], list[Sequence[float]]] = (
        [repeats for seen in passes.values() for repeats in seen],
        [*medians.values()],
    )
    for seen, share in zip(groups, (0.5, _MOST_PASSES), strict=True):
        one = noise_of(seen, share)
        noise = noise.beside(one.times(of_median(sum(map(len, seen)) // len(left))))
        spread = max(spread, one.error)
    search = _Search(parts, LINE * log_effect(effect), noise)
    suspects: list[Suspect] = []
    most = min(8, max(1, members // 3))  # more would mean several kinds of links, or busy hosts
    compared = search.compare(left)
    while len(suspects) <= _LOOKED_AT * most and (worst := search.worst(compared)) is not None:
        suspects.append(worst)
        gone = {*worst.part.cells}
        left = {cell: value for cell, value in left.items() if cell not in gone}
        compared = search.compare(left)
    if len(suspects) > most:
        # Ignores suspects that barely cross the line beside one that is far off.
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


def below(passes: Passes, part: Part) -> float | None:
    """Returns how far the part's logarithm is below the others'; None: not measured."""
    known, cells = log_rates(passes), {*part.cells}
    own = [value for cell, value in known.items() if cell in cells]
    others = [value for cell, value in known.items() if cell not in cells]
    return statistics.median(others) - statistics.median(own) if own and others else None


def figures_of(passes: Passes) -> dict[Cell, float]:
    """Returns the figure of each measured cell: the median of its passes' medians."""
    return {cell: statistics.median(medians) for cell, medians in _medians(passes).items()}


def log_rates(passes: Passes) -> dict[Cell, float]:
    return {cell: math.log(figure) for cell, figure in figures_of(passes).items()}


def _medians(passes: Passes) -> dict[Cell, list[float]]:
    found = {cell: [statistics.median(v) for v in seen if v] for cell, seen in passes.items()}
    return {cell: medians for cell, medians in found.items() if medians}


@dataclass(frozen=True)
class _Others:
    median: float
    number: int
    noise: Noise  # of one cell, from their differences; none if they are too few

    @staticmethod
    def of(values: Sequence[float]) -> "_Others":
        median = statistics.median(values) if values else 0.0
        enough = len(values) >= _ENOUGH_CELLS
        return _Others(median, len(values), differing(values, median) if enough else Noise())


@dataclass(frozen=True)
class _Compared:
    """A part's remaining cells (`own`), their median (`value`), and all other cells.
    noise: of the difference between both; line: difference above which the part is slow."""

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
        """Returns how much nearer its cells are to their own median than to the others'."""
        return sum(abs(self.others.median - cell) - abs(self.value - cell) for cell in self.own)

    def as_suspect(self) -> Suspect:
        medians = math.exp(self.value), math.exp(self.others.median)
        return Suspect(self.part, *medians, self.below, self.noise.error, self.others.number)


@dataclass(frozen=True)
class _Search:
    """The line of each part, and the parts below it."""

    parts: Sequence[Part]
    floor: float
    noise: Noise  # of one cell's median

    def worst(self, compared: Iterable[_Compared]) -> Suspect | None:
        """Returns the slow part that explains most of the remaining cells; None if none is slow."""
        best: tuple[float, _Compared | None] = 0.0, None
        for one in compared:
            if one.is_slow() and (explained := one.explains()) > best[0] + 1e-12:
                best = explained, one
        return best[1].as_suspect() if best[1] else None

    def are_apart(self, values: Collection[float]) -> bool:
        """Returns whether so many cells are far from the median that they seem normal."""
        line = self._line(self.noise)
        median = statistics.median(values) if values else 0.0
        far = sum(abs(value - median) > line for value in values)
        return far > max(1.0, _FEW_APART * len(values))

    def smallest(self, compared: Iterable[_Compared]) -> tuple[float | None, float | None]:
        """Returns the smallest effects that 99 % of runs find: (in any end, in any link).
        None if there is none to compare."""
        most: dict[bool, float] = {}
        for one in compared:
            surely, kind = one.line + _SURELY * one.noise.error, one.part.is_between()
            most[kind] = max(surely, most.get(kind, 0.0))
        end, link = (-math.expm1(-most[k]) if k in most else None for k in (False, True))
        return end, link

    def compare(self, left: Mapping[Cell, float]) -> list[_Compared]:
        """Compares every part that has enough cells left, and enough others."""
        every = _Others.of(list(left.values()))
        known = [
            (part, own, statistics.median(own)) for part in self.parts if (own := _own(part, left))
        ]
        kinds = _noise_of_kinds(known)
        # Parts of one kind and size share a line if they are compared with all cells.
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
    """Returns how much healthy parts of one kind differ, if there are many."""
    medians = grouped((_kind(part), value) for part, _, value in known)
    return {
        kind: differing(values, statistics.median(values))
        for kind, values in medians.items()
        if len(values) >= MANY
    }


def _own(part: Part, left: Mapping[Cell, float]) -> list[float]:
    """Returns a part's cells that nothing has explained yet; empty if they are too few."""
    own = [left[cell] for cell in part.cells if cell in left]
    whole = len(part.cells)
    return own if len(own) >= min(2, whole) and 2 * len(own) >= whole else []


def _kind(part: Part) -> tuple[str, int]:
    return part.kind, len(part.cells)
