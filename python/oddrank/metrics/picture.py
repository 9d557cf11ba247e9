"""Draws a training: loss, grad norm and throughput over iterations, restarts and findings."""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from oddrank.finding import counted, some
from oddrank.metrics.findings import one
from oddrank.pictures import COLOURS, matplotlib, plain
from oddrank.report import Report

_MARK = "#C00000"
_GREY = "#666666"
_LOST = 0.3  # opacity of iterations that were done again
_MOST_MARKS = 9
_MOST_TEXT = 130
_SMOOTH = 15  # points behind the dark line, where there are many

# Panel -> the kinds of suspects that are marked in it.
_PANELS = {
    "loss": ("loss-spike", "loss-rise", "nan-loss", "zero-loss", "disagree", "skipped"),
    "grad norm": ("grad-growth", "nan-grad"),
    "throughput": ("slower", "stall", "straggler"),
}


@dataclass(frozen=True)
class _Run:
    """The points from one start to the next. kept: up to where the next start took over."""

    iterations: list[float]
    series: dict[str, list[float]]
    times: list[float]
    until: float


def draw(job: Any, report: Report) -> Any:
    """Draws a `_core.Metrics`; panels without numbers are left out."""
    mpl = matplotlib()
    runs = list(_runs(job.points()))
    shown = [name for name in _PANELS if any(_known(run.series[name]) for run in runs)]
    suspects = job.suspects()
    unit = report.data["throughput"]["unit"]
    marks = _marks(suspects, report)
    tall = 0.75 + 2.3 * max(1, len(shown)) + 0.2 * len(marks)
    figure = mpl.figure.Figure(figsize=(10, tall), layout="constrained", dpi=130)
    mpl.backends.backend_agg.FigureCanvasAgg(figure)
    axes = figure.subplots(max(1, len(shown)), 1, sharex=True, squeeze=False)[:, 0]
    for place, (axis, name) in enumerate(zip(axes, shown, strict=False)):
        _panel(axis, name, runs, unit=unit, colour=COLOURS[place])
        for number, suspect, _ in marks:
            if suspect["kind"] in _PANELS[name]:
                _mark(axis, number, suspect)
    for axis in axes:
        for run in runs[1:]:
            axis.axvline(run.iterations[0], color=_GREY, linewidth=0.8, linestyle=(0, (3, 3)))
    axes[-1].set_xlabel("iteration")
    _time_axis(axes[0], runs)
    figure.suptitle(plain(_title(report, len(runs[1:]))), fontsize=11, x=0.02, ha="left")
    if marks:
        said = "\n".join(f"{number}  {text}" for number, _, text in marks)
        figure.supxlabel(said, fontsize=8.5, x=0.02, ha="left", color=_MARK)
    return figure


def _runs(points: Sequence[tuple[float, float, float, float, float, bool]]) -> Iterator[_Run]:
    """Yields the points of each start, in the order of the log."""
    starts = [n for n, point in enumerate(points) if point[5] or n == 0]
    for n, start in enumerate(starts):
        end = starts[n + 1] if n + 1 < len(starts) else len(points)
        iterations, times, loss, grad, speed = (
            [point[column] for point in points[start:end]] for column in range(5)
        )
        series = {"loss": loss, "grad norm": grad, "throughput": speed}
        yield _Run(iterations, series, times, points[end][0] if end < len(points) else math.inf)


def _known(values: Iterable[float]) -> list[float]:
    return [value for value in values if value > 0 and math.isfinite(value)]


def _panel(axis: Any, name: str, runs: Sequence[_Run], *, unit: str, colour: str) -> None:
    every = _known(value for run in runs for value in run.series[name])
    if not every:
        return
    many = len(every) > 20 * _SMOOTH and name != "loss"  # whose noise is small
    for run in runs:
        values = [value if value > 0 else math.nan for value in run.series[name]]
        kept = [i for i, at in enumerate(run.iterations) if at < run.until]
        lost = range(max(kept, default=-1), len(values)) if run.until < math.inf else []
        for chosen, opacity in ((kept, 1.0), (list(lost), _LOST)):
            x = [run.iterations[i] for i in chosen if i >= 0]
            y = [values[i] for i in chosen if i >= 0]
            axis.plot(x, y, color=colour, linewidth=0.8, alpha=opacity * (0.55 if many else 1.0))
            if many:
                axis.plot(x, _smoothed(y), color=colour, linewidth=1.5, alpha=opacity)
    every.sort()
    low, high = every[0], every[-1]
    if name == "throughput":
        usual, low = every[len(every) // 2], every[len(every) // 100]  # without the warm-up
        axis.set_ylim(max(0, min(low, 0.9 * usual) - 0.02 * usual), 1.05 * min(high, 1.3 * usual))
        axis.set_ylabel(plain(unit))
    else:
        axis.set_ylabel(name)
        if high > 4 * low:
            axis.set_yscale("log")
            axis.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
            axis.yaxis.set_minor_formatter(
                matplotlib().ticker.LogFormatter(minor_thresholds=(1.5, 0.5))
            )
            axis.tick_params(axis="y", which="minor", labelsize=8)
    axis.grid(visible=True, alpha=0.25, linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    axis.margins(x=0.01)


def _smoothed(values: Sequence[float]) -> list[float]:
    half = _SMOOTH // 2
    windows = (_known(values[max(0, i - half) : i + half + 1]) for i in range(len(values)))
    return [statistics.median(window) if window else math.nan for window in windows]


def _marks(
    suspects: Sequence[Mapping[str, Any]], report: Report
) -> list[tuple[int, Mapping[str, Any], str]]:
    """Returns number, suspect and sentence of each mark, in the order of iterations."""
    unit = report.data["throughput"]["unit"]
    logs = [""] * (1 + max((each["file"] for each in suspects), default=0))
    said = [(each, one(each, logs, unit)) for each in suspects if each["kind"] != "restart"]
    known = sorted(
        ((each, found.what) for each, found in said if found),
        key=lambda pair: pair[0]["first"] or 0,
    )
    return [
        (number, each, plain(text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}..."))
        for number, (each, text) in enumerate(known[:_MOST_MARKS], 1)
    ]


def _mark(axis: Any, number: int, suspect: Mapping[str, Any]) -> None:
    first = suspect["first"]
    until = suspect["until"] or axis.get_xlim()[1]
    axis.axvspan(first, max(until, first), color=_MARK, alpha=0.08, linewidth=0)
    axis.axvline(first, color=_MARK, linewidth=0.9)
    axis.annotate(
        str(number), (first, 1), xycoords=("data", "axes fraction"), xytext=(3, -3),
        textcoords="offset points", ha="left", va="top", fontsize=9, color="white",
        bbox={"boxstyle": "circle,pad=0.2", "facecolor": _MARK, "edgecolor": "none"},
    )  # fmt: skip


def _time_axis(axis: Any, runs: Sequence[_Run]) -> None:
    """Writes the time of some iterations above the picture, if the log names it."""
    known = [
        pair
        for run in runs
        for pair in zip(run.iterations, run.times, strict=True)
        if pair[0] < run.until and pair[1] > 1e8
    ]
    if len(known) < 2:
        return
    low, high = axis.get_xlim()
    steps = (known[0][0] + (known[-1][0] - known[0][0]) * n / 5 for n in range(6))
    ticks = [min(known, key=lambda pair: abs(pair[0] - step)) for step in steps]
    labels = [datetime.fromtimestamp(t, timezone.utc).strftime("%m-%d %H:%M") for _, t in ticks]
    above = axis.twiny()
    above.set_xlim(low, high)
    above.set_xticks([at for at, _ in ticks], labels, fontsize=8, color=_GREY)
    above.tick_params(length=2, color=_GREY)
    above.spines[:].set_visible(False)


def _title(report: Report, restarts: int) -> str:
    first, *others = report.data["logs"]
    names = some([first.rpartition("/")[2], *others], 1)
    again = f", {counted(restarts, 'restart')} (dashed)" if restarts else ""
    return f"{names}: {report.verdict}{again}"
