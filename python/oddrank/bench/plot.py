"""Pictures of saved runs: bandwidth and latency against size, or the heat map of a matrix.

matplotlib is imported here only, and only when something is drawn; never its pyplot, which keeps
state and looks for a display.
"""

import io
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oddrank import render
from oddrank.bench.curves import Curve, Panel, Picture
from oddrank.bench.saved import Saved
from oddrank.bench.sizes import size_text
from oddrank.errors import OddrankError
from oddrank.finding import check_writable, whole_file

FORMATS = (".png", ".svg", ".pdf")
_ADVICE = "give -o a file in a folder you can write"
_DPI = 160
# Okabe and Ito: told apart by the colour-blind too. Black is left to marks.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#8C564B")
_MARKERS = "os"  # the second where the colours come again
_GREY = "#666666"
_WRONG = "#C00000"
_MOST_TICKS = 9
_OUTSIDE = 6  # more curves than this: the legend has no room inside


def check_target(path: str) -> None:
    """OddrankError where no picture can be written to `path`: asked before anything is drawn."""
    if Path(path).suffix.lower() not in FORMATS:
        raise OddrankError(f"{path} is no picture: its name must end in {', '.join(FORMATS)}")
    check_writable(path, _ADVICE)


def matplotlib() -> Any:
    """The package with what is used of it loaded; OddrankError where it is not installed."""
    try:
        import matplotlib
        import matplotlib.backends.backend_agg
        import matplotlib.figure
        import matplotlib.patches
        import matplotlib.ticker
    except ImportError as error:
        raise OddrankError(
            f"pictures need matplotlib, which cannot be imported ({error}):"
            " pip install 'oddrank[plot]'"
        ) from None
    return matplotlib


def write(figure: Any, path: str) -> None:
    """The figure as a file, whole or not at all."""
    kind = Path(path).suffix.lower()[1:]
    buffer = io.BytesIO()
    # Not when it was made, nor by whom: the same runs give the same bytes.
    metadata = {
        "png": {"Software": "oddrank"},
        "svg": {"Date": None},
        "pdf": {"CreationDate": None},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a character of a name that the font lacks
        figure.savefig(buffer, format=kind, dpi=_DPI, metadata=metadata[kind])
    with whole_file(path, _ADVICE) as file:
        file.write(buffer.getvalue())


def plain(text: str) -> str:
    """Somebody else's text: neither a formula nor anything that moves about."""
    return render.safe(text).replace("$", r"\$")


def draw_curves(picture: Picture) -> Any:
    """A row for each collective: bandwidth, time, and where there are several the times' ratio."""
    mpl = matplotlib()
    rows = len(picture.panels)
    columns = 2 + any(len(panel.curves) > 1 for panel in picture.panels)
    figure = mpl.figure.Figure(figsize=(5.4 * columns, 0.7 + 3.9 * rows), layout="constrained")
    mpl.backends.backend_agg.FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False)
    for row, panel in zip(axes, picture.panels, strict=True):
        _draw_panel(mpl, row, panel, picture.bandwidth)
    figure.suptitle(plain(picture.common), fontsize=11, fontweight="bold")
    notes = ["line: median, shaded: up to p99", picture.left_out]
    figure.supxlabel("; ".join(filter(None, notes)), fontsize=8.5, color=_GREY)
    return figure


def _draw_panel(mpl: Any, axes: Sequence[Any], panel: Panel, bandwidth: str) -> None:
    left, right, *ratio = axes
    families = dict.fromkeys(curve.family for curve in panel.curves)
    nth = {family: divmod(i, len(_COLOURS)) for i, family in enumerate(families)}
    handles = []
    for curve in panel.curves:
        again, i = nth[curve.family]
        colour = _COLOURS[i]
        style = {
            "color": colour,
            "linestyle": "-" if curve.in_place else (0, (4, 2)),
            "marker": _MARKERS[again],
            "markerfacecolor": colour if curve.in_place else "white",
            "markersize": 3.5,
            "linewidth": 1.5,
        }
        handles.append(_draw_curve(left, right, curve, style))
        for third in ratio if len(panel.curves) > 1 else ():
            _draw_ratio(third, curve, panel.curves[0], style)
    _finish(mpl, left, panel, _rate)
    _finish(mpl, right, panel, _time)
    left.set_title(plain(panel.title), fontsize=11, loc="left")
    left.set_ylabel(f"{bandwidth} (GB/s)")
    right.set_ylabel("time of one operation")
    for third in ratio:
        _finish_ratio(mpl, third, panel)
    if any(curve.label for curve in panel.curves):
        _add_legend(right, handles, [_legend_text(curve) for curve in panel.curves])


def _draw_curve(left: Any, right: Any, curve: Curve, style: dict[str, Any]) -> Any:
    """Both lines; p99 is a band, of a point without neighbours a whisker. Returns the line."""
    points = curve.points
    known = [point for point in points if point.GBps]
    left.plot([p.bytes for p in known], [p.GBps for p in known], **style)
    sizes, times = [p.bytes for p in points], [p.us for p in points]
    (line,) = right.plot(sizes, times, **style)
    tops = [math.nan if p.p99_us is None else max(p.us, p.p99_us) for p in points]
    right.fill_between(sizes, times, tops, color=style["color"], alpha=0.16, linewidth=0)
    for i, top in enumerate(tops):
        alone = all(map(math.isnan, tops[max(0, i - 1) : i] + tops[i + 1 : i + 2]))
        if alone and not math.isnan(top):
            tail = [[0], [top - times[i]]]
            right.errorbar([sizes[i]], [times[i]], yerr=tail, color=style["color"], capsize=4)
    for point in (point for point in points if point.wrong):
        for axes, height in ((left, point.GBps), (right, point.us)):
            if height:
                _mark_wrong(axes, point.bytes, height)
    return line


def _draw_ratio(axes: Any, curve: Curve, base: Curve, style: dict[str, Any]) -> None:
    """On log-log axes 10 % can't be seen: the times over the first curve's."""
    of = {point.bytes: point.us for point in base.points}
    shared = [(p.bytes, p.us / of[p.bytes]) for p in curve.points if p.bytes in of]
    axes.plot([size for size, _ in shared], [ratio for _, ratio in shared], **style)


def _mark_wrong(axes: Any, size: int, height: float) -> None:
    axes.plot([size], [height], "X", color=_WRONG, markersize=10, zorder=5)
    axes.annotate("wrong values", (size, height), xytext=(-8, 5), textcoords="offset points",
                  ha="right", fontsize=8, color=_WRONG)  # fmt: skip


def _finish(mpl: Any, axes: Any, panel: Panel, unit: Any) -> None:
    """Axes with sizes below and the unit's own figures beside, whatever the range."""
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
    sizes = sorted({point.bytes for curve in panel.curves for point in curve.points})
    ticks = _size_ticks(sizes[0], sizes[-1])
    axes.set_xticks(ticks, [size_text(size) for size in ticks], rotation=35, ha="right",
                    rotation_mode="anchor")  # fmt: skip
    axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    axes.grid(True, which="major", color="#DDDDDD", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _legend_text(curve: Curve) -> str:
    """With the bandwidth that it reaches: log axes do not show it."""
    best = max((point.GBps for point in curve.points if point.GBps), default=None)
    return plain(curve.label) + ("" if best is None else f" (best {best:.4g} GB/s)")


def _add_legend(axes: Any, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """Inside, where times that rise late leave room; of many curves below."""
    # matplotlib leaves out labels that begin with an underscore.
    shown = [f" {label}" if label.startswith("_") else label for label in labels]
    if len(shown) <= _OUTSIDE:
        axes.legend(handles, shown, loc="upper left", fontsize=8.5, framealpha=0.9)
    else:
        axes.legend(handles, shown, loc="upper left", bbox_to_anchor=(0, -0.24), fontsize=8,
                    ncols=2, frameon=False)  # fmt: skip


def _size_ticks(smallest: int, largest: int) -> list[int]:
    """Powers of two, evenly, as many as can be read; the largest power is among them."""
    low, high = smallest.bit_length() - 1, (largest - 1).bit_length()
    step = -(-(high - low + 1) // _MOST_TICKS)
    return [1 << power for power in range(high, low - 1, -step)][::-1]


def _rate(value: float) -> str:
    return f"{value:g}"


def _time(us: float) -> str:
    for scale, unit in ((1e6, "s"), (1e3, "ms"), (1.0, "us")):
        if us >= scale * 0.999:
            return f"{us / scale:g} {unit}"
    return f"{us * 1e3:g} ns"


def check_kinds(runs: Sequence[Saved]) -> bool:
    """Whether it is one run of pairs; OddrankError where pictures of two kinds would be mixed."""
    matrices = [run for run in runs if run.matrices]
    empty = [run for run in runs if not run.matrices and not run.rows]
    if empty:
        raise OddrankError(f"nothing to draw: {empty[0].path} has neither rows nor pairs")
    if matrices and len(runs) > 1:
        raise OddrankError(f"{matrices[0].path} is of bench pairs: draw it alone")
    return bool(matrices)
