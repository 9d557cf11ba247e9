"""Ranks beside the others of their node: whether one of them is odd, or all, or the same on all."""

import math
import statistics
from collections.abc import Mapping

from oddrank.bench.pairs.games import Teams
from oddrank.bench.pairs.looks import Matrix
from oddrank.bench.pairs.matrix import Suspect, Visits, logs
from oddrank.bench.pairs.noise import Noise, log_effect
from oddrank.bench.pairs.parts import Cell
from oddrank.peers import LINE

# Who has less than this of what makes a suspect is well.
_WELL = 0.5


def are_all_slow(nodes: Teams, alone: Matrix, suspect: Suspect, floor: float) -> bool:
    """Whether all ranks of its node are slow alone, as it is: then it is not the rank.

    Not all of a slow node's cross the line each time, so that one counts unless it is clearly well.
    """
    node_of = _numbers(nodes)
    ways = {(node_of[a], node_of[b]) for a, b in suspect.part.cells}
    place = _places(nodes)
    own: dict[int, list[float]] = {}
    others: list[float] = []
    for cell, value in logs(alone.rates).items():
        ours = (node_of[cell[0]], node_of[cell[1]]) in ways
        (own.setdefault(place[cell[0]], []) if ours else others).append(value)
    if len(own) < 2 or not others:
        return False
    median = statistics.median(others)
    return all(median - statistics.median(values) > _WELL * floor for values in own.values())


def slower_places(nodes: Teams, shared: Visits, effect: float) -> list[int]:
    """The local ranks that move less than another, on all nodes alike.

    On one node it may be the turns they take on its way out; the same ones on all are no chance.
    """
    node_of, place = _numbers(nodes), _places(nodes)
    sent: dict[Cell, list[float]] = {}
    for (sender, _), value in logs(shared).items():
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
    """Beside the best of the same node, by more than that differs from node to node."""
    less = [best[node] - value for node, value in own.items() if node in best]
    if len(less) < 2:
        return False
    noise = Noise(statistics.stdev(less) / math.sqrt(len(less)), len(less) - 1)
    return statistics.fmean(less) > max(floor, noise.line(comparisons))


def _numbers(nodes: Teams) -> dict[int, int]:
    return {rank: number for number, node in enumerate(nodes) for rank in node}


def _places(nodes: Teams) -> dict[int, int]:
    return {rank: local for node in nodes for local, rank in enumerate(node)}
