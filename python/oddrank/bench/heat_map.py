"""The matrices of `bench pairs` as a picture: senders down, receivers across, the named framed."""

import math
import statistics
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from oddrank.bench.marks import Box, marks
from oddrank.bench.matrices import Grid, Matrix
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


@dataclass(frozen=True)
class _Panel:
    """One matrix of the picture."""

    where: str
    names: tuple[str, ...]
    values: Grid
    boxes: list[Box]
    latency: bool


def draw_matrices(run: Saved) -> Any:
    """The matrix of all, the latencies where one is named, and those inside nodes that fit.

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
    said += [f"not drawn: {left_out} more nodes inside"] if left_out else []
    if said:
        figure.supxlabel("\n".join(said), fontsize=8.5, x=0.02, ha="left",
                         color=_MARK if framed else "black")  # fmt: skip
    return figure


def _panels(run: Saved) -> tuple[list[_Panel], int]:
    """Those to draw, and how many are left out; inside nodes first where something is named."""
    first, *inside = run.matrices
    world = run.world.get("size")
    if not any(cell is not None for line in first.GBps for cell in line):
        raise OddrankError(f"nothing to draw: no cell of {run.path} has a bandwidth")
    found = [_bandwidths(run, first)]
    boxes = marks(run.findings, first, world, latency=True)
    if first.latency_us is not None and boxes:
        found.append(_Panel(first.where, first.names, first.latency_us, boxes, True))
    known = [m for m in inside if any(cell is not None for line in m.GBps for cell in line)]
    drawn = sorted((_bandwidths(run, m) for m in known), key=lambda panel: not panel.boxes)
    room = max(0, _MOST_PANELS - len(found))
    return found + drawn[:room], max(0, len(drawn) - room)


def _bandwidths(run: Saved, matrix: Matrix) -> _Panel:
    boxes = marks(run.findings, matrix, run.world.get("size"))
    return _Panel(matrix.where, matrix.names, matrix.GBps, boxes, False)


def _draw(mpl: Any, figure: Any, axes: Any, panel: _Panel) -> None:
    known = [cell for line in panel.values for cell in line if cell is not None]
    values = [[math.nan if cell is None else cell for cell in line] for line in panel.values]
    # Dark is slow: little bandwidth, or much time.
    colours = mpl.colormaps["viridis_r" if panel.latency else "viridis"]
    low, high = _range(known, panel.latency)
    image = axes.imshow(
        values, cmap=colours.with_extremes(bad=_UNKNOWN), vmin=low, vmax=high,
        interpolation="nearest",
    )  # fmt: skip
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
    for i, line in enumerate(panel.values):
        for j, cell in enumerate(line):
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
