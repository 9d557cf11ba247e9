"""Finds the kind of each file by its content, and reads it: a row a kind."""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oddrank.triage.facts import Fact

HEAD = 64 << 10
_LAST_TIME = 1 << 33  # the year 2242


@dataclass(frozen=True, slots=True)
class Item:
    """One file to read. name: as the user sees it, a.tar:rank3.txt for a member of an archive.

    path: the file itself, or an unpacked copy of it. head: its first HEAD bytes.
    """

    name: str
    path: Path
    size: int
    head: bytes = field(repr=False)


@dataclass
class Notes:
    """Collects lines on what was not read, and why. `add` is called by readers."""

    lines: list[str] = field(default_factory=list)

    def add(self, item: Item | str, why: str) -> None:
        self.lines.append(f"{item if isinstance(item, str) else item.name}: {why}")


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
