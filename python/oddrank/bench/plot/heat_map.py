"""Draws heat maps of `bench pairs`; frames the rows, columns and cells that findings name."""

import math
import re
import statistics
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from oddrank.bench.saved import Cells, Saved, SavedMatrix
from oddrank.errors import OddrankError
from oddrank.finding import number_text
from oddrank.pictures import matplotlib, plain

Box = tuple[int, int, int, int]
"""First row, first column, rows, columns."""


def marks(
    findings: Iterable[Mapping[str, Any]], matrix: SavedMatrix, *, latency: bool = False
) -> list[Box]:
    """Returns the boxes to frame: a slow sender's row, a receiver's column, a rank's both, a link.

    Only in the matrix in which the finding was made: a rank that is slow between nodes may be fast
    inside its own. latency: whether to frame delays, or everything else.
    """
    boxes: list[Box] = []
    size = len(matrix.names)
    for finding in findings:
        who, cause = finding.get("who"), str(finding.get("cause", ""))
        if finding.get("condition") == "unknown" or not isinstance(who, dict):
            continue
        if cause.startswith("delayed") != latency or _is_of_others(finding, matrix):
            continue
        if who.get("kind") == "link":
            boxes += _link(who, matrix)
            continue
        places = _places(who, matrix)
        if len(places) == size:  # the whole node, and this is the matrix inside it
            continue
        boxes += [(i, 0, 1, size) for i in places if not cause.endswith("receiver")]
        boxes += [(0, i, size, 1) for i in places if not cause.endswith("sender")]
    return list(dict.fromkeys(boxes))


def _is_of_others(finding: Mapping[str, Any], matrix: SavedMatrix) -> bool:
    """Returns whether the finding is about another kind of links than the matrix."""
    evidence = finding.get("evidence")
    first = evidence[0] if isinstance(evidence, list) and evidence else None
    source = str(first.get("source")) if isinstance(first, dict) else ""
    kind, of = source.split(" ")[1:2], matrix.where.split(" ")[:1]
    return bool(kind and of[0]) and kind != of


def _link(who: Mapping[str, Any], matrix: SavedMatrix) -> list[Box]:
    """Returns the two cells of a link; one cell if one way of it is named (`n1 to n2`)."""
    ends = re.split(r" to | and ", str(who.get("device")))
    if len(ends) == 2 and set(ends) <= set(matrix.names):
        i, j = map(matrix.names.index, ends)
        both = " and " in str(who["device"])
    else:
        places = _places(who, matrix)
        if len(places) != 2 or not _ranks(who) <= set().union(*matrix.ranks):
            return []
        (i, j), both = places, True
    return [(i, j, 1, 1), (j, i, 1, 1)] if both else [(i, j, 1, 1)]


def _places(who: Mapping[str, Any], matrix: SavedMatrix) -> list[int]:
    ranks = _ranks(who)
    return [i for i, own in enumerate(matrix.ranks) if own & ranks]


def _ranks(who: Mapping[str, Any]) -> set[int]:
    listed = who.get("ranks")
    return {r for r in listed if isinstance(r, int)} if isinstance(listed, list) else set()


_MARK = "#D00000"
_UNKNOWN = "#E4E4E4"
_MOST_FIGURES = 20  # members, for cells with room for their figures
_MOST_NAMES = 40  # on an axis
_MOST_NAME = 24  # characters
_LONGEST = 400  # characters of a sentence
_MOST_SENTENCES = 3
_CHARACTERS = 13.5  # of a sentence, per inch
_MOST_PANELS = 4
_MOST_POINTS = 1000  # on a side


@dataclass(frozen=True)
class _Panel:
    """One matrix of the picture."""

    where: str
    names: tuple[str, ...]
    values: Cells
    boxes: list[Box]
    latency: bool


def draw_matrices(run: Saved) -> Any:
    """Draws the main matrix and as many matrices inside nodes as fit; latencies if one is named.

    OddrankError if the main matrix has no measured cell.
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
    """Returns the panels to draw, framed ones of the nodes first, and how many are left out."""
    first, *inside = run.matrices
    if not first.GBps:
        raise OddrankError(f"nothing to draw: no cell of {run.path} has a bandwidth")
    found = _panels_of(run, first)
    drawn = [panel for matrix in inside for panel in _panels_of(run, matrix)]
    drawn.sort(key=lambda panel: not panel.boxes)
    room = max(0, _MOST_PANELS - len(found))
    return found + drawn[:room], max(0, len(drawn) - room)


def _panels_of(run: Saved, matrix: SavedMatrix) -> list[_Panel]:
    """Returns the matrix's bandwidths, and its latencies if a finding names one."""
    found = []
    for values, latency in ((matrix.GBps, False), (matrix.latency_us, True)):
        boxes = marks(run.findings, matrix, latency=latency)
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
    """Returns the points and how many members a side of one covers; it shows its slowest cell."""
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
    """Returns the range of colours: slowest to fastest, wide enough for noise to look small."""
    median = statistics.median(known)
    least, most = (0.95, 2.0) if latency else (0.75, 1.05)
    low, high = min(*known, least * median), max(*known, most * median)
    return low, high if high > low else low + 1.0


def _title(panel: _Panel, known: list[float]) -> str:
    what, unit = ("Latency", "us") if panel.latency else ("Bandwidth", "GB/s")
    of = plain(panel.where) or "of pairs"
    figures = {"median": statistics.median(known), "lowest": min(known), "highest": max(known)}
    shown = ", ".join(f"{name} {number_text(value, 3)}" for name, value in figures.items())
    return f"{what} {of}\n{shown} {unit}"


def _label(axes: Any, panel: _Panel) -> None:
    """Names the members on both axes; always the framed ones, else as many as can be read."""
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


def _sentences(run: Saved, *, framed: bool, width: int) -> Iterable[str]:
    """Returns the findings' sentences for the space below the picture."""
    said = [f["what"][:_LONGEST] for f in run.findings if isinstance(f.get("what"), str)]
    for text in said[:_MOST_SENTENCES]:
        start = "framed: " if framed else ""
        yield from textwrap.wrap(plain(f"{start}{text}"), width)[:3]
    if len(said) > _MOST_SENTENCES:
        yield f"and {len(said) - _MOST_SENTENCES} more findings"
