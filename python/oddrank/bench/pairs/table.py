"""The matrices of `bench pairs` as data and as tables: bandwidths from rows to columns."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oddrank.bench.pairs.looks import Look
from oddrank.bench.pairs.matrix import Visits
from oddrank.bench.pairs.parts import Cell
from oddrank.bench.pairs.tournament import MOST_FOR_ALL
from oddrank.control.stages import Rounds

# A wider matrix is no longer read: its odd rows, columns and cells are in the findings.
MOST_SHOWN = 16
_MOST_TABLES = 3
_MOST_RANGES = 12
# Title, columns, rows.
Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]
Cells = dict[Cell, float]


@dataclass(frozen=True)
class Square:
    """A matrix of names x names: what was measured, by (from, to), the places of two names.

    ranks: those behind each name. latency_us: one way.
    """

    names: Sequence[str]
    ranks: Sequence[tuple[int, ...]]
    GBps: Cells
    latency_us: Cells

    def as_data(self) -> dict[str, Any]:
        """Squares, null where nothing was measured; where that is most of them a list of links."""
        found: dict[str, Any] = {"names": [*self.names], "ranks": [[*own] for own in self.ranks]}
        if len(self.names) > MOST_FOR_ALL:
            cells = sorted({*self.GBps, *self.latency_us})
            links = [[*cell, self.GBps.get(cell), self.latency_us.get(cell)] for cell in cells]
            return {**found, "links": links}
        return {**found, "GBps": self._lines(self.GBps), "latency_us": self._lines(self.latency_us)}

    def table(self, title: str, latency: bool) -> Table:
        cells = self.latency_us if latency else self.GBps
        what = "us one way, the shortest" if latency else "GB/s, from row to column"
        lines = self._lines(cells)
        rows = [[name, *map(_cell, line)] for name, line in zip(self.names, lines, strict=True)]
        return f"{title}: {what}", ["", *self.names], rows

    def _lines(self, cells: Cells) -> list[list[float | None]]:
        size = range(len(self.names))
        return [[cells.get((sender, receiver)) for receiver in size] for sender in size]


@dataclass(frozen=True)
class Squares:
    """between: nodes, all ranks of each together; None with one node. inside: a name and a matrix
    for each node of several ranks."""

    between: Square | None
    inside: Sequence[tuple[str, Square]]

    def as_data(self) -> dict[str, Any]:
        """`pairs` of the report: between the nodes, or of the ranks where there is one node."""
        inside = list(self.inside)
        square = self.between if self.between is not None else inside.pop(0)[1]
        return {
            **square.as_data(),
            "inside": [{"node": name, **one.as_data()} for name, one in inside],
        }

    def tables(self) -> list[Table]:
        """Each matrix that a screen can hold, else its range."""
        named = [("between nodes", self.between)] if self.between is not None else []
        named += [(f"inside {name}", square) for name, square in self.inside]
        shown = [pair for pair in named if len(pair[1].names) <= MOST_SHOWN]
        if len(shown) > _MOST_TABLES:
            shown = []
        found = [square.table(name, of) for name, square in shown for of in (False, True)]
        ranges = [
            (name, *_range(values, unit))
            for name, one in [pair for pair in named if pair not in shown][: _MOST_RANGES // 2]
            for values, unit in ((one.GBps, "GB/s"), (one.latency_us, "us"))
        ]
        if ranges:
            columns = ["links", "measured", "least", "median", "most"]
            found.append(("bandwidths and latencies", columns, ranges))
        return found


def squares(rounds: Rounds, look: Look) -> Squares:
    """All matrices of the first look, each link's median over its visits."""
    nodes = look.nodes
    hosts = [rounds.states[node[0]].host for node in nodes]
    count = Counter(hosts)
    names = [h if count[h] == 1 else f"{h}#{number}" for number, h in enumerate(hosts)]
    between = None
    if len(nodes) > 1:
        rates, latencies = _cells(look.between["GB/s"]), _both_ways(look.between["us"])
        between = Square(names, nodes, rates, latencies)
    place = {rank: (number, i) for number, node in enumerate(nodes) for i, rank in enumerate(node)}
    rates_of = _by_node(place, _cells(look.inside("GB/s")))
    latencies_of = _by_node(place, _both_ways(look.inside("us")))
    inside = [
        (names[number], _of_ranks(node, rates_of.get(number, {}), latencies_of.get(number, {})))
        for number, node in enumerate(nodes)
        if len(node) > 1
    ]
    return Squares(between, inside)


def _of_ranks(node: tuple[int, ...], rates: Cells, latencies: Cells) -> Square:
    names = [f"rank {rank}" for rank in node]
    return Square(names, [(rank,) for rank in node], rates, latencies)


def _range(cells: Cells, unit: str) -> tuple[str, ...]:
    known = [*cells.values()]
    if not known:
        return "0", "-", "-", "-"
    figures = min(known), statistics.median(known), max(known)
    return str(len(known)), *(f"{_cell(value)} {unit}" for value in figures)


def _cells(visits: Visits) -> Cells:
    medians = {cell: [statistics.median(v) for v in seen if v] for cell, seen in visits.items()}
    return {cell: statistics.median(seen) for cell, seen in medians.items() if seen}


def _both_ways(latencies: Visits) -> Cells:
    found = _cells(latencies)
    return found | {(receiver, sender): value for (sender, receiver), value in found.items()}


def _by_node(place: Mapping[int, tuple[int, int]], cells: Cells) -> dict[int, Cells]:
    """Of each node: by the places of two of its ranks."""
    found: dict[int, Cells] = {}
    for (sender, receiver), value in cells.items():
        number, first = place[sender]
        found.setdefault(number, {})[first, place[receiver][1]] = value
    return found


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"
