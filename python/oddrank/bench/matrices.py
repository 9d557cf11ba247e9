"""The matrices of a saved report of `bench pairs`: between the nodes, and inside each of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from oddrank.bench.fields import Fields, is_number, is_positive, refuse, short

# Of all matrices together: what a report of 16,384 nodes has, some times over.
_MOST_NAMES = 1 << 17
_MOST_FIGURES = 2_000_000
_MOST_MATRICES = 1 << 14

Cells = Mapping[tuple[int, int], float]
"""By the places of sender and receiver; only those that were measured."""


@dataclass(frozen=True)
class Matrix:
    """GBps of 1e9 bytes a second, latency_us likewise.

    where: `between nodes`, `inside HOST`, or empty where there is but this one. ranks: those behind
    each name, None where the report does not say.
    """

    where: str
    names: tuple[str, ...]
    ranks: tuple[frozenset[int], ...] | None
    GBps: Cells
    latency_us: Cells


def read_matrices(path: str, data: dict[str, Any]) -> tuple[Matrix, ...]:
    """Of `data.pairs`, the one of all first. OddrankError where it is not as it should be."""
    if data.get("pairs") is None:
        return ()
    pairs = Fields(path, data, "data").mapping("pairs")
    inside = Fields(path, pairs, "data.pairs").sequence("inside") if "inside" in pairs else []
    if len(inside) > _MOST_MATRICES:
        raise refuse(path, f"data.pairs.inside has {len(inside)} matrices")
    reader = _Reader(path)
    found = [reader.matrix(pairs, "data.pairs", "between nodes" if inside else "")]
    for i, each in enumerate(inside):
        where = f"data.pairs.inside[{i}]"
        host = Fields(path, each, where).text("node")
        found.append(reader.matrix(each, where, f"inside {host}"))
    return tuple(found)


class _Reader:
    """Of the matrices of one file, which take no more memory than a report of ours needs."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._names, self._figures = _MOST_NAMES, _MOST_FIGURES

    def matrix(self, members: dict[str, Any], place: str, where: str) -> Matrix:
        names = Fields(self._path, members, place).texts("names")
        if not 2 <= len(names) <= self._names:
            raise refuse(
                self._path, f"{place}.names has {len(names)} names, not 2 to {self._names}"
            )
        self._names -= len(names)
        ranks = _ranks(members, len(names))
        if "links" in members:
            return Matrix(where, names, ranks, *self._links(members, place, len(names)))
        rates = self._square(members, place, "GBps", len(names))
        latencies: Cells = {}
        if members.get("latency_us") is not None:
            latencies = self._square(members, place, "latency_us", len(names))
        return Matrix(where, names, ranks, rates, latencies)

    def _links(self, members: dict[str, Any], place: str, size: int) -> tuple[Cells, Cells]:
        """[from, to, GB/s, us] of every link that was measured, of a matrix of which few were."""
        links = Fields(self._path, members, place).sequence("links")
        for link in links:
            known = isinstance(link, list) and len(link) == 4
            if not known or not all(type(end) is int and 0 <= end < size for end in link[:2]):
                raise refuse(self._path, f"{place}.links has one that is not [from, to, GB/s, us]")
        where = f"{place}.links"
        rates = self._cells(where, (((a, b), rate) for a, b, rate, _ in links))
        return rates, self._cells(where, (((a, b), latency) for a, b, _, latency in links))

    def _square(self, members: dict[str, Any], place: str, name: str, size: int) -> Cells:
        lines = Fields(self._path, members, place).sequence(name)
        square = all(isinstance(line, list) and len(line) == size for line in lines)
        if len(lines) != size or not square:
            raise refuse(self._path, f"{place}.{name} is not a square of {size} names")
        every = (((i, j), cell) for i, line in enumerate(lines) for j, cell in enumerate(line))
        return self._cells(f"{place}.{name}", every)

    def _cells(self, place: str, every: Iterable[tuple[tuple[int, int], Any]]) -> Cells:
        found: dict[tuple[int, int], float] = {}
        for cell, value in every:
            figure = _figure(self._path, place, value)
            if figure is not None:
                found[cell] = figure
                self._figures -= 1
            if self._figures < 0:
                raise refuse(self._path, f"{place} has more than {_MOST_FIGURES} figures in all")
        return found


def _figure(path: str, place: str, cell: Any) -> float | None:
    if cell is not None and not is_positive(cell) and not (is_number(cell) and cell == 0):
        raise refuse(path, f"{place} has a cell {short(cell)}, not a figure")
    return None if cell is None else float(cell)


def _ranks(members: dict[str, Any], size: int) -> tuple[frozenset[int], ...] | None:
    listed = members.get("ranks")
    if not isinstance(listed, list) or len(listed) != size:
        return None
    return tuple(
        frozenset(rank for rank in own if isinstance(rank, int))
        if isinstance(own, list)
        else frozenset()
        for own in listed
    )
