"""Makes the report of `bench pairs`, and its matrices as data and as tables.

In a table, rows are senders and columns receivers.
"""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oddrank.bench.pairs.judge import PAIRS, Judge, Measurement, settle
from oddrank.bench.pairs.matrix import Cell, Passes, figures_of
from oddrank.bench.pairs.schedule import MOST_FOR_ALL, place_of
from oddrank.control.stages import RunState
from oddrank.control.walk import Outcome
from oddrank.finding import number_text
from oddrank.launch import Launch
from oddrank.report import Report

# A wider matrix is unreadable: the findings name its odd rows, columns and cells.
MOST_SHOWN = 16
_MOST_TABLES = 3
_MOST_RANGES = 12
# Title, columns, rows.
Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]
Cells = dict[Cell, float]


@dataclass(frozen=True)
class Square:
    """A square matrix, by (from, to), the indices of two names.

    ranks: the ranks of each name. latency_us: one way.
    """

    names: Sequence[str]
    ranks: Sequence[tuple[int, ...]]
    GBps: Cells
    latency_us: Cells

    def as_data(self) -> dict[str, Any]:
        """Returns squares, null for unmeasured cells; above MOST_FOR_ALL names, a list of links."""
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


# The matrix of nodes, named "", and one for the ranks of each node; with one node, this one alone.
Squares = Sequence[tuple[str, Square]]


def data_of(squares: Squares) -> dict[str, Any]:
    """Returns the report's `pairs`: the first matrix, and those inside other nodes."""
    (_, first), *rest = squares
    return {**first.as_data(), "inside": [{"node": name, **one.as_data()} for name, one in rest]}


def tables_of(squares: Squares) -> list[Table]:
    """Returns the table of each matrix that fits a screen; of the others, a table of ranges."""
    named = [(f"inside {name}" if name else "between nodes", square) for name, square in squares]
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


def squares_of(run: RunState, found: Measurement) -> Squares:
    """Returns all matrices of the first measurement: each link's median over its passes."""
    nodes = found.nodes
    hosts = [run.states[node[0]].host for node in nodes]
    count = Counter(hosts)
    names = [h if count[h] == 1 else f"{h}#{number}" for number, h in enumerate(hosts)]
    made = []
    if len(nodes) > 1:
        rates, latencies = figures_of(found.between["GB/s"]), _both_ways(found.between["us"])
        made.append(("", Square(names, nodes, rates, latencies)))
    place = place_of(nodes)
    rates_of = _by_node(place, figures_of(found.inside("GB/s")))
    latencies_of = _by_node(place, _both_ways(found.inside("us")))
    for number, node in enumerate(nodes):
        if len(node) > 1:
            of_node = rates_of.get(number, {}), latencies_of.get(number, {})
            ranks = [(rank,) for rank in node]
            made.append((names[number], Square([f"rank {r}" for r in node], ranks, *of_node)))
    return made


def _range(cells: Cells, unit: str) -> tuple[str, ...]:
    known = [*cells.values()]
    if not known:
        return "0", "-", "-", "-"
    figures = min(known), statistics.median(known), max(known)
    return str(len(known)), *(f"{_cell(value)} {unit}" for value in figures)


def _both_ways(latencies: Passes) -> Cells:
    found = figures_of(latencies)
    return found | {(receiver, sender): value for (sender, receiver), value in found.items()}


def _by_node(place: Mapping[int, tuple[int, int]], cells: Cells) -> dict[int, Cells]:
    """Returns each node's cells, by the indices of two of its ranks."""
    found: dict[int, Cells] = {}
    for (sender, receiver), value in cells.items():
        number, first = place[sender]
        found.setdefault(number, {})[first, place[receiver][1]] = value
    return found


def _cell(value: float | None) -> str:
    return "-" if value is None else number_text(value, 3)


def of_pairs(outcome: Outcome, launch: Launch, judge: Judge) -> tuple[Report, Sequence[Table]]:
    run = outcome.run
    measured = bool(run.of(PAIRS))
    found, passed = settle(outcome.findings)
    if measured and not found:
        found = judge.unresolved(run)
    why = outcome.why or passed
    if measured and not found:
        why = outcome.why or judge.all_well(run, passed)
    squares = squares_of(run, judge.measurement(run)) if measured else []
    report = Report.of(
        "bench", launch.as_world(), {"pairs": data_of(squares) if squares else None}, found,
        complete=outcome.complete, why=why, raised=run.raised(),
    )  # fmt: skip
    return report, tables_of(squares)
