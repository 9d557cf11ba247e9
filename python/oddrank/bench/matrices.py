"""The matrices of a saved report of `bench pairs`: between the nodes, and inside each of them."""

from dataclasses import dataclass
from typing import Any

from oddrank.bench.fields import Fields, is_number, is_positive, refuse, short

_MOST_NAMES = 4096
_MOST_MATRICES = 4096

Grid = tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class Matrix:
    """GBps[sender][receiver] in 1e9 bytes a second, latency_us likewise; None: not measured.

    where: `between nodes`, `inside HOST`, or empty where there is but this one. ranks: those behind
    each name, None where the report does not say.
    """

    where: str
    names: tuple[str, ...]
    ranks: tuple[frozenset[int], ...] | None
    GBps: Grid
    latency_us: Grid | None


def read_matrices(path: str, data: dict[str, Any]) -> tuple[Matrix, ...]:
    """Of `data.pairs`, the one of all first. OddrankError where it is not as it should be."""
    if data.get("pairs") is None:
        return ()
    pairs = Fields(path, data, "data").mapping("pairs")
    inside = Fields(path, pairs, "data.pairs").sequence("inside") if "inside" in pairs else []
    if len(inside) > _MOST_MATRICES:
        raise refuse(path, f"data.pairs.inside has {len(inside)} matrices")
    found = [_matrix(path, pairs, "data.pairs", "between nodes" if inside else "")]
    for i, each in enumerate(inside):
        where = f"data.pairs.inside[{i}]"
        host = Fields(path, each, where).text("node")
        found.append(_matrix(path, each, where, f"inside {host}"))
    return tuple(found)


def _matrix(path: str, members: dict[str, Any], place: str, where: str) -> Matrix:
    names = Fields(path, members, place).texts("names")
    if not 2 <= len(names) <= _MOST_NAMES:
        raise refuse(path, f"{place}.names has {len(names)} names, not 2 to {_MOST_NAMES}")
    ranks = _ranks(members, len(names))
    if "links" in members:
        return Matrix(where, names, ranks, *_links(path, members, place, len(names)))
    latency = None
    if members.get("latency_us") is not None:
        latency = _grid(path, members, place, "latency_us", len(names))
    return Matrix(where, names, ranks, _grid(path, members, place, "GBps", len(names)), latency)


def _links(path: str, members: dict[str, Any], place: str, size: int) -> tuple[Grid, Grid]:
    """[from, to, GB/s, us] of every link that was measured, of a matrix of which most were not."""
    grids: list[list[list[float | None]]] = [[[None] * size for _ in range(size)] for _ in "ab"]
    for link in Fields(path, members, place).sequence("links"):
        known = isinstance(link, list) and len(link) == 4
        if not known or not all(type(end) is int and 0 <= end < size for end in link[:2]):
            raise refuse(path, f"{place}.links has one that is not [from, to, GB/s, us]")
        for grid, cell in zip(grids, link[2:], strict=True):
            grid[link[0]][link[1]] = _figure(path, f"{place}.links", cell)
    rates, latencies = (tuple(map(tuple, grid)) for grid in grids)
    return rates, latencies


def _grid(path: str, members: dict[str, Any], place: str, name: str, size: int) -> Grid:
    lines = Fields(path, members, place).sequence(name)
    square = all(isinstance(line, list) and len(line) == size for line in lines)
    if len(lines) != size or not square:
        raise refuse(path, f"{place}.{name} is not a square of {size} names")
    return tuple(tuple(_figure(path, f"{place}.{name}", cell) for cell in line) for line in lines)


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
