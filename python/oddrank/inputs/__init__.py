"""The files that users name for any command: an item each, and notes on unreadable ones."""

import math
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HEAD = 64 << 10
_LAST_TIME = 1 << 33  # the year 2242


def is_pickle(head: bytes) -> bool:
    """Returns whether a file that begins so is a pickle of a protocol up to 5: no text is."""
    return len(head) > 1 and head[0] == 0x80 and head[1] <= 5


@dataclass(frozen=True, slots=True)
class Item:
    """One file to read. name: as the user sees it, a.tar:rank3.txt for a member of an archive.

    path: the file itself, or an unpacked copy of it. head: its first HEAD bytes, of a pickle
    fewer. rank, label: of its process, where its folders say them (log_lines.placed). written_ns:
    time of its last write, for the year of times without one; 0: not known.
    """

    name: str
    path: Path
    size: int
    head: bytes = field(repr=False)
    rank: int | None = None
    label: str = ""
    written_ns: int = 0


@dataclass
class Notes:
    """Collects lines on files that were not read, and why. Readers call `add`.

    lost: lines on files that may hold evidence. An empty file holds none. named: the paths that the
    user gave; a folder among them may hold other things than evidence.
    """

    lines: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    named: frozenset[str] = frozenset()

    @property
    def lost_text(self) -> str:
        """The lost files, as the end of a sentence."""
        more = f" and {len(self.lost) - 1} more" if len(self.lost) > 1 else ""
        return f"; not read: {self.lost[0]}{more}" if self.lost else ""

    def add(self, item: Item | str, why: str, *, lost: bool = True) -> None:
        line = f"{item if isinstance(item, str) else item.name}: {why}"
        self.lines.append(line)
        if lost:
            self.lost.append(line)


def unix_time(value: Any) -> float | None:
    """Returns a time that a file says, in Unix seconds; None if it cannot be one.
    Files hold inf, NaN and numbers of any size, which clocks and calendars refuse."""
    with suppress(TypeError, ValueError, OverflowError):
        seconds = float(value)
        if math.isfinite(seconds) and 0 <= seconds <= _LAST_TIME:
            return seconds
    return None
