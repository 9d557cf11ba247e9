"""Draws curves of one or more runs: bandwidth and time against size."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from oddrank.bench.comparison import Saved
from oddrank.bench.data import Row
from oddrank.errors import OddrankError
from oddrank.finding import counted, grouped, size_text
from oddrank.pictures import COLOURS, matplotlib, plain

MOST_CURVES = 10  # more would look alike
MOST_PANELS = 12
_MOST_LABEL = 60
_MARKERS = "os^Dv"  # the next one each time the colours repeat
_GREY, _WRONG = "#666666", "#C00000"
_MOST_TICKS = 9
_LARGE = 3  # up to so many collectives: one a row, large; more: two a row, small


class Picture(NamedTuple):
    """panels: collective -> a curve's label -> its rows, by size.
    A label says what differs between the curves of a panel, and is the same in all panels.

    common: facts that all curves share. bandwidth: "busbw", or "algbw" if a run has one rank.
    """

    panels: Mapping[str, Mapping[str, Sequence[Row]]]
    common: str
    bandwidth: str


def picture_of_files(runs: Sequence[Saved], only: Sequence[str] = ()) -> Picture:
    """Collects the rows to draw: those with a size and a time.

    only: words that a row must have (its collective, dtype, op, back end, or `in`, `out`).
    OddrankError if no row is left, or too many for one picture.
    """
    if empty := next((run.path for run in runs if not run.rows), None):
        raise OddrankError(f"nothing to draw: {empty} has no rows")
    drawn = {
        name if len(runs) > 1 else "": [row for row in run.rows if set(only) <= _words(row)]
        for name, run in zip(names(runs), runs, strict=True)
    }
    picture = picture_of(drawn)
    if not picture.panels:
        where = f" with {' '.join(only)}" if only else ""
        raise OddrankError(f"nothing to draw: no row{where} has a size and a time")
    number = len({label for panel in picture.panels.values() for label in panel})
    if number > MOST_CURVES or len(picture.panels) > MOST_PANELS:
        what = f"{number} curves" if number > MOST_CURVES else f"{len(picture.panels)} collectives"
        raise OddrankError(
            f"{what} are too many for one picture: choose with --only, as in float32"
        )
    return picture


def picture_of(runs: Mapping[str, Sequence[Row]]) -> Picture:
    """Returns the curves of all rows with a size and a time. runs: by name; "" for the only one."""
    drawn = [
        (row, _facts(name, row))
        for name, rows in runs.items()
        for row in rows
        if row.bytes > 0 and row.mean_us
    ]
    of_panel = grouped((row.collective, facts) for row, facts in drawn)
    differing = [
        any(len(set(texts)) > 1 for texts in fact)
        for fact in zip(*(zip(*every, strict=True) for every in of_panel.values()), strict=True)
    ]
    panels: dict[str, dict[str, list[Row]]] = {}
    for row, facts in drawn:
        label = _listed(text for text, differs in zip(facts, differing, strict=True) if differs)
        panels.setdefault(row.collective, {}).setdefault(label, []).append(row)
    curves = [curve for panel in panels.values() for curve in panel.values()]
    for curve in curves:
        curve.sort(key=lambda row: row.bytes)
    same = (set(texts) for texts in zip(*(facts for _, facts in drawn), strict=True))
    common = _listed(texts.pop() for texts in same if len(texts) == 1)
    alone = any(row.n == 1 for row, _ in drawn)
    return Picture(panels, common, "algbw" if alone else "busbw")


def names(runs: Sequence[Saved]) -> list[str]:
    """Returns names for legends: a file's name without .json, or its path if names are equal."""
    short = [Path(run.path).name.removesuffix(".json") or run.path for run in runs]
    return [
        name if short.count(name) == 1 else run.path for name, run in zip(short, runs, strict=True)
    ]


def _facts(run: str, row: Row) -> tuple[str, ...]:
    """Returns the facts that may differ between two curves of a panel, as texts."""
    op, place = "" if row.op == "none" else row.op, "in place" if row.inplace else "out of place"
    return run, row.backend, row.dtype, op, place, counted(row.n, "rank")


def _words(row: Row) -> set[str]:
    return {row.collective, row.dtype, row.op, row.backend, "in" if row.inplace else "out"}


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(text for text in texts if text)


def _shortened(label: str) -> str:
    """Cuts the middle of a long label: names of runs differ at their beginning or end."""
    half = (_MOST_LABEL - 3) // 2
    return label if len(label) <= _MOST_LABEL else f"{label[:half]}...{label[-half:]}"


def draw_curves(picture: Picture) -> Any:
    """Draws two axes for each collective, bandwidth and time, with one legend below all."""
    mpl = matplotlib()
    many = len(picture.panels) > _LARGE
    beside = 2 if many else 1
    rows = -(-len(picture.panels) // beside)
    width, height = (3.2, 2.7) if many else (5.4, 3.9)
    size = (width * 2 * beside, 0.9 + height * rows)
    figure = mpl.figure.Figure(figsize=size, layout="constrained", dpi=120 if many else 160)
    mpl.backends.backend_agg.FigureCanvasAgg(figure)
    axes = list(figure.subplots(rows, 2 * beside, squeeze=False).flat)
    labels = list(dict.fromkeys(label for panel in picture.panels.values() for label in panel))
    legend: dict[str, Any] = {}
    for number, (collective, panel) in enumerate(picture.panels.items()):
        left, right = axes[2 * number : 2 * number + 2]
        for label, curve in panel.items():
            again, i = divmod(labels.index(label), len(COLOURS))
            style = {"color": COLOURS[i], "marker": _MARKERS[again], "markersize": 3.5}
            legend[label] = _draw_curve(picture, left, right, curve, style)
        sizes = sorted({row.bytes for curve in panel.values() for row in curve})
        _finish(mpl, left, sizes, "{:g}".format)
        _finish(mpl, right, sizes, _time)
        left.set_title(plain(collective), fontsize=11, loc="left")
        left.set_ylabel(f"{picture.bandwidth} (GB/s)")
        right.set_ylabel("time of one operation")
    for left in axes[2 * len(picture.panels) :]:
        left.set_axis_off()
    figure.suptitle(plain(picture.common), fontsize=11, fontweight="bold")
    note = "line: mean, dotted: p99"
    if labels == [""]:
        figure.supxlabel(note, fontsize=8.5, color=_GREY)
        return figure
    # matplotlib leaves out labels that begin with an underscore.
    shown = [f" {plain(_shortened(label))}" for label in legend]
    room = int(figure.get_figwidth() * 12 / (6 + max(map(len, shown))))
    figure.legend(
        [*legend.values()], shown, loc="outside lower center", fontsize=8.5, frameon=False,
        ncols=max(1, min(len(shown), room)), title=note, title_fontsize=8.5,
    )  # fmt: skip
    return figure


def _draw_curve(
    picture: Picture, left: Any, right: Any, curve: Sequence[Row], style: Mapping[str, Any]
) -> Any:
    """Draws both lines and returns the line of times. p99 is the dotted one.
    Bands of several curves would blend into colours that no legend has."""
    rates = [(row, rate) for row in curve if (rate := getattr(row, f"{picture.bandwidth}_GBps"))]
    times = [(row, row.mean_us) for row in curve if row.mean_us]
    left.plot([row.bytes for row, _ in rates], [rate for _, rate in rates], **style)
    sizes = [row.bytes for row, _ in times]
    (line,) = right.plot(sizes, [us for _, us in times], **style)
    tops = [math.nan if row.p99_us is None else max(us, row.p99_us) for row, us in times]
    right.plot(sizes, tops, color=style["color"], linestyle=":", linewidth=1.1, marker="_")
    for axes, drawn in ((left, rates), (right, times)):
        for row, height in drawn:
            if row.is_wrong:
                axes.plot([row.bytes], [height], "X", color=_WRONG, markersize=10, zorder=5)
                axes.annotate("wrong values", (row.bytes, height), xytext=(-8, 5), ha="right",
                              textcoords="offset points", fontsize=8, color=_WRONG)  # fmt: skip
    return line


def _finish(mpl: Any, axes: Any, sizes: Sequence[int], unit: Any) -> None:
    """Sets the scales and ticks: sizes on the x axis, `unit`'s figures on the y axis."""
    axes.set_yscale("log")
    axes.set_xscale("log", base=2)
    ticks = size_ticks(sizes[0], sizes[-1], _MOST_TICKS)
    axes.set_xticks(ticks, [size_text(size, exact=True) for size in ticks], rotation=35, ha="right",
                    rotation_mode="anchor")  # fmt: skip
    axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    low, high = axes.get_ylim()
    subs = (1.0,) if high / low > 2e3 else (1.0, 2.0, 5.0)
    axes.yaxis.set_major_locator(mpl.ticker.LogLocator(subs=subs, numticks=15))
    axes.yaxis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: unit(value)))
    axes.yaxis.set_minor_formatter(mpl.ticker.NullFormatter())
    axes.grid(True, which="major", color="#DDDDDD", linewidth=0.7)
    axes.tick_params(labelsize=9)


def size_ticks(smallest: int, largest: int, most: int) -> list[int]:
    """Returns evenly spaced powers of two, at most so many, up to the largest size."""
    low, high = smallest.bit_length() - 1, (largest - 1).bit_length()
    step = -(-(high - low + 1) // most)
    return [1 << power for power in range(high, low - 1, -step)][::-1]


def _time(us: float) -> str:
    for scale, unit in ((1e6, "s"), (1e3, "ms"), (1.0, "us")):
        if us >= scale * 0.999:
            return f"{us / scale:g} {unit}"
    return f"{us * 1e3:g} ns"
