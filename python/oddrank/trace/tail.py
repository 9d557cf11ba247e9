"""The last lines that a process ran, as text: `hh:mm:ss file:line: source`."""

import time
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from oddrank import _native
from oddrank.trace.frames import Frame, short

# format.hpp's kinds but for lines, as they are said.
_KINDS = {
    1: "call",
    2: "resume",
    4: "return from",
    5: "yield from",
    6: "exception leaves",
    7: "throw into",
}
_MARK, _LINE, _GAP = 0, 3, 8


def text(
    file: Path, count: int, *, source: bool = False, microseconds: bool = False
) -> Iterable[str]:
    """The last `count` events and marks of all threads of the process, oldest first.

    source: the lines' text, from files that are still what the process has run; others are marked.
    microseconds: in each line's time.
    OddrankError where `file` is no record.
    """
    process, events, trouble = _native.core().trace_history(str(file), count)
    threads = {event[1] for event in events}
    for nanoseconds, tid, kind, frame, source_hash, mark in events:
        who = "" if len(threads) < 2 or tid == process["pid"] else f"[thread {tid}] "
        said = f"=== {mark}" if kind == _MARK else _event(kind, Frame(*frame))
        if source and kind == _LINE:
            said += f": {_source(Frame(*frame), source_hash)}"
        yield f"{_clock(nanoseconds, microseconds)} {who}{said}"
    if trouble:
        yield f"not readable: {trouble}"


def _event(kind: int, frame: Frame) -> str:
    if kind == _GAP:
        return "--- what ran here before was not recorded"
    where = short(frame.file)
    if kind == _LINE:
        return f"{where}:{'?' if frame.line is None else frame.line}"
    return f"--- {_KINDS.get(kind, f'event {kind}')} {frame.function} ({where})"


def _source(frame: Frame, source_hash: int) -> str:
    lines = _lines(frame.file, source_hash)
    if lines is None:
        return "(the file has changed)" if Path(frame.file).exists() else "(no such file here)"
    known = frame.line is not None and 0 < frame.line <= len(lines)
    return lines[(frame.line or 1) - 1].strip() if known else ""


@lru_cache(maxsize=256)
def _lines(path: str, source_hash: int) -> list[str] | None:
    """The file's lines; None where it is not the one that ran."""
    try:
        if _native.core().trace_source_hash(path) != source_hash or not source_hash:
            return None
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None


def _clock(nanoseconds: int | None, microseconds: bool) -> str:
    if nanoseconds is None:
        return "??:??:??"
    seconds, rest = divmod(nanoseconds, 10**9)
    clock = time.strftime("%H:%M:%S", time.localtime(seconds))
    return f"{clock}.{rest // 1000:06}" if microseconds else clock
