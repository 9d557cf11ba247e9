"""Where a process ran last that is gone: its stack is empty then, its events still tell."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from oddrank import _native
from oddrank.errors import OddrankError
from oddrank.trace.frames import Frame

_MARK, _LINE, _UNWIND = 0, 3, 6
_EVENTS = 128  # of all threads; more would make a look at a thousand ranks slow


def last_place(file: Path, pid: int, *, raised: bool) -> Frame | None:
    """The main thread's last line, or of an exception's way out the first; None: not to be seen."""
    try:
        _, events, _ = _native.core().trace_history(str(file), _EVENTS)
    except OddrankError:  # removed since
        return None
    own = [(kind, Frame(*frame)) for _, tid, kind, frame, _, _ in events if tid == pid]
    return _way_out(own) if raised else _last_line(own)


def _last_line(events: Sequence[tuple[int, Frame]]) -> Frame | None:
    return next((frame for kind, frame in reversed(events) if kind == _LINE), None)


def _way_out(events: Sequence[tuple[int, Frame]]) -> Frame | None:
    """Back from the last frame that an exception left to the first one.

    On its way it may pass lines again: of `with`, except and finally, each above the one before as
    they nest. Where a line goes down the frame went on by itself: what it called before that and
    was left by an exception has been caught.
    """
    place: Frame | None = None
    line = 0
    for kind, frame in _from_last_unwind(events):
        if kind == _UNWIND:
            place, line = frame, 0
        elif kind == _LINE and place and _same_code(frame, place) and (frame.line or 0) > line:
            place = place if line else frame
            line = frame.line or 0
        elif kind != _MARK:
            break
    return place


def _from_last_unwind(events: Sequence[tuple[int, Frame]]) -> Iterable[tuple[int, Frame]]:
    """Backwards; what ran after it was atexit's."""
    ends = [i for i, (kind, _) in enumerate(events) if kind == _UNWIND]
    return reversed(events[: ends[-1] + 1]) if ends else ()


def _same_code(one: Frame, other: Frame) -> bool:
    return (one.function, one.file) == (other.function, other.file)
