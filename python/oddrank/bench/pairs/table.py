"""The matrices of `bench pairs` as data and as tables: bandwidths from rows to columns."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from oddrank.bench.pairs import judge
from oddrank.bench.pairs.matrix import Visits
from oddrank.control.stages import Rounds

# A wider matrix is no longer read: its odd rows, columns and cells are in the findings.
MOST_SHOWN = 16
_MOST_TABLES = 3
_MOST_RANGES = 12
# Title, columns, rows.
Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]
Group = tuple[int, ...]


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


def between_nodes(rounds: Rounds) -> Square | None:
    """All ranks of a node together; None with one node."""
    nodes = judge.nodes_of(rounds)
    if len(nodes) == 1:
        return None
    hosts = [rounds.states[node[0]].host for node in nodes]
    names = [
        host if hosts.count(host) == 1 else f"{host}#{number}" for number, host in enumerate(hosts)
    ]
    return _square(rounds, nodes, names, inside=False)


def inside_nodes(rounds: Rounds) -> dict[str, Square]:
    """By host, where more than one rank is there."""
    return {
        rounds.states[node[0]].host: _square(
            rounds, [(rank,) for rank in node], [f"rank {rank}" for rank in node], inside=True
        )
        for node in judge.nodes_of(rounds)
        if len(node) > 1
    }


def as_data(rounds: Rounds) -> dict[str, Any]:
    """`pairs` of the report: between the nodes, or of the ranks where there is one node."""
    square, inside = between_nodes(rounds), inside_nodes(rounds)
    if square is None:
        square, inside = next(iter(inside.values())), {}
    return {
        **square.as_data(),
        "inside": [{"node": host, **one.as_data()} for host, one in inside.items()],
    }


def tables(rounds: Rounds) -> list[Table]:
    """Each matrix that a screen can hold, else its range."""
    square = between_nodes(rounds)
    squares = {"between nodes": square} if square else {}
    squares |= {f"inside {host}": one for host, one in inside_nodes(rounds).items()}
    shown = {name: one for name, one in squares.items() if len(one.names) <= MOST_SHOWN}
    if len(shown) > _MOST_TABLES:
        shown = {}
    found = [one.table(name, latency) for name, one in shown.items() for latency in (False, True)]
    ranges = [
        (name, *_range(values, unit))
        for name, one in squares.items()
        if name not in shown
        for values, unit in ((one.GBps, "GB/s"), (one.latency_us, "us"))
    ]
    if ranges:
        columns = ["links", "measured", "least", "median", "most"]
        found.append(("bandwidths and latencies", columns, ranges[:_MOST_RANGES]))
    return found


def _range(values: Iterable[Sequence[float | None]], unit: str) -> tuple[str, ...]:
    known = [value for line in values for value in line if value is not None]
    if not known:
        return "0", "-", "-", "-"
    figures = min(known), statistics.median(known), max(known)
    return str(len(known)), *(f"{_cell(value)} {unit}" for value in figures)


def _square(rounds: Rounds, groups: Sequence[Group], names: list[str], *, inside: bool) -> Square:
    found = {m.unit: m.visits for m in judge.matrices(rounds, judge.PAIRS) if m.inside == inside}
    latency = found["us"]
    both_ways = {**latency, **{(to, from_): seen for (from_, to), seen in latency.items()}}
    return Square(
        names, _fill(groups, found["GB/s"], sum), _fill(groups, both_ways, statistics.median)
    )


def _fill(
    groups: Sequence[Group],
    visits: Visits,
    combine: Callable[[Iterable[float]], float],
) -> list[list[float | None]]:
    """What the ranks of two groups measured at once, combined."""
    number = {rank: index for index, group in enumerate(groups) for rank in group}
    cells: dict[tuple[int, int], list[float]] = {}
    for (sender, receiver), seen in visits.items():
        medians = [statistics.median(repeats) for repeats in seen if repeats]
        if medians and sender in number and receiver in number:
            place = number[sender], number[receiver]
            cells.setdefault(place, []).append(statistics.median(medians))
    size = range(len(groups))
    return [[combine(cells[i, j]) if (i, j) in cells else None for j in size] for i in size]


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"
