"""Chooses what the page of --html shows of `bench run` and `bench pairs`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from oddrank.bench import arrivals, plot
from oddrank.bench.data import Row
from oddrank.bench.pairs import report as pairs
from oddrank.bench.row import HEADINGS, cells
from oddrank.bench.split import groups_text
from oddrank.control.stages import RunState
from oddrank.finding import duration, grouped, number_text, size_text
from oddrank.page import Chart, Dot, Note, Parts, Table

_MOST_TICKS = 6


def of_sweep(run: RunState, rows: Sequence[Row], devices: Mapping[str, int]) -> Parts:
    """Returns the curves and figures of a sweep. devices: name -> how many, as in the report."""
    picture = plot.picture_of({"": rows})
    arrived = arrivals.of(run)
    late = grouped((duration(one.median / 1e6), rank) for rank, one in arrived.items())
    notes = [
        Note(f"arrives {time} after the first rank at small all_reduces (median)", tuple(ranks))
        for time, ranks in late.items()
    ]
    split = any(row.groups for row in rows)
    columns = ("collective", *HEADINGS, *(["groups"] if split else []))
    shown = [(row.collective, *cells(row), *([groups_text(row)] if split else [])) for row in rows]
    on = ", ".join(f"{count} x {name}" for name, count in devices.items())
    status = ", ".join(filter(None, (picture.common, on)))
    parts = of_tables(run, [("Results", columns, shown)])
    return replace(parts, status=[status], charts=[*_charts(picture)], notes=notes)


def of_tables(run: RunState, tables: Iterable[pairs.Table]) -> Parts:
    """Returns the tables, and the ranks with their hosts."""
    return Parts(
        absent=tuple(rank for rank, state in run.states.items() if state.contact == "never"),
        absence="never joined",
        hosts=run.hosts,
        tables=[
            Table(title, tuple(columns), tuple(tuple(row) for row in rows))
            for title, columns, rows in tables
        ],
    )


def _charts(picture: plot.Picture) -> Iterator[Chart]:
    for collective, panel in picture.panels.items():
        curves = {label: dots for label, of in panel.items() if (dots := [*_dots(picture, of)])}
        sizes = [int(dot.x) for dots in curves.values() for dot in dots]
        if sizes:
            ticks = plot.size_ticks(min(sizes), max(sizes), _MOST_TICKS)
            texts = {float(tick): size_text(tick, exact=True) for tick in ticks}
            yield Chart(f"{collective}: {picture.bandwidth}, GB/s", curves, texts)


def _dots(picture: plot.Picture, rows: Iterable[Row]) -> Iterator[Dot]:
    for row in rows:
        if rate := getattr(row, f"{picture.bandwidth}_GBps"):
            size = size_text(row.bytes, exact=True)
            wrong = ", wrong values" if row.is_wrong else ""
            yield Dot(row.bytes, rate, f"{size}: {number_text(rate)} GB/s{wrong}", row.is_wrong)
