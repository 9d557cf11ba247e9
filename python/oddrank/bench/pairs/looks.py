"""What one stage has measured of all links, put together once: matrices, and what they show."""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from oddrank.bench.pairs import matrix
from oddrank.bench.pairs.games import Teams, Where
from oddrank.bench.pairs.matrix import Judgement, Visits
from oddrank.bench.pairs.parts import Cell, Part, parts_of
from oddrank.control.nodes import nodes_of
from oddrank.control.stages import Rounds

# GB/s, or us: one way, known for one of both ranks.
Unit = Literal["GB/s", "us"]
UNITS: tuple[Unit, ...] = ("GB/s", "us")
# Looked for in latencies: twice as long.
LATENCY_EFFECT = 0.5


@dataclass(frozen=True)
class Matrix:
    """One kind of figure over one kind of links: (from, to) -> figures, a list a visit.

    groups: the ranks that a number in a cell stands for. shared: those in the cells shared their
    node's way out with others. nodes: the ranks of each, where the cells are inside of them.
    """

    unit: Unit
    where: Where
    groups: Teams
    visits: Visits
    shared: bool = False
    nodes: Teams = ()

    def judge(self, effect: float) -> Judgement:
        directed = self.unit == "GB/s"
        parts = parts_of(self.visits, self.groups, directed=directed, nodes=self.nodes)
        members = len({end for cell in self.visits for end in cell})
        least = effect if directed else LATENCY_EFFECT
        return matrix.judge(self.rates, parts, least, members, shared=self.shared)

    def below(self, part: Part) -> float | None:
        """See matrix.below."""
        return matrix.below(self.rates, part)

    @cached_property
    def rates(self) -> Visits:
        """Larger is better."""
        if self.unit == "GB/s":
            return self.visits
        return {
            cell: [[1 / value for value in repeats] for repeats in seen]
            for cell, seen in self.visits.items()
        }


@dataclass(frozen=True)
class Look:
    """nodes: the ranks of each. between: all ranks of a node together, by node.

    judged: every matrix with what it shows. Between nodes of several ranks there are two: of the
    nodes, and of their single ranks.
    """

    nodes: Teams
    between: Mapping[Unit, Visits]
    judged: Mapping[tuple[Unit, Where], tuple[Matrix, Judgement]]

    @staticmethod
    def at(rounds: Rounds, stage: str, effect: float) -> "Look":
        nodes, ranks = nodes_of(rounds), [(rank,) for rank in range(rounds.world)]
        between: dict[Unit, Visits] = {}
        matrices: list[Matrix] = []
        for unit in UNITS:
            seen = _measured(rounds, stage, unit)
            together = _together(seen["nodes"], nodes)
            between[unit] = {cell: _combine(of, unit) for cell, of in together.items()}
            single = seen["ranks"]
            shared = not single and max(map(len, nodes), default=0) > 1
            if shared:
                single = {cell: _whole(of, unit) for cell, of in seen["nodes"].items()}
            matrices += [
                Matrix(unit, "nodes", nodes, _comparable(between[unit], together)),
                Matrix(unit, "ranks", ranks, single, shared),
                Matrix(unit, "inside", ranks, seen["inside"], nodes=nodes),
            ]
        judged = {(m.unit, m.where): (m, m.judge(effect)) for m in matrices if m.visits}
        return Look(nodes, between, judged)

    def inside(self, unit: Unit) -> Visits:
        """Between ranks of one node, for all nodes."""
        found = self.judged.get((unit, "inside"))
        return found[0].visits if found else {}

    def has_judged_all(self) -> bool:
        """Whether all links between nodes that were measured could be compared."""
        found = self.judged.get(("GB/s", "nodes"))
        return set(self.between["GB/s"]) == set(found[0].visits if found else ())


def _measured(rounds: Rounds, stage: str, unit: Unit) -> dict[Where, dict[Cell, list[list[float]]]]:
    """What single ranks of a stage measured, by kind of game."""
    found: dict[Where, dict[Cell, list[list[float]]]] = {"nodes": {}, "ranks": {}, "inside": {}}
    for rank, games in rounds.of(stage).items():
        for where, met in games.items():
            for peer, received, latency in met:
                if unit == "GB/s":
                    found[where].setdefault((peer, rank), []).append(received)
                elif latency:
                    found[where].setdefault((rank, peer), []).append(latency)
    return found


def _together(visits: Visits, nodes: Teams) -> dict[Cell, list[Sequence[Sequence[float]]]]:
    """By node: the visits of each of its ranks."""
    node_of = {rank: number for number, node in enumerate(nodes) for rank in node}
    found: dict[Cell, list[Sequence[Sequence[float]]]] = {}
    for (sender, receiver), seen in sorted(visits.items()):
        found.setdefault((node_of[sender], node_of[receiver]), []).append(seen)
    return found


def _combine(ranks: Sequence[Sequence[Sequence[float]]], unit: Unit) -> list[Sequence[float]]:
    """What all ranks of a node moved, visit by visit; of latencies the median.

    Of ranks that cut a visit into different numbers of parts only the whole of it adds up.
    """
    if len(ranks) == 1:
        return list(ranks[0])
    visits = list(zip(*ranks, strict=True))
    if unit == "us":
        return [[statistics.median(map(statistics.median, visit))] for visit in visits]
    return [
        [sum(rates) for rates in zip(*visit, strict=True)]
        if len({len(rates) for rates in visit}) == 1
        else [sum(map(statistics.fmean, visit))]
        for visit in visits
    ]


def _whole(visits: Iterable[Sequence[float]], unit: Unit) -> list[list[float]]:
    """What a rank moved in all of a visit: in its parts others may have had more of the way."""
    if unit == "us":
        return [list(repeats) for repeats in visits]
    return [[statistics.fmean(rates)] for rates in visits]


def _comparable(visits: Visits, ranks: Mapping[Cell, Sequence[object]]) -> Visits:
    """Without nodes that have fewer ranks, or more, than most: what they move is not the same."""
    sizes = Counter(map(len, ranks.values()))
    usual = max(sizes, key=lambda size: sizes[size], default=0)
    return {cell: seen for cell, seen in visits.items() if len(ranks[cell]) == usual}
