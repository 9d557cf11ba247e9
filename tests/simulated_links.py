"""Matrices of links with one fault and noise, and what the judge makes of them, for its tests."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

from oddrank.bench.pairs.exchange import MOST
from oddrank.bench.pairs.matrix import Judgement, judge
from oddrank.bench.pairs.noise import error_of_median, error_wanted
from oddrank.bench.pairs.parts import Part, parts_of
from oddrank.bench.pairs.tournament import Tournament, panel, visits_of

Cell = tuple[int, int]


@dataclass
class Links:
    """`members` ranks, one a node. slow: how much slower a cell is (0.3: by 30 %).

    noise: of one repeat; lasting: of a whole visit to a cell, as of another process in the way.
    """

    members: int
    noise: float
    random: Random
    slow: Callable[[Cell], float] = field(default=lambda cell: 0.0)
    heavy: bool = False  # now and then a repeat takes much longer
    lasting: float = 0.0

    def measure(
        self, ranks: Iterable[int], effect: float, fewest: int = 4
    ) -> dict[Cell, list[list[float]]]:
        """As the ranks do it: until the median is known well enough, in several visits."""
        ranks = list(ranks)
        visits = visits_of(len(Tournament.of(len(ranks)).turns))
        wanted = error_wanted(effect, 2 * len(ranks) ** 2) * math.sqrt(visits)
        cells = [
            cell
            for pairs in Tournament.of(len(ranks)).rounds()
            for low, high in pairs
            for cell in ((ranks[low], ranks[high]), (ranks[high], ranks[low]))
        ]
        return {
            cell: [self._repeats(cell, fewest, wanted) for _ in range(visits)] for cell in cells
        }

    def parts(self, cells: Iterable[Cell]) -> list[Part]:
        return parts_of(cells, [(rank,) for rank in range(self.members)])

    def _repeats(self, cell: Cell, fewest: int, wanted: float) -> list[float]:
        found: list[float] = []
        rate = 10 * (1 - self.slow(cell)) * math.exp(self.random.gauss(0, self.lasting))
        while len(found) < fewest or (error_of_median(found) > wanted and len(found) < MOST):
            factor = math.exp(self.random.gauss(0, self.noise))
            if self.heavy and self.random.random() < 0.1:
                factor *= self.random.uniform(0.2, 0.9)
            found.append(rate * factor)
        return found


def first_look(links: Links, effect: float = 0.2) -> Judgement:
    seen = links.measure(range(links.members), effect)
    return judge(seen, links.parts(seen), effect, links.members)


def named(links: Links, effect: float = 0.2) -> list[Part]:
    """Who is named after both looks."""
    return second_look(links, first_look(links, effect), effect)


def second_look(links: Links, first: Judgement, effect: float = 0.2) -> list[Part]:
    """Who is named of those suspected first."""
    suspects = first.suspects
    if not suspects:
        return []
    doubted = [rank for suspect in suspects for rank in sorted(suspect.part.touched())]
    ranks = panel(links.members, doubted)
    seen = links.measure(ranks, effect, fewest=6)
    again = judge(seen, links.parts(seen), effect, len(ranks))
    return [
        one.part
        for one in again.suspects
        if any(one.part.names_as(suspect.part) for suspect in suspects)
    ]


def sender(rank: int, by: float) -> Callable[[Cell], float]:
    return lambda cell: by if cell[0] == rank else 0.0


def receiver(rank: int, by: float) -> Callable[[Cell], float]:
    return lambda cell: by if cell[1] == rank else 0.0


def both(rank: int, by: float) -> Callable[[Cell], float]:
    return lambda cell: by if rank in cell else 0.0


def link(first: int, second: int, by: float) -> Callable[[Cell], float]:
    return lambda cell: by if set(cell) == {first, second} else 0.0


def way(first: int, second: int, by: float) -> Callable[[Cell], float]:
    return lambda cell: by if cell == (first, second) else 0.0
