"""Notes pauses on purpose in a rank's record: it waits because a person wants it to.

breakpoint --Paused--> sections of the record, named oddrank:... --> the guard reports the stage
"paused", and the judge of `oddrank run` starts its clock anew when it begins and ends
                       --> trace.ranks: Rank.pause --> where, top, triage

A section keeps 32 bytes of its name: a longer text goes on in further sections. In a process that
is not armed, nothing is noted.
"""

import math
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, get_args

from oddrank import _native

Kind = Literal["breakpoint", "waits"]
"""breakpoint: a debugger has the rank, or it waits for one. waits: for the rank in it."""

PREFIX = "oddrank:"
"""Begins the names of the sections; the guard reads them, too (csrc/run/record_watch.cpp)."""
_MORE = "+"
_ROOM = 32 - len(PREFIX)  # bytes
_LONGEST = 200  # characters
_LATE_SECONDS = 30.0  # a rank that waits for another one learns of its deadline so much later


@dataclass(frozen=True)
class Pause:
    """One process waits on purpose, for `seconds` at most, since a Unix time (None: unknown).

    what: the place of the breakpoint, or the awaited rank.
    """

    kind: Kind
    seconds: float
    what: str
    since: float | None = None

    def is_over(self, now: float | None) -> bool:
        """Returns whether its deadline has passed; now: Unix time, None: unknown."""
        if now is None or self.since is None:
            return False
        return now - self.since > self.seconds + _LATE_SECONDS

    def __str__(self) -> str:
        """Returns the rank's action, as the end of a sentence with one rank as its subject."""
        if self.kind == "breakpoint":
            return f"stands in a breakpoint ({self.what})"
        return f"waits for rank {self.what}, which stands in a breakpoint"


class Paused:
    """Notes a pause in this process's record, from begin() to end(). A context manager.

    Any thread may call them; a second call of either does nothing. close() ends it for good.
    """

    def __init__(self, kind: Kind, seconds: float, what: str) -> None:
        section = _native.core().section
        self._sections = [section(name) for name in _names(f"{kind} {seconds:.6g} {what}")]
        self._is_open = self._is_closed = False
        self._lock = threading.Lock()

    def begin(self) -> None:
        with self._lock:
            if not self._is_open and not self._is_closed:
                self._is_open = True
                for section in self._sections:
                    section.__enter__()

    def end(self) -> None:
        with self._lock:
            self._end()

    def close(self) -> None:
        """Ends the pause: a begin() of another thread that comes later does nothing."""
        with self._lock:
            self._is_closed = True
            self._end()

    def _end(self) -> None:
        if self._is_open:
            self._is_open = False
            # The first one makes it a pause.
            for section in reversed(self._sections):
                section.__exit__(None, None, None)

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, *error: object) -> None:
        self.end()


def _names(text: str) -> Iterator[str]:
    """Yields the sections' names for a text, none longer than a section keeps."""
    if len(text) > _LONGEST:
        text = text[: _LONGEST - 3] + "..."
    piece = ""
    for one in text.encode(errors="replace").decode():
        if len((piece + one).encode()) > _ROOM:
            yield PREFIX + piece
            piece = _MORE
        piece += one
    yield PREFIX + piece


def parted(sections: Iterable[tuple[str, Any, int | None]]) -> tuple[list[str], Pause | None]:
    """Returns the names of a record's open sections that are the user's, and the last pause.

    sections: (name, thread, begin in ns of Unix time), in the order in which they began. Sections
    of several threads may alternate.
    """
    names: list[str] = []
    texts: list[tuple[str, int | None]] = []
    last: dict[Any, int] = {}  # thread -> index of its last text
    for name, thread, begin in sections:
        piece = name.removeprefix(PREFIX)
        if piece == name:
            names.append(name)
        elif not piece.startswith(_MORE):
            last[thread] = len(texts)
            texts.append((piece, begin))
        elif (index := last.get(thread)) is not None:
            text, since = texts[index]
            texts[index] = text + piece.removeprefix(_MORE), since
    found = [one for text, begin in texts if (one := _parsed(text, begin)) is not None]
    return names, found[-1] if found else None


def _parsed(text: str, begin: int | None) -> Pause | None:
    """Returns the pause that a text notes; None if it notes none: a file may hold anything."""
    kind, _, rest = text.partition(" ")
    seconds, _, what = rest.partition(" ")
    known = next((one for one in get_args(Kind) if one == kind), None)
    with suppress(ValueError):
        if known and 0 < (limit := float(seconds)) < math.inf:
            return Pause(known, limit, what, None if begin is None else begin / 1e9)
    return None
