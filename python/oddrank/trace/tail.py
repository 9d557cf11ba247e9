"""Prints the last lines that a process ran: `hh:mm:ss.ssssss file:line: source`."""

import os
import stat
import time
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from oddrank import _native
from oddrank.trace.ranks import Frame, short

# Kind of event -> words, where they differ.
_LARGEST = 4 << 20  # bytes of a source file
_WORDS = {
    "return": "return from",
    "yield": "yield from",
    "unwind": "exception leaves",
    "throw": "throw into",
}


def text(file: Path, count: int, *, source: bool = False) -> Iterable[str]:
    """Yields the last `count` events and marks of all threads of the process, oldest first.

    source: add the text of lines, if the file is still the one that ran. Raises OddrankError if
    `file` is no record.
    """
    process, events, trouble = _native.core().trace_history(str(file), count)
    begin, threads = process["begin_ns"], {event[1] for event in events}
    for nanoseconds, tid, kind, frame, mark in events:
        who = "" if len(threads) < 2 or tid == process["pid"] else f"[thread {tid}] "
        said = f"=== {mark}" if kind == "mark" else _event(kind, Frame(*frame), mark)
        if source and kind == "line":
            line = source_line(frame[1], frame[2], begin)
            known = os.path.isfile(frame[1])
            missing = "(the file has changed)" if known else "(no such file here)"
            said += f": {missing if line is None else line}"
        yield f"{_clock(nanoseconds)} {who}{said}"
    if trouble:
        yield f"not readable: {trouble}"


def _event(kind: str, frame: Frame, level: str) -> str:
    if kind == "gap":
        return "--- earlier events were not recorded"
    where = short(frame.file)
    if kind == "level":
        how = {"off": "not recorded", "where": "recorded in the stack only"}.get(level)
        return f"--- {frame.function} ({where}) is {how or f'recorded by {level}'} from here on"
    if kind == "line":
        return f"{where}:{'?' if frame.line is None else frame.line}"
    return f"--- {_WORDS.get(kind, kind)} {frame.function} ({where})"


def source_line(file: str, line: int | None, begin_ns: int | None) -> str | None:
    """Returns the text of a line; None if its file may have changed since begin_ns, Unix time."""
    lines = _lines(file, begin_ns)
    if lines is None:
        return None
    line = line or 0
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


@lru_cache(maxsize=256)
def _lines(path: str, begin_ns: int | None) -> list[str] | None:
    """Returns the file's lines; None if it may have changed since arm(), or is no source file.
    A copy that keeps the original's other times has a new time of change (ctime)."""
    try:
        status = os.stat(path)
        is_source = stat.S_ISREG(status.st_mode) and status.st_size <= _LARGEST
        if begin_ns is None or status.st_ctime_ns > begin_ns or not is_source:
            return None
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except (OSError, ValueError):
        return None


def _clock(nanoseconds: int | None) -> str:
    if nanoseconds is None:
        return "??:??:??"
    seconds, rest = divmod(nanoseconds, 10**9)
    return f"{time.strftime('%H:%M:%S', time.localtime(seconds))}.{rest // 1000:06}"
