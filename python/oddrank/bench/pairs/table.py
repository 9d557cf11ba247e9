"""The matrices of `bench pairs` as data and as tables: bandwidths from rows to columns."""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oddrank.bench.pairs.looks import Look
from oddrank.bench.pairs.matrix import Visits
from oddrank.bench.pairs.parts import Cell
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
    """A matrix of `names` x `names`; None where nothing was measured."""

    names: list[str]
    GBps: list[list[float | None]]
    latency_us: list[list[float | None]]

    def as_data(self) -> dict[str, Any]:
        return {"names": self.names, "GBps": self.GBps, "latency_us": self.latency_us}

    def table(self, title: str, latency: bool) -> Table:
        values = self.latency_us if latency else self.GBps
        what = "us one way, the shortest" if latency else "GB/s, from row to column"
        rows = [[name, *map(_cell, line)] for name, line in zip(self.names, values, strict=True)]
        return f"{title}: {what}", ["", *self.names], rows


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
        every = _cells(look.between["GB/s"]), _both_ways(look.between["us"])
        between = Square(names, *(_fill(range(len(nodes)), cells) for cells in every))
    home = {rank: number for number, node in enumerate(nodes) for rank in node}
    rates = _by_node(home, _cells(look.inside("GB/s")))
    latencies = _by_node(home, _both_ways(look.inside("us")))
    return Squares(
        between,
        [
            (
                names[number],
                Square(
                    [f"rank {rank}" for rank in node],
                    _fill(node, rates.get(number, {})),
                    _fill(node, latencies.get(number, {})),
                ),
            )
            for number, node in enumerate(nodes)
            if len(node) > 1
        ],
    )


def _range(values: Iterable[Sequence[float | None]], unit: str) -> tuple[str, ...]:
    known = [value for line in values for value in line if value is not None]
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


def _by_node(home: Mapping[int, int], cells: Cells) -> dict[int, Cells]:
    found: dict[int, Cells] = {}
    for cell, value in cells.items():
        found.setdefault(home[cell[0]], {})[cell] = value
    return found


def _fill(members: Sequence[int], cells: Cells) -> list[list[float | None]]:
    return [[cells.get((sender, receiver)) for receiver in members] for sender in members]


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"
