"""Finds the kind of each file by its content, and reads it: a row a kind."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oddrank.triage.facts import MOST_RANKS, Fact

HEAD = 64 << 10
_LAST_TIME = 1 << 33  # the year 2242
_RANK = re.compile(r"(?<![a-z])rank(?:[^\w/]|_){0,3}(\d{1,7})(?!\d)", re.IGNORECASE)
# Ranks within a node or among nodes.
_LOCAL_RANK = re.compile(r"local[_.=-]?rank[_.=-]{0,2}(\d{1,7})(?!\d)", re.IGNORECASE)
_OTHER_RANK = re.compile(r"(?:local|node|group)[_.=-]?rank[_.=-]{0,2}\d+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Item:
    """One file to read. name: as the user sees it, a.tar:rank3.txt for a member of an archive.

    path: the file itself, or an unpacked copy of it. head: its first HEAD bytes. rank, label: of
    its process, where its folders say them (log_lines.placed).
    """

    name: str
    path: Path
    size: int
    head: bytes = field(repr=False)
    rank: int | None = None
    label: str = ""


@dataclass
class Notes:
    """Collects lines on what was not read, and why. `add` is called by readers.

    lost: those on files that may hold evidence. An empty file holds none. named: the paths that the
    user gave; a folder among them may hold other things than evidence.
    """

    lines: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    named: frozenset[str] = frozenset()

    @property
    def lost_text(self) -> str:
        """What is lost, as the end of a sentence."""
        more = f" and {len(self.lost) - 1} more" if len(self.lost) > 1 else ""
        return f"; not read: {self.lost[0]}{more}" if self.lost else ""

    def add(self, item: Item | str, why: str, *, lost: bool = True) -> None:
        line = f"{item if isinstance(item, str) else item.name}: {why}"
        self.lines.append(line)
        if lost:
            self.lost.append(line)


@dataclass(frozen=True)
class Kind:
    """A kind of evidence. binary: its files are of this kind alone; else text, of several kinds.

    sniff: whether a file is, or contains, this kind (called with every file, so it must be cheap;
    it may read more than the head through C++). read: makes facts of all files of the kind at
    once. It never raises for bad content: it adds a line to the notes and goes on.
    """

    name: str
    binary: bool
    sniff: Callable[[Item], bool]
    read: Callable[[Sequence[Item], Notes], Iterable[Fact]]


def unix_time(value: Any) -> float | None:
    """Returns a time that a file says, in Unix seconds; None if it cannot be one.

    Files hold inf, NaN and numbers of any size, which clocks and calendars refuse.
    """
    with suppress(TypeError, ValueError, OverflowError):
        seconds = float(value)
        if math.isfinite(seconds) and 0 <= seconds <= _LAST_TIME:
            return seconds
    return None


def rank_in_name(name: str) -> int | None:
    """Returns the last global rank in a name such as logs/rank_3.log; None if it has none."""
    found = _RANK.findall(without_other_ranks(name))
    return int(found[-1]) if found and int(found[-1]) < MOST_RANKS else None


def local_rank_in_name(name: str) -> int | None:
    """Returns the last local rank in a name such as local_rank_3.log; None if it has none."""
    found = _LOCAL_RANK.findall(name)
    return int(found[-1]) if found else None


def without_other_ranks(name: str) -> str:
    """Returns a name without local ranks and numbers of nodes: local_rank_3, node_rank_0."""
    return _OTHER_RANK.sub("", name)
