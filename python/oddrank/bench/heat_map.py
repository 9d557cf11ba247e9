"""The matrices of `bench pairs` as a picture: senders down, receivers across, the named framed."""

import math
import statistics
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from oddrank.bench.marks import Box, marks
from oddrank.bench.matrices import Cells, Matrix
from oddrank.bench.plot import matplotlib, plain
from oddrank.bench.saved import Saved
from oddrank.errors import OddrankError

_MARK = "#D00000"
_UNKNOWN = "#E4E4E4"
_MOST_FIGURES = 20  # members whose cells have room for their figures
_MOST_NAMES = 40  # on an axis
_MOST_NAME = 24  # characters
_LONGEST = 400  # of a sentence
_MOST_SENTENCES = 3
_CHARACTERS = 13.5  # of a sentence, on an inch
_MOST_PANELS = 4
_MOST_POINTS = 1000  # a side


@dataclass(frozen=True)
class _Panel:
    """One matrix of the picture."""

    where: str
    names: tuple[str, ...]
    values: Cells
    boxes: list[Box]
    latency: bool


def draw_matrices(run: Saved) -> Any:
    """The matrix of all, those inside nodes that fit, latencies of each where one is named.

    OddrankError where no cell of the first is known.
    """
    mpl = matplotlib()
    panels, left_out = _panels(run)
    columns = 1 if len(panels) == 1 else 2
    rows = -(-len(panels) // columns)
    side = min(12.0, max(5.0, 0.62 * max(len(panel.names) for panel in panels) + 2.4))
    figure = mpl.figure.Figure(figsize=((side + 1.2) * columns, side * rows), layout="constrained")
    mpl.backends.backend_agg.FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False).flat
    for each, panel in zip(axes, panels, strict=False):
        _draw(mpl, figure, each, panel)
    for each in list(axes)[len(panels) :]:
        each.set_axis_off()
    framed = any(panel.boxes for panel in panels)
    width = int(_CHARACTERS * figure.get_figwidth())
    said = list(_sentences(run, framed=framed, width=width))
    said += [f"not drawn: {left_out} more matrices inside nodes"] if left_out else []
    if said:
        figure.supxlabel("\n".join(said), fontsize=8.5, x=0.02, ha="left",
                         color=_MARK if framed else "black")  # fmt: skip
    return figure


def _panels(run: Saved) -> tuple[list[_Panel], int]:
    """Those to draw, and how many are left out; inside nodes first where something is named."""
    first, *inside = run.matrices
    if not first.GBps:
        raise OddrankError(f"nothing to draw: no cell of {run.path} has a bandwidth")
    found = _panels_of(run, first)
    drawn = [panel for matrix in inside for panel in _panels_of(run, matrix)]
    drawn.sort(key=lambda panel: not panel.boxes)
    room = max(0, _MOST_PANELS - len(found))
    return found + drawn[:room], max(0, len(drawn) - room)


def _panels_of(run: Saved, matrix: Matrix) -> list[_Panel]:
    """The bandwidths, and the latencies where one is named."""
    found = []
    for values, latency in ((matrix.GBps, False), (matrix.latency_us, True)):
        boxes = marks(run.findings, matrix, run.world.get("size"), latency=latency)
        if values and (boxes or not latency):
            found.append(_Panel(matrix.where, matrix.names, values, boxes, latency))
    return found


def _draw(mpl: Any, figure: Any, axes: Any, panel: _Panel) -> None:
    known, size = [*panel.values.values()], len(panel.names)
    points, step = _points(panel)
    edge = len(points) * step - 0.5
    # Dark is slow: little bandwidth, or much time.
    colours = mpl.colormaps["viridis_r" if panel.latency else "viridis"]
    low, high = _range(known, panel.latency)
    image = axes.imshow(
        points, cmap=colours.with_extremes(bad=_UNKNOWN), vmin=low, vmax=high,
        interpolation="nearest", extent=(-0.5, edge, edge, -0.5),
    )  # fmt: skip
    axes.set_xlim(-0.5, size - 0.5)
    axes.set_ylim(size - 0.5, -0.5)
    unit = "us one way, the shortest" if panel.latency else "GB/s, from sender to receiver"
    figure.colorbar(image, ax=axes, label=unit, shrink=0.85)
    _label(axes, panel)
    if len(panel.names) <= _MOST_FIGURES:
        _write_figures(axes, panel, low, high)
    for row, column, rows, columns in panel.boxes:
        axes.add_patch(
            mpl.patches.Rectangle((column - 0.5, row - 0.5), columns, rows, fill=False,
                                  edgecolor=_MARK, linewidth=2.4, clip_on=False, zorder=4)
        )  # fmt: skip
    axes.set_title(_title(panel, known), fontsize=11, loc="left")


def _points(panel: _Panel) -> tuple[list[list[float]], int]:
    """The picture's points, and the members behind a side of one: of many the slowest shows."""
    step = -(-len(panel.names) // _MOST_POINTS)
    side = -(-len(panel.names) // step)
    points = [[math.nan] * side for _ in range(side)]
    for (i, j), value in panel.values.items():
        line, column = points[i // step], j // step
        slower = value > line[column] if panel.latency else value < line[column]
        if slower or math.isnan(line[column]):
            line[column] = value
    return points, step


def _range(known: list[float], latency: bool) -> tuple[float, float]:
    """From the slowest to the fastest, but wide enough that noise looks like noise."""
    median = statistics.median(known)
    least, most = (0.95, 2.0) if latency else (0.75, 1.05)
    low, high = min(*known, least * median), max(*known, most * median)
    return low, high if high > low else low + 1.0


def _title(panel: _Panel, known: list[float]) -> str:
    what, unit = ("Latency", "us") if panel.latency else ("Bandwidth", "GB/s")
    of = plain(panel.where) or "of pairs"
    figures = zip(
        ("median", "lowest", "highest"),
        (statistics.median(known), min(known), max(known)),
        strict=True,
    )
    told = ", ".join(f"{name} {_figure(value)}" for name, value in figures)
    return f"{what} {of}\n{told} {unit}"


def _label(axes: Any, panel: _Panel) -> None:
    """Names on both axes; of many not all, but always those that are framed."""
    size = len(panel.names)
    step = -(-size // _MOST_NAMES)
    small = 9 if size <= _MOST_FIGURES else 7
    upright = max(len(name) for name in panel.names) <= 3
    turned = {"rotation": 0 if upright else 45, "ha": "center" if upright else "right",
              "rotation_mode": "anchor"}  # fmt: skip
    senders = {row for row, _, rows, _ in panel.boxes if rows < size}
    receivers = {column for _, column, _, columns in panel.boxes if columns < size}
    for axis, framed, how in ((axes.xaxis, receivers, turned), (axes.yaxis, senders, {})):
        near = {i + d for i in framed for d in range(1 - step, step)}
        shown = sorted(framed | (set(range(0, size, step)) - near))
        names = [plain(panel.names[i][:_MOST_NAME]) for i in shown]
        axis.set_ticks(shown, names, fontsize=small, **how)
        for place, text in zip(shown, axis.get_ticklabels(), strict=True):
            if place in framed:
                text.set_color(_MARK)
                text.set_fontweight("bold")
    axes.set_xlabel("receiver")
    axes.set_ylabel("sender")
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _write_figures(axes: Any, panel: _Panel, low: float, high: float) -> None:
    small = 9 if len(panel.names) <= 10 else 7
    digits = max(0, min(6, 2 - math.floor(math.log10(high))))  # three figures of the highest
    for i in range(len(panel.names)):
        for j in range(len(panel.names)):
            cell = panel.values.get((i, j))
            if cell is None:
                text, colour = ("" if i == j else "?"), "#777777"
            else:
                text = f"{cell:.{digits}f}"
                light = (cell - low) / (high - low)
                colour = "black" if (1 - light if panel.latency else light) > 0.6 else "white"
            axes.text(j, i, text, ha="center", va="center", fontsize=small, color=colour)


def _figure(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _sentences(run: Saved, *, framed: bool, width: int) -> Iterable[str]:
    """What the findings say, below the picture."""
    said = [f["what"][:_LONGEST] for f in run.findings if isinstance(f.get("what"), str)]
    for text in said[:_MOST_SENTENCES]:
        start = "framed: " if framed else ""
        yield from textwrap.wrap(plain(f"{start}{text}"), width)[:3]
    if len(said) > _MOST_SENTENCES:
        yield f"and {len(said) - _MOST_SENTENCES} more findings"
