"""Draws curves of one or more runs: bandwidth and time against size."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oddrank.bench.case import size_text
from oddrank.bench.data import Row
from oddrank.bench.saved import Saved
from oddrank.errors import OddrankError
from oddrank.pictures import COLOURS, matplotlib, plain

MOST_CURVES = 10
"""Most curves in one panel: more would look alike."""
MOST_PANELS = 12
_MOST_LABEL = 60

_Rows = Sequence[tuple[int, Row]]  # each with the number of its run

# Facts that may differ between two curves of a panel -> their texts.
_FACTS: dict[str, Callable[[str, Row], str]] = {
    "run": lambda run, row: run,
    "backend": lambda run, row: row.backend,
    "dtype": lambda run, row: row.dtype,
    "op": lambda run, row: "" if row.op == "none" else row.op,
    "place": lambda run, row: "in place" if row.inplace else "out of place",
    "ranks": lambda run, row: f"{row.n} rank{'s' if row.n != 1 else ''}",
}


@dataclass(frozen=True)
class Curve:
    """A curve. label: the facts that distinguish it from the others; "" if it is the only one.

    family: its label without the place. Curves of one family have one colour in all panels, so
    that the legend fits each.
    """

    label: str
    family: tuple[object, ...]
    in_place: bool
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Panel:
    """The curves of one collective. title: its name, and facts that all its curves share."""

    title: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Picture:
    """common: facts that all curves share. bandwidth: "busbw", or "algbw" if a run has one rank."""

    panels: tuple[Panel, ...]
    common: str
    bandwidth: str
    left_out: str = ""
    """Says what is not drawn, and why."""


def collect(runs: Sequence[Saved], only: Sequence[str] = ()) -> Picture:
    """Collects the rows to draw.

    only: words that a row must have (its collective, dtype, op, back end, or `in`, `out`).
    OddrankError if no row is left, or too many for one picture.
    """
    all_rows = [(number, row) for number, run in enumerate(runs) for row in run.rows]
    chosen = [(i, row) for i, row in all_rows if set(only) <= _words(row)]
    drawn = [(i, row) for i, row in chosen if row.bytes > 0 and row.mean_us]
    if not drawn:
        where = f" with {' '.join(only)}" if only else ""
        raise OddrankError(f"nothing to draw: no row{where} has a size and a time")
    bandwidth = "busbw" if all(row.n > 1 for _, row in drawn) else "algbw"
    grouped: dict[str, list[tuple[int, Row]]] = {}
    for i, row in drawn:
        grouped.setdefault(row.collective, []).append((i, row))
    called = names(runs)
    common = _same(called, drawn)
    panels = tuple(_panel(called, name, rows, common) for name, rows in grouped.items())
    _check_number(panels)
    left = len(chosen) - len(drawn)
    said = f"not drawn: {left} row{'s' * (left > 1)} without a size or a time" if left else ""
    return Picture(panels, _listed(common), bandwidth, said)


def names(runs: Sequence[Saved]) -> list[str]:
    """Returns a short name of each run for legends: its file's name without .json, or the path if
    several files have that name."""
    short = [Path(run.path).name.removesuffix(".json") or run.path for run in runs]
    return [
        name if short.count(name) == 1 else run.path for name, run in zip(short, runs, strict=True)
    ]


def _same(called: Sequence[str], rows: _Rows) -> dict[str, str]:
    """Returns the facts that all these rows share. Leaves a single run's name empty."""
    facts = {}
    for name, tell in _FACTS.items():
        values = {tell(called[i], row) for i, row in rows}
        if len(values) == 1 and name != "run":
            facts[name] = values.pop()
    if len({i for i, _ in rows}) == 1:
        facts["run"] = ""
    return facts


def _panel(called: Sequence[str], collective: str, rows: _Rows, common: dict[str, str]) -> Panel:
    same = _same(called, rows)
    grouped: dict[tuple[object, ...], list[tuple[int, Row]]] = {}
    for i, row in rows:
        kind = (i, row.backend, row.dtype, row.op, row.n, row.inplace)
        grouped.setdefault(kind, []).append((i, row))
    own = {name: text for name, text in same.items() if name not in common}
    curves = tuple(_curve(called, each, same) for each in grouped.values())
    return Panel(_listed({"collective": collective, **own}), curves)


def _curve(called: Sequence[str], rows: _Rows, same: dict[str, str]) -> Curve:
    number, first = rows[0]
    told = {name: tell(called[number], first) for name, tell in _FACTS.items() if name not in same}
    by_size = sorted((row for _, row in rows), key=lambda row: row.bytes)
    label = _shortened(_listed(told))
    family = tuple(text for name, text in told.items() if name != "place")
    return Curve(label, family, first.inplace, tuple(by_size))


def _listed(facts: dict[str, str]) -> str:
    return ", ".join(text for text in facts.values() if text)


def _words(row: Row) -> set[str]:
    return {row.collective, row.dtype, row.op, row.backend, "in" if row.inplace else "out"}


def _check_number(panels: Sequence[Panel]) -> None:
    most = max(len(panel.curves) for panel in panels)
    if most > MOST_CURVES or len(panels) > MOST_PANELS:
        what = f"{most} curves in one panel" if most > MOST_CURVES else f"{len(panels)} collectives"
        raise OddrankError(
            f"{what} are too many for one picture: choose with --only, as in float32"
        )


def _shortened(label: str) -> str:
    """Cuts the middle of a long label: names of runs differ at their beginning or end."""
    half = (_MOST_LABEL - 3) // 2
    return label if len(label) <= _MOST_LABEL else f"{label[:half]}...{label[-half:]}"


_MARKERS = "os^Dv"  # the next one each time the colours repeat
_GREY = "#666666"
_WRONG = "#C00000"
_MOST_TICKS = 9
_LARGE = 3  # up to so many collectives: one a row, large; more: two a row, small


def draw_curves(picture: Picture) -> Any:
    """Draws a group of axes for each collective: bandwidth, time, and the times' ratio if it has
    several curves. All groups share one legend below them."""
    mpl = matplotlib()
    many = len(picture.panels) > _LARGE
    each = 2 + any(len(panel.curves) > 1 for panel in picture.panels)
    beside = 2 if many else 1
    rows = -(-len(picture.panels) // beside)
    width, height = (3.2, 2.7) if many else (5.4, 3.9)
    size = (width * each * beside, 0.9 + height * rows)
    figure = mpl.figure.Figure(figsize=size, layout="constrained", dpi=120 if many else 160)
    mpl.backends.backend_agg.FigureCanvasAgg(figure)
    axes = list(figure.subplots(rows, each * beside, squeeze=False).flat)
    families = dict.fromkeys(c.family for panel in picture.panels for c in panel.curves)
    nth = {family: divmod(i, len(COLOURS)) for i, family in enumerate(families)}
    legend: dict[str, Any] = {}
    for number, panel in enumerate(picture.panels):
        own = axes[number * each : (number + 1) * each]
        for curve, line in _draw_panel(mpl, own, panel, picture.bandwidth, nth):
            if curve.label:
                alone = len(picture.panels) == 1
                text = plain(curve.label) + _best(curve, picture.bandwidth) * alone
                legend.setdefault(text, line)
    for left in axes[len(picture.panels) * each :]:
        left.set_axis_off()
    figure.suptitle(plain(picture.common), fontsize=11, fontweight="bold")
    drawn = (row for panel in picture.panels for curve in panel.curves for row in curve.rows)
    p99 = ", dotted: p99" if any(row.p99_us is not None for row in drawn) else ""
    note = "; ".join(filter(None, [f"line: mean{p99}", picture.left_out]))
    if legend:
        _add_legend(figure, legend, note)
    else:
        figure.supxlabel(note, fontsize=8.5, color=_GREY)
    return figure


def _draw_panel(
    mpl: Any,
    axes: Sequence[Any],
    panel: Panel,
    bandwidth: str,
    nth: Mapping[tuple[object, ...], tuple[int, int]],
) -> list[tuple[Curve, Any]]:
    """Returns each curve with its line. nth: family -> (marker, colour), the same in all panels."""
    left, right, *ratio = axes
    drawn = []
    for curve in panel.curves:
        again, i = nth[curve.family]
        colour = COLOURS[i]
        style = {
            "color": colour,
            "linestyle": "-" if curve.in_place else (0, (4, 2)),
            "marker": _MARKERS[again % len(_MARKERS)],
            "markerfacecolor": colour if curve.in_place else "white",
            "markersize": 3.5,
            "linewidth": 1.5,
        }
        line = _draw_curve(left, right, curve, style, bandwidth)
        drawn.append((curve, line))
        for third in ratio if len(panel.curves) > 1 else ():
            _draw_ratio(third, curve, panel.curves[0], style)
    _finish(mpl, left, panel, "{:g}".format)
    _finish(mpl, right, panel, _time)
    left.set_title(plain(panel.title), fontsize=11, loc="left")
    left.set_ylabel(f"{bandwidth} (GB/s)")
    right.set_ylabel("time of one operation")
    for third in ratio:
        _finish_ratio(mpl, third, panel)
    return drawn


def _draw_curve(left: Any, right: Any, curve: Curve, style: dict[str, Any], bandwidth: str) -> Any:
    """Draws both lines and returns that of the times. p99 is a dotted line: bands of several curves
    would blend into colours that no legend has."""
    rates = [(row, rate) for row in curve.rows if (rate := _rate_of(row, bandwidth))]
    left.plot([row.bytes for row, _ in rates], [rate for _, rate in rates], **style)
    times = [(row, row.mean_us) for row in curve.rows if row.mean_us]
    sizes = [row.bytes for row, _ in times]
    (line,) = right.plot(sizes, [us for _, us in times], **style)
    tops = [math.nan if row.p99_us is None else max(us, row.p99_us) for row, us in times]
    right.plot(sizes, tops, color=style["color"], linestyle=":", linewidth=1.1, marker="_")
    for axes, drawn in ((left, rates), (right, times)):
        for row, height in drawn:
            if row.is_wrong:
                _mark_wrong(axes, row.bytes, height)
    return line


def _draw_ratio(axes: Any, curve: Curve, base: Curve, style: dict[str, Any]) -> None:
    """Draws the curve's times over the first curve's: log-log axes hide a difference of 10 %."""
    of = {row.bytes: row.mean_us for row in base.rows}
    shared = [
        (row.bytes, row.mean_us / us)
        for row in curve.rows
        if row.mean_us and (us := of.get(row.bytes))
    ]
    axes.plot([size for size, _ in shared], [ratio for _, ratio in shared], **style)


def _mark_wrong(axes: Any, size: int, height: float) -> None:
    axes.plot([size], [height], "X", color=_WRONG, markersize=10, zorder=5)
    axes.annotate("wrong values", (size, height), xytext=(-8, 5), textcoords="offset points",
                  ha="right", fontsize=8, color=_WRONG)  # fmt: skip


def _finish(mpl: Any, axes: Any, panel: Panel, unit: Any) -> None:
    """Sets the scales and ticks: sizes on the x axis, `unit`'s figures on the y axis."""
    axes.set_yscale("log")
    _finish_sizes(mpl, axes, panel)
    low, high = axes.get_ylim()
    subs = (1.0,) if high / low > 2e3 else (1.0, 2.0, 5.0)
    axes.yaxis.set_major_locator(mpl.ticker.LogLocator(subs=subs, numticks=15))
    axes.yaxis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: unit(value)))
    axes.yaxis.set_minor_formatter(mpl.ticker.NullFormatter())


def _finish_ratio(mpl: Any, axes: Any, panel: Panel) -> None:
    if len(panel.curves) == 1:
        axes.set_axis_off()
        return
    _finish_sizes(mpl, axes, panel)
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0.9), max(high, 1.1))
    axes.set_ylabel("time over that of\n" + (plain(panel.curves[0].label) or "the first"))


def _finish_sizes(mpl: Any, axes: Any, panel: Panel) -> None:
    axes.set_xscale("log", base=2)
    sizes = sorted({row.bytes for curve in panel.curves for row in curve.rows})
    ticks = _size_ticks(sizes[0], sizes[-1])
    axes.set_xticks(ticks, [size_text(size) for size in ticks], rotation=35, ha="right",
                    rotation_mode="anchor")  # fmt: skip
    axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    axes.grid(True, which="major", color="#DDDDDD", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _rate_of(row: Row, bandwidth: str) -> float | None:
    return row.busbw_GBps if bandwidth == "busbw" else row.algbw_GBps


def _best(curve: Curve, bandwidth: str) -> str:
    """Returns the best bandwidth for the legend: log axes do not show it."""
    best = max((rate for row in curve.rows if (rate := _rate_of(row, bandwidth))), default=None)
    return "" if best is None else f" (best {best:.4g} GB/s)"


def _add_legend(figure: Any, lines: Mapping[str, Any], note: str) -> None:
    """Draws the legend and the note below all axes, where they hide nothing."""
    # matplotlib leaves out labels that begin with an underscore.
    shown = [f" {label}" if label.startswith("_") else label for label in lines]
    room = int(figure.get_figwidth() * 12 / (6 + max(map(len, shown))))
    made = figure.legend(
        [*lines.values()], shown, loc="outside lower center", fontsize=8.5, frameon=False,
        ncols=max(1, min(len(shown), room)), title=note, title_fontsize=8.5,
    )  # fmt: skip
    made.get_title().set_color(_GREY)


def _size_ticks(smallest: int, largest: int) -> list[int]:
    """Returns evenly spaced powers of two, as many as can be read, up to the largest size."""
    low, high = smallest.bit_length() - 1, (largest - 1).bit_length()
    step = -(-(high - low + 1) // _MOST_TICKS)
    return [1 << power for power in range(high, low - 1, -step)][::-1]


def _time(us: float) -> str:
    for scale, unit in ((1e6, "s"), (1e3, "ms"), (1.0, "us")):
        if us >= scale * 0.999:
            return f"{us / scale:g} {unit}"
    return f"{us * 1e3:g} ns"
