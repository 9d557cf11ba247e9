"""Simulated link matrices with one fault and noise, and the judge's verdict on them."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

from oddrank.bench.pairs.exchange import MOST
from oddrank.bench.pairs.matrix import (
    Judgement,
    Part,
    error_of_median,
    error_wanted,
    judge,
    parts_of,
)
from oddrank.bench.pairs.schedule import Tournament, panel, passes_of

Cell = tuple[int, int]


def rounds_of(tournament: Tournament) -> list[list[tuple[int, int]]]:
    """Returns the pairs of every round, the lower member first."""
    met = [tournament.partners(member) for member in range(tournament.members)]
    return [
        [(member, other) for member, others in enumerate(met)
         for other in [others[turn]] if other is not None and member < other]
        for turn in range(len(tournament.turns))
    ]  # fmt: skip


@dataclass
class Links:
    """Links of `members` ranks, one per node. slow: cell -> slowdown (0.3: by 30 %).

    noise: of one repeat; lasting: of a whole pass over a cell, as another process causes.
    """

    members: int
    noise: float
    random: Random
    slow: Callable[[Cell], float] = field(default=lambda cell: 0.0)
    heavy: bool = False  # some repeats take much longer
    lasting: float = 0.0

    def measure(
        self, ranks: Iterable[int], effect: float, fewest: int = 4
    ) -> dict[Cell, list[list[float]]]:
        """Measures as the ranks do: in several passes, until the median is known well enough."""
        ranks = list(ranks)
        passes = passes_of(len(Tournament.of(len(ranks)).turns))
        wanted = error_wanted(effect, 2 * len(ranks) ** 2) * math.sqrt(passes)
        cells = [
            cell
            for pairs in rounds_of(Tournament.of(len(ranks)))
            for low, high in pairs
            for cell in ((ranks[low], ranks[high]), (ranks[high], ranks[low]))
        ]
        return {
            cell: [self._repeats(cell, fewest, wanted) for _ in range(passes)] for cell in cells
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


def first_measurement(links: Links, effect: float = 0.2) -> Judgement:
    seen = links.measure(range(links.members), effect)
    return judge(seen, links.parts(seen), effect, links.members)


def named(links: Links, effect: float = 0.2) -> list[Part]:
    """Returns the parts named after measurement and recheck."""
    return recheck(links, first_measurement(links, effect), effect)


def recheck(links: Links, first: Judgement, effect: float = 0.2) -> list[Part]:
    """Returns which first suspects the recheck names."""
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
