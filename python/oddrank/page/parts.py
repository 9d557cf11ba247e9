"""Holds what a page shows besides its report. Commands fill it; strangers may write the texts."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


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
class Row:
    """Ranks of a group that have come equally far.

    completed: number of the last call that they completed. call: the one they are in, "": none.
    entered: when the first and the last of them entered it, in seconds after the first rank that
    did; None: unknown.
    """

    ranks: tuple[int, ...]
    completed: int | None
    call: str = ""
    entered: tuple[float, float] | None = None
    odd: bool = False


@dataclass(frozen=True)
class Timeline:
    """How far the ranks of one process group have come. rows: odd ranks, then those behind first.

    more: rows that are left out.
    """

    group: str
    rows: tuple[Row, ...]
    more: int = 0


@dataclass(frozen=True)
class Table:
    """Rows of text below their column names."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Parts:
    """All that a command knows beyond the report. Empty parts are not shown.

    status: lines below the headline: how it went on. waiting: ranks that wait for those that are
    named. absent: ranks without evidence of their own; absence: what is said of them. hosts: rank
    -> host. no_ranks: why no rank is shown. events: lines of what happened, in order of time.
    """

    status: Sequence[str] = ()
    waiting: tuple[int, ...] = ()
    absent: tuple[int, ...] = ()
    absence: str = "no evidence"
    no_ranks: str = ""
    hosts: Mapping[int, str] = field(default_factory=dict)
    notes: Sequence[Note] = ()
    timeline: Timeline | None = None
    tree: Tree | None = None
    events: Sequence[str] = ()
    tables: Sequence[Table] = ()


def utc(seconds: float) -> str:
    """Returns a Unix time as text: 2026-11-24 15:05:31 UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
