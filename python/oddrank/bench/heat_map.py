"""The matrix of `bench pairs` as a picture: senders down, receivers across, the named framed."""

import math
import statistics
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from oddrank.bench.plot import matplotlib, plain
from oddrank.bench.saved import Matrix, Saved
from oddrank.errors import OddrankError

_MARK = "#D00000"
_UNKNOWN = "#E4E4E4"
_MOST_FIGURES = 20  # members whose cells have room for their figures
_MOST_NAMES = 40  # on an axis
_MOST_NAME = 24  # characters
_LONGEST = 400  # of a sentence
_MOST_ENDS = 64  # of a link, or of several
_MOST_SENTENCES = 3
Box = tuple[int, int, int, int]  # first row, first column, rows, columns


def draw_matrix(run: Saved) -> Any:
    """OddrankError where no cell is known."""
    mpl = matplotlib()
    matrix = run.matrix
    assert matrix is not None
    known = [cell for line in matrix.GBps for cell in line if cell is not None]
    if not known:
        raise OddrankError(f"nothing to draw: no cell of {run.path} has a bandwidth")
    size = len(matrix.names)
    side = min(12.0, max(5.0, 0.62 * size + 2.4))
    figure = mpl.figure.Figure(figsize=(side + 1.2, side), layout="constrained")
    mpl.backends.backend_agg.FigureCanvasAgg(figure)
    axes = figure.subplots()
    values = [[math.nan if cell is None else cell for cell in line] for line in matrix.GBps]
    colours = mpl.colormaps["viridis"].with_extremes(bad=_UNKNOWN)
    low, high = _range(known)
    image = axes.imshow(values, cmap=colours, vmin=low, vmax=high, interpolation="nearest")
    figure.colorbar(image, ax=axes, label="GB/s, from sender to receiver", shrink=0.85)
    boxes = marks(run)
    _label(axes, matrix, boxes)
    if size <= _MOST_FIGURES:
        _write_figures(axes, matrix, low, high)
    for row, column, rows, columns in boxes:
        axes.add_patch(
            mpl.patches.Rectangle((column - 0.5, row - 0.5), columns, rows, fill=False,
                                  edgecolor=_MARK, linewidth=2.4, clip_on=False, zorder=4)
        )  # fmt: skip
    axes.set_title(_title(known), fontsize=11, loc="left")
    said = list(_sentences(run, framed=bool(boxes)))
    if said:
        figure.supxlabel("\n".join(said), fontsize=8.5, x=0.02, ha="left", color=_MARK)
    return figure


def marks(run: Saved) -> list[Box]:
    """What to frame: a slow sender's row, a slow receiver's column, a slow link's two cells."""
    assert run.matrix is not None
    boxes: list[Box] = []
    size = len(run.matrix.names)
    for finding in run.findings:
        places = sorted(_places(run, finding))
        cause = str(finding.get("cause", ""))
        if finding.get("condition") == "unknown" or not places:
            continue
        if _kind(finding) == "link" and len(places) <= _MOST_ENDS:
            boxes += [(i, j, 1, 1) for i in places for j in places if i != j]
        else:
            rows = [] if cause.endswith("receiver") else [(i, 0, 1, size) for i in places]
            columns = [] if cause.endswith("sender") else [(0, i, size, 1) for i in places]
            boxes += rows + columns
    return list(dict.fromkeys(boxes))


def _places(run: Saved, finding: Mapping[str, Any]) -> set[int]:
    """The members of the matrix that a finding names, by rank or by host."""
    assert run.matrix is not None
    who = finding.get("who")
    if not isinstance(who, dict):
        return set()
    listed = who.get("ranks")
    ranks = (
        {rank for rank in listed if isinstance(rank, int)} if isinstance(listed, list) else set()
    )
    size = len(run.matrix.names)
    members = _ranks_of_members(run)
    if members is not None:
        return {i for i, own in enumerate(members) if own & ranks}
    if run.world.get("size") == size:
        return {rank for rank in ranks if 0 <= rank < size}
    return {i for i, name in enumerate(run.matrix.names) if name == who.get("host")}


def _ranks_of_members(run: Saved) -> list[set[int]] | None:
    """`data.pairs.ranks`, the ranks behind each name, where the report has it."""
    assert run.matrix is not None
    listed = run.data["pairs"].get("ranks")
    if not isinstance(listed, list) or len(listed) != len(run.matrix.names):
        return None
    return [
        {rank for rank in own if isinstance(rank, int)} if isinstance(own, list) else set()
        for own in listed
    ]


def _kind(finding: Mapping[str, Any]) -> object:
    who = finding.get("who")
    return who.get("kind") if isinstance(who, dict) else None


def _range(known: list[float]) -> tuple[float, float]:
    """From the slowest to the fastest, but wide enough that noise looks like noise."""
    median = statistics.median(known)
    low, high = min(*known, 0.75 * median), max(*known, 1.05 * median)
    return low, high if high > low else low + 1.0


def _title(known: list[float]) -> str:
    return (
        f"Bandwidth of pairs: median {_figure(statistics.median(known))},"
        f" lowest {_figure(min(known))}, highest {_figure(max(known))} GB/s"
    )


def _label(axes: Any, matrix: Matrix, boxes: list[Box]) -> None:
    """Names on both axes; of many not all, but always those that are framed."""
    size = len(matrix.names)
    step = -(-size // _MOST_NAMES)
    small = 9 if size <= _MOST_FIGURES else 7
    upright = max(len(name) for name in matrix.names) <= 3
    turned = {"rotation": 0 if upright else 45, "ha": "center" if upright else "right",
              "rotation_mode": "anchor"}  # fmt: skip
    senders = {row for row, _, rows, _ in boxes if rows < size}
    receivers = {column for _, column, _, columns in boxes if columns < size}
    for axis, framed, how in ((axes.xaxis, receivers, turned), (axes.yaxis, senders, {})):
        near = {i + d for i in framed for d in range(1 - step, step)}
        shown = sorted(framed | (set(range(0, size, step)) - near))
        names = [plain(matrix.names[i][:_MOST_NAME]) for i in shown]
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


def _write_figures(axes: Any, matrix: Matrix, low: float, high: float) -> None:
    small = 9 if len(matrix.names) <= 10 else 7
    digits = max(0, min(6, 2 - math.floor(math.log10(high))))  # three figures of the highest
    for i, line in enumerate(matrix.GBps):
        for j, cell in enumerate(line):
            if cell is None:
                text, colour = ("" if i == j else "?"), "#777777"
            else:
                text = f"{cell:.{digits}f}"
                colour = "black" if (cell - low) / (high - low) > 0.6 else "white"
            axes.text(j, i, text, ha="center", va="center", fontsize=small, color=colour)


def _figure(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _sentences(run: Saved, *, framed: bool) -> Iterable[str]:
    """What the findings say, below the picture."""
    said = [f["what"][:_LONGEST] for f in run.findings if isinstance(f.get("what"), str)]
    for text in said[:_MOST_SENTENCES]:
        start = "framed: " if framed else ""
        yield from textwrap.wrap(plain(f"{start}{text}"), 110)[:3]
    if len(said) > _MOST_SENTENCES:
        yield f"and {len(said) - _MOST_SENTENCES} more findings"
