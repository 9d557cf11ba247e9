"""The curves of a picture, without the picture: which rows belong together, and what tells them
apart.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from oddrank.bench.saved import Saved, SavedRow, names
from oddrank.errors import OddrankError

MOST_CURVES = 10
"""Of one panel: more can't be told apart."""
MOST_PANELS = 12
_MOST_LABEL = 60

_Rows = Sequence[tuple[int, SavedRow]]  # each with the number of its run

# What may differ between two curves of a panel, and how it is written.
_FACTS: dict[str, Callable[[str, SavedRow], str]] = {
    "run": lambda run, row: run,
    "backend": lambda run, row: row.backend,
    "dtype": lambda run, row: row.dtype,
    "op": lambda run, row: "" if row.op == "none" else row.op,
    "place": lambda run, row: "in place" if row.in_place else "out of place",
    "ranks": lambda run, row: f"{row.n} rank{'s' if row.n != 1 else ''}",
}


@dataclass(frozen=True)
class Point:
    """One size. p99_us: None where there were too few iterations."""

    bytes: int
    us: float
    p99_us: float | None
    GBps: float | None
    wrong: bool


@dataclass(frozen=True)
class Curve:
    """label: what tells it from the others; empty where nothing has to.

    family: of curves that differ in the place alone the same.
    """

    label: str
    family: tuple[object, ...]
    in_place: bool
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Panel:
    """The curves of one collective. title: its name, and what only these curves share."""

    title: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Picture:
    """common: what all curves share. bandwidth: "busbw", or "algbw" where a run has one rank."""

    panels: tuple[Panel, ...]
    common: str
    bandwidth: str
    left_out: str = ""
    """What is not drawn, and why."""


def collect(runs: Sequence[Saved], only: Sequence[str] = ()) -> Picture:
    """only: words that a row must have (its collective, dtype, op, back end, or `in`, `out`).

    OddrankError where nothing is left, or too much for one picture.
    """
    all_rows = [(number, row) for number, run in enumerate(runs) for row in run.rows]
    chosen = [(i, row) for i, row in all_rows if all(_has(row, word) for word in only)]
    drawn = [(i, row) for i, row in chosen if row.bytes > 0 and row.median_us]
    if not drawn:
        where = f" with {' '.join(only)}" if only else ""
        raise OddrankError(f"nothing to draw: no row{where} has a size and a time")
    bandwidth = "busbw" if all(row.n > 1 for _, row in drawn) else "algbw"
    grouped: dict[str, list[tuple[int, SavedRow]]] = {}
    for i, row in drawn:
        grouped.setdefault(row.collective, []).append((i, row))
    called = names(runs)
    common = _same(called, drawn)
    panels = tuple(_panel(called, name, rows, common, bandwidth) for name, rows in grouped.items())
    _check_number(panels)
    return Picture(panels, _listed(common), bandwidth, _left_out(len(chosen) - len(drawn)))


def _same(called: Sequence[str], rows: _Rows) -> dict[str, str]:
    """The facts that all of these rows share; the name of a single run is the caption's."""
    facts = {}
    for name, tell in _FACTS.items():
        values = {tell(called[i], row) for i, row in rows}
        if len(values) == 1 and name != "run":
            facts[name] = values.pop()
    if len({i for i, _ in rows}) == 1:
        facts["run"] = ""
    return facts


def _panel(
    called: Sequence[str], collective: str, rows: _Rows, common: dict[str, str], bandwidth: str
) -> Panel:
    same = _same(called, rows)
    grouped: dict[tuple[object, ...], list[tuple[int, SavedRow]]] = {}
    for i, row in rows:
        grouped.setdefault((*_family(i, row), row.in_place), []).append((i, row))
    own = {name: text for name, text in same.items() if name not in common}
    curves = tuple(_curve(called, each, same, bandwidth) for each in grouped.values())
    return Panel(_listed({"collective": collective, **own}), curves)


def _curve(called: Sequence[str], rows: _Rows, same: dict[str, str], bandwidth: str) -> Curve:
    number, first = rows[0]
    told = {name: tell(called[number], first) for name, tell in _FACTS.items() if name not in same}
    points = sorted((_point(row, bandwidth) for _, row in rows), key=lambda point: point.bytes)
    label = _shortened(_listed(told))
    return Curve(label, _family(number, first), first.in_place, tuple(points))


def _family(run: int, row: SavedRow) -> tuple[object, ...]:
    return (run, row.backend, row.dtype, row.op, row.n)


def _listed(facts: dict[str, str]) -> str:
    return ", ".join(text for text in facts.values() if text)


def _point(row: SavedRow, bandwidth: str) -> Point:
    assert row.median_us is not None
    GBps = row.busbw_GBps if bandwidth == "busbw" else row.algbw_GBps
    return Point(row.bytes, row.median_us, row.p99_us, GBps, row.check.startswith("wrong"))


def _has(row: SavedRow, word: str) -> bool:
    place = "in" if row.in_place else "out"
    return word in (row.collective, row.dtype, row.op, row.backend, place)


def _check_number(panels: Sequence[Panel]) -> None:
    most = max(len(panel.curves) for panel in panels)
    if most > MOST_CURVES or len(panels) > MOST_PANELS:
        what = f"{most} curves in one panel" if most > MOST_CURVES else f"{len(panels)} collectives"
        raise OddrankError(
            f"{what} are too many for one picture: choose with --only, as in float32"
        )


def _shortened(label: str) -> str:
    """In the middle: names of runs differ in the beginning or in the end."""
    half = (_MOST_LABEL - 3) // 2
    return label if len(label) <= _MOST_LABEL else f"{label[:half]}...{label[-half:]}"


def _left_out(rows: int) -> str:
    return f"{rows} row{'s' * (rows > 1)} without a size or a time not drawn" if rows else ""
