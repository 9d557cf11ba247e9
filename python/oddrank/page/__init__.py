"""The page of `--html`: report and parts through one template into one file for a browser.

Texts of strangers are escaped by the template, or go as JSON to the script, which only ever sets
them as text. The page's own policy lets a browser run nothing but this script.
"""

import base64
import hashlib
import importlib.util
import json
import math
import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from oddrank._version import __version__
from oddrank.errors import OddrankError
from oddrank.finding import duration, fold, grouped, number_text
from oddrank.report import Report, write_text

ADVICE = "give --html a file in a folder you can write"
_HERE = Path(__file__).parent
# A page of 10,000 ranks is to stay below 5 MB.
_MOST_FINDINGS, _MOST_EVIDENCE, _MOST_LANES, _MOST_ROWS = 100, 20, 500, 2000
_MOST_BRANCHES, _DEEPEST = 4000, 100
_MOST_FRAMES, _MOST_FRAMES_IN_ALL = 200, 20_000  # frames of one branch, and of all
_MOST_NOTES = 2_300_000  # bytes
_MOST_RANKS = 200_000
_MOST_TEXT, _MOST_LIST = 2000, 400
_SHORT_CHAIN = 6
_MOST_CURVES, _MOST_TICKS = 8, 7  # curves of a chart, ticks of its upright axis
# Of a chart, in the units of its picture: left and right, bottom and top of the drawing.
_ACROSS, _UP = (52, 374), (196, 10)
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?( [^\s,]+)?|[-?]")


@dataclass(frozen=True)
class Note:
    """A line that the page shows of each of some ranks: `completed 5 of 6 in default_pg`."""

    text: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Branch:
    """Frames that some processes share, outermost first. depth: from 0, of its place in the tree.

    members: the processes that stand there: ranks 0-2,5. count: their number.
    """

    depth: int
    members: str
    count: int
    frames: tuple[str, ...]


@dataclass(frozen=True)
class Tree:
    """Stacks of all processes as one tree, in the order in which it is read from top to bottom."""

    title: str
    branches: tuple[Branch, ...]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lane:
    """The last action of ranks, from one Unix time to another. kind: odd, waits or fine."""

    ranks: tuple[int, ...]
    text: str
    kind: str
    begin: float
    end: float
    died: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of text below their column names. odd: so many of the first ones are of odd ranks."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    odd: int = 0

    @property
    def numbers(self) -> set[int]:
        """The columns of numbers alone, with or without a unit: their cells stand to the right."""
        columns = enumerate(zip(*self.rows, strict=True))
        return {i for i, cells in columns if all(map(_NUMBER.fullmatch, cells))}


class Dot(NamedTuple):
    """A point of a curve. text: its description, which the page shows at the pointer."""

    x: float
    y: float
    text: str
    odd: bool = False


@dataclass(frozen=True)
class Chart:
    """Curves over sizes of messages, on logarithmic scales: label -> dots by x, all above 0.

    ticks: x -> its text.
    """

    title: str
    curves: Mapping[str, Sequence[Dot]]
    ticks: Mapping[float, str]


@dataclass(frozen=True)
class Parts:
    """All that a command knows beyond the report. Empty parts are not shown.

    status: lines below the headline: later events. waiting: ranks that wait for the named ones.
    absent: ranks without evidence of their own; absence: the text on them. hosts: rank -> host.
    no_ranks: why no rank is shown. events: a line each, in order of time.
    """

    status: Sequence[str] = ()
    waiting: tuple[int, ...] = ()
    absent: tuple[int, ...] = ()
    absence: str = "no evidence"
    no_ranks: str = ""
    hosts: Mapping[int, str] = field(default_factory=dict)
    notes: Sequence[Note] = ()
    tree: Tree | None = None
    lanes: Sequence[Lane] = ()
    events: Sequence[str] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()


def utc(seconds: float) -> str:
    """Returns a Unix time as text: 2026-11-24 15:05:31 UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def check() -> None:
    """Raises OddrankError if no page can be made. Call it before a command does its work."""
    if importlib.util.find_spec("jinja2") is None:
        raise OddrankError("--html needs jinja2: pip install jinja2")


def write(report: Report, parts: Parts, path: str) -> None:
    """Writes the page to `path`, whole or not at all. OddrankError if it can't be written."""
    write_text(text(report, parts), path, ADVICE)


def text(report: Report, parts: Parts) -> str:
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    style = (_HERE / "page.css").read_text(encoding="utf-8")
    grid = _grid(report, parts)
    about = (
        f"{key} {value}"
        for key, value in report.world.items()
        if value not in (None, "") and not isinstance(value, dict | list)
    )
    made: str = _template().render(
        report=report, parts=parts, about=", ".join([*about, f"oddrank {__version__}"]),
        written=utc(time.time()), most_findings=_MOST_FINDINGS, most_evidence=_MOST_EVIDENCE,
        most_rows=_MOST_ROWS, grid=grid, data=_as_json(grid), lanes=_lanes(parts.lanes),
        tree=_tree(parts.tree) if parts.tree else None,
        charts=[_chart(chart) for chart in parts.charts],
        script=script, style=style, script_hash=_hash(script), style_hash=_hash(style),
    )  # fmt: skip
    return made


@cache
def _template() -> Any:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=_clean,
    )  # fmt: skip
    environment.filters |= {"short": _short, "number": number_text}
    return environment.get_template("page.html.j2")


def _clean(value: Any) -> Any:
    """Returns a text with control characters, and those that turn a line around, as escapes."""
    if type(value) is not str:  # Markup is the template's own
        return value
    if len(value) > _MOST_TEXT:
        value = f"{value[:_MOST_TEXT]} ... ({len(value) - _MOST_TEXT} more characters)"
    if value.isprintable():
        return value
    return "".join(
        c if c.isprintable() or c in "\n\t" or (c.isspace() and ord(c) > 0xA0)
        else c.encode("unicode_escape").decode()
        for c in value
    )  # fmt: skip


def _short(text: str, between: str = ", ") -> str:
    """Returns a list, cut behind one of its entries if it is long."""
    return text if len(text) <= _MOST_LIST else f"{text[:_MOST_LIST].rpartition(between)[0]}, ..."


def _hash(content: str) -> str:
    """Returns the source expression of a Content-Security-Policy for this script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _as_json(value: Any) -> str:
    """Returns JSON that no parser of HTML can take for markup."""
    made = json.dumps(value, separators=(",", ":"))
    return made.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def _grid(report: Report, parts: Parts) -> dict[str, Any]:
    """Returns the grid's data: ranks are folded, as `0-5,7`; the script draws a cell for each.

    states: [word, kind, ranks], a later one counts more. hosts: [host, ranks]. notes: [text,
    ranks]. left_out: ranks, and notes_left_out: notes, beyond what a page holds.
    """
    named: dict[str, set[int]] = {}
    suspected: dict[str, set[int]] = {}
    for finding in reversed(report.findings):  # the first counts most
        word, group = str(finding.condition), named
        if not finding.names_somebody():
            word, group = f"perhaps {word}", suspected
        group[word] = group.pop(word, set()) | set(finding.who.ranks)
    kinds = [(parts.absence, "absent", parts.absent), ("waits", "waits", parts.waiting)]
    kinds += [(word, "suspect", tuple(ranks)) for word, ranks in suspected.items()]
    kinds += [(word, "odd", tuple(ranks)) for word, ranks in named.items()]
    known = set().union(parts.hosts, *(ranks for _, _, ranks in kinds))
    size = report.world.get("size")
    size = max(size if isinstance(size, int) else 0, max(known, default=-1) + 1)
    hosts = grouped((host, rank) for rank, host in sorted(parts.hosts.items()) if host)
    striking = set().union(*named.values(), *suspected.values())
    notes, dropped = _notes(report, parts.notes, striking)
    return {
        "size": 0 if parts.no_ranks else min(size, _MOST_RANKS),
        "left_out": max(size - _MOST_RANKS, 0),
        "states": [[word, kind, fold(ranks)] for word, kind, ranks in kinds if ranks],
        "hosts": [[_clean(host), fold(ranks)] for host, ranks in hosts.items()],
        "notes": notes,
        "notes_left_out": dropped,
    }


def _notes(
    report: Report, given: Sequence[Note], striking: set[int]
) -> tuple[list[list[str]], int]:
    """Returns the notes that a page holds, and how many it leaves out: odd ranks' notes last."""
    notes = [Note(f.what, f.who.ranks) for f in report.findings[1:_MOST_FINDINGS]]
    notes += given
    kept: list[tuple[int, list[str]]] = []
    left = _MOST_NOTES
    for index in sorted(range(len(notes)), key=lambda i: striking.isdisjoint(notes[i].ranks)):
        line = [_clean(notes[index].text), fold(notes[index].ranks)]
        left -= len(line[0]) + len(line[1])
        if left < 0:
            break
        kept.append((index, line))
    return [line for _, line in sorted(kept)], len(notes) - len(kept)


def _lanes(lanes: Sequence[Lane]) -> dict[str, Any] | None:
    """Returns the lanes with their places on an axis of 1000; None if no time passes in them."""
    ends = [lane.end for lane in lanes]
    begin, end = min((lane.begin for lane in lanes), default=0.0), max(ends, default=0.0)
    if end - begin < 0.001:
        return None
    begin -= (end - begin) / 20
    scale = 1000 / (end - begin)
    rows = [
        {
            "lane": lane,
            "ranks": _short(fold(lane.ranks), ","),
            "x": round((lane.begin - begin) * scale, 1),
            "width": round(max((lane.end - lane.begin) * scale, 4.0), 1),
            "seconds": duration(lane.end - lane.begin, 1),
        }
        for lane in lanes[:_MOST_LANES]
    ]
    return {"rows": rows, "begin": utc(begin), "end": utc(end), "more": len(lanes) - len(rows)}


def _chart(chart: Chart) -> dict[str, Any]:
    curves = dict([*chart.curves.items()][:_MOST_CURVES])
    dots = [dot for curve in curves.values() for dot in curve]
    steps = _steps(min(dot.y for dot in dots), max(dot.y for dot in dots))
    ends = [*chart.ticks, *(dot.x for dot in dots)]

    def x(value: float) -> float:
        return _placed(value, min(ends), max(ends), _ACROSS)

    def y(value: float) -> float:
        return _placed(value, steps[0], steps[-1], _UP)

    decades = [step for step in steps if f"{step:e}".startswith("1")]
    every = math.ceil(len(decades) / _MOST_TICKS)
    shown = steps if len(steps) <= _MOST_TICKS else decades[::every]
    return {
        "title": chart.title,
        "across": _ACROSS,
        "up": _UP,
        "x_ticks": [(x(value), label) for value, label in chart.ticks.items()],
        "y_ticks": [(y(step), f"{step:g}") for step in shown],
        "curves": [
            (label, [(x(dot.x), y(dot.y), dot) for dot in curve]) for label, curve in curves.items()
        ],
        "more": len(chart.curves) - len(curves),
    }


def _steps(low: float, high: float) -> list[float]:
    """Returns the shortest run of 1, 2 and 5 times powers of ten that holds `low` and `high`."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = [float(f"{digit}e{power}") for power in powers for digit in (1, 2, 5)]
    return steps[max(bisect_right(steps, low) - 1, 0) : bisect_left(steps, high) + 1]


def _placed(value: float, low: float, high: float, ends: tuple[int, int]) -> float:
    """Returns the place of a value between two ends that stand for `low` and `high`."""
    share = math.log(value / low) / math.log(high / low) if high > low else 0.5
    return round(ends[0] + share * (ends[1] - ends[0]), 1)


def _tree(tree: Tree) -> dict[str, Any]:
    """Returns branches in reading order. opens: it has branches; closes: how many end after it."""
    shown = tree.branches[:_MOST_BRANCHES]
    depths = [min(branch.depth, _DEEPEST) for branch in shown]
    rows, left = [], _MOST_FRAMES_IN_ALL
    for branch, depth, following in zip(shown, depths, [*depths[1:], 0], strict=True):
        frames = branch.frames[: min(_MOST_FRAMES, left)]
        frames = frames if len(branch.frames) > _SHORT_CHAIN else ()
        left -= len(frames)
        rows.append(
            {
                "members": _short(branch.members, ",")
                + (f" ({branch.count})" if branch.count > 1 else ""),
                "chain": short_chain(branch.frames),
                "count": branch.count,
                "frames": frames,
                "more": len(branch.frames) - len(frames),
                "opens": following > depth,
                "closes": max(depth - following, 0),
            }
        )
    return {
        "title": tree.title,
        "rows": rows,
        "more": len(tree.branches) - len(shown),
        "remarks": tree.remarks,
    }


def short_chain(frames: Sequence[str]) -> Sequence[str]:
    """Returns the ends of a long chain of frames, and how many stand between."""
    if len(frames) <= _SHORT_CHAIN:
        return frames
    return [*frames[:2], f"... {len(frames) - 5} frames ...", *frames[-3:]]
