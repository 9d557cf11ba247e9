"""The links that one stage measured, as judged matrices.

Comparing a rank with the others of its node shows whether it alone is slow, or all of the node's
ranks, or the same local rank on all nodes.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from oddrank.bench.pairs import matrix
from oddrank.bench.pairs.matrix import (
    Cell,
    Judgement,
    Noise,
    Part,
    Passes,
    Suspect,
    log_effect,
    log_rates,
    parts_of,
)
from oddrank.bench.pairs.schedule import Teams, Where
from oddrank.control.stages import RunState, nodes_of
from oddrank.peers import LINE

# Bandwidths, or latencies one way, which one rank of a pair measures.
Unit = Literal["GB/s", "us"]
UNITS: tuple[Unit, ...] = ("GB/s", "us")
# Smallest effect looked for in latencies, as a share of their inverse: twice as long.
LATENCY_EFFECT = 0.5


@dataclass(frozen=True)
class Matrix:
    """One kind of figure for one kind of links: (from, to) -> figures, one list a pass.

    groups: the ranks of each number in a cell. shared: ranks shared their node's network card with
    others. nodes: the ranks of each node, if the cells are inside nodes.
    """

    unit: Unit
    where: Where
    groups: Teams
    passes: Passes
    shared: bool = False
    nodes: Teams = ()

    def judge(self, effect: float) -> Judgement:
        directed = self.unit == "GB/s"
        parts = parts_of(self.passes, self.groups, directed=directed, nodes=self.nodes)
        members = len({end for cell in self.passes for end in cell})
        least = effect if directed else LATENCY_EFFECT
        return matrix.judge(self.rates, parts, least, members, shared=self.shared)

    def below(self, part: Part) -> float | None:
        return matrix.below(self.rates, part)

    @cached_property
    def rates(self) -> Passes:
        """Returns the figures with larger ones better: inverts latencies."""
        if self.unit == "GB/s":
            return self.passes
        return {
            cell: [[1 / value for value in repeats] for repeats in seen]
            for cell, seen in self.passes.items()
        }


@dataclass(frozen=True)
class Measurement:
    """nodes: the ranks of each node. between: figures between nodes, all ranks of a node together.

    judged: every matrix and its judgement. Between nodes of several ranks there are two matrices:
    one of the nodes, one of their single ranks.
    """

    nodes: Teams
    between: Mapping[Unit, Passes]
    judged: Mapping[tuple[Unit, Where], tuple[Matrix, Judgement]]

    @staticmethod
    def at(run: RunState, stage: str, effect: float) -> "Measurement":
        nodes, ranks = nodes_of(run), [(rank,) for rank in range(run.world)]
        between: dict[Unit, Passes] = {}
        matrices: list[Matrix] = []
        for unit in UNITS:
            seen = _measured(run, stage, unit)
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
        judged = {(m.unit, m.where): (m, m.judge(effect)) for m in matrices if m.passes}
        return Measurement(nodes, between, judged)

    def inside(self, unit: Unit) -> Passes:
        """Returns the figures between ranks of the same node, for all nodes."""
        found = self.judged.get((unit, "inside"))
        return found[0].passes if found else {}

    def has_judged_all(self) -> bool:
        found = self.judged.get(("GB/s", "nodes"))
        return set(self.between["GB/s"]) == set(found[0].passes if found else ())


def _measured(run: RunState, stage: str, unit: Unit) -> dict[Where, dict[Cell, list[list[float]]]]:
    """Returns the figures that single ranks measured in a stage, by kind of game."""
    found: dict[Where, dict[Cell, list[list[float]]]] = {"nodes": {}, "ranks": {}, "inside": {}}
    for rank, games in run.of(stage).items():
        for where, met in games.items():
            for peer, received, latency in met:
                if unit == "GB/s":
                    found[where].setdefault((peer, rank), []).append(received)
                elif latency:
                    found[where].setdefault((rank, peer), []).append(latency)
    return found


def _together(passes: Passes, nodes: Teams) -> dict[Cell, list[Sequence[Sequence[float]]]]:
    """Groups the passes of single ranks by pair of nodes."""
    node_of = {rank: number for number, node in enumerate(nodes) for rank in node}
    found: dict[Cell, list[Sequence[Sequence[float]]]] = {}
    for (sender, receiver), seen in sorted(passes.items()):
        found.setdefault((node_of[sender], node_of[receiver]), []).append(seen)
    return found


def _combine(ranks: Sequence[Sequence[Sequence[float]]], unit: Unit) -> list[Sequence[float]]:
    """Returns the sum of ranks' rates between two nodes, pass by pass; for latencies the median.

    If ranks cut a pass into different numbers of parts, adds their means over the whole pass.
    """
    if len(ranks) == 1:
        return list(ranks[0])
    passes = list(zip(*ranks, strict=True))
    if unit == "us":
        return [[statistics.median(map(statistics.median, one_pass))] for one_pass in passes]
    return [
        [sum(rates) for rates in zip(*one_pass, strict=True)]
        if len({len(rates) for rates in one_pass}) == 1
        else [sum(map(statistics.fmean, one_pass))]
        for one_pass in passes
    ]


def _whole(passes: Iterable[Sequence[float]], unit: Unit) -> list[list[float]]:
    """Returns a rank's rate in each whole pass: in parts of it, other ranks may have moved more."""
    if unit == "us":
        return [list(repeats) for repeats in passes]
    return [[statistics.fmean(rates)] for rates in passes]


def _comparable(passes: Passes, ranks: Mapping[Cell, Sequence[object]]) -> Passes:
    """Leaves out pairs of nodes with an unusual number of ranks: their rates can't be compared."""
    sizes = Counter(map(len, ranks.values()))
    usual = max(sizes, key=lambda size: sizes[size], default=0)
    return {cell: seen for cell, seen in passes.items() if len(ranks[cell]) == usual}


# A rank whose difference is below this share of the floor counts as healthy.
_WELL = 0.5


def are_all_slow(nodes: Teams, alone: Matrix, suspect: Suspect, floor: float) -> bool:
    """Returns whether all ranks of the suspect's node are slow: then the rank is not the cause.

    A rank of a slow node does not cross the line each time: it counts unless it is clearly healthy.
    """
    node_of = _numbers(nodes)
    ways = {(node_of[a], node_of[b]) for a, b in suspect.part.cells}
    place = _places(nodes)
    own: dict[int, list[float]] = {}
    others: list[float] = []
    for cell, value in log_rates(alone.rates).items():
        ours = (node_of[cell[0]], node_of[cell[1]]) in ways
        (own.setdefault(place[cell[0]], []) if ours else others).append(value)
    if len(own) < 2 or not others:
        return False
    median = statistics.median(others)
    return all(median - statistics.median(values) > _WELL * floor for values in own.values())


def slower_places(nodes: Teams, shared: Passes, effect: float) -> list[int]:
    """Returns the local ranks that move less data than the best one, on all nodes alike.

    On one node the order on its network card may be the reason; on all nodes it is no chance.
    """
    node_of, place = _numbers(nodes), _places(nodes)
    sent: dict[Cell, list[float]] = {}
    for (sender, _), value in log_rates(shared).items():
        sent.setdefault((node_of[sender], place[sender]), []).append(value)
    by_place: dict[int, dict[int, float]] = {}
    for (node, local), values in sent.items():
        by_place.setdefault(local, {})[node] = statistics.median(values)
    best = max(by_place, key=lambda local: statistics.median(by_place[local].values()), default=0)
    floor, comparisons = LINE * log_effect(effect), len(by_place) ** 2
    return [
        local
        for local, own in sorted(by_place.items())
        if _is_below(own, by_place[best], floor, comparisons)
    ]


def _is_below(
    own: Mapping[int, float], best: Mapping[int, float], floor: float, comparisons: int
) -> bool:
    """Returns whether it is below the best one by more than the noise between nodes explains."""
    less = [best[node] - value for node, value in own.items() if node in best]
    if len(less) < 2:
        return False
    noise = Noise(statistics.stdev(less) / math.sqrt(len(less)), len(less) - 1)
    return statistics.fmean(less) > max(floor, noise.line(comparisons))


def _numbers(nodes: Teams) -> dict[int, int]:
    return {rank: number for number, node in enumerate(nodes) for rank in node}


def _places(nodes: Teams) -> dict[int, int]:
    return {rank: local for node in nodes for local, rank in enumerate(node)}
