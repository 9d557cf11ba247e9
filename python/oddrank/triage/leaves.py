"""Says what the thread of a stack does, by the tables of frames: what it waits for, if anything."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from oddrank.triage import model_frames
from oddrank.triage.facts import Frame
from oddrank.triage.model_frames import (
    DATA,
    DISK,
    GPU,
    LEAVING,
    LOCK,
    NETWORK,
    PEERS,
    THREADS,
    THROUGH,
)


def _words(words: str, anything: str) -> str:
    return "|".join(re.escape(word).replace(r"\*", anything) for word in words.split())


def _files(words: str) -> re.Pattern[str]:
    # The places of Python's own frozen modules hold a space: they are words joined by it.
    joined = words.replace("<frozen ", "<frozen\0")
    return re.compile(f"(?:^|/)(?:{_words(joined, '.*')})$".replace("\0", " "))


def _functions(words: str) -> re.Pattern[str]:
    return re.compile(_words(words, ".*"))


_PYTHON_ROWS = tuple((kind, _files(f), _functions(names)) for kind, f, names in model_frames.PYTHON)
_NATIVE_ROWS = tuple((kind, re.compile("|".join(names))) for kind, names in model_frames.NATIVE)
_HELPER_ROWS = tuple(
    (_files(files), _functions(names)) for files, names in model_frames.HELPER_FRAMES
)
_NO_RANK_ROWS = tuple(
    (what, _files(f), _functions(names)) for what, f, names in model_frames.NO_RANKS
)
_CONTEXT_ROWS = tuple((kind, _functions(names)) for kind, names in model_frames.CONTEXTS)
_OP_ROWS = tuple((re.compile(pattern, re.I), op) for pattern, op in model_frames.NATIVE_OPS)
_OPS = _functions(model_frames.C10D_OPS)
_WAITS = frozenset({"wait", "get", "acquire", "poll", "select", "join", "result", "sleep", "put"})
_TEMPLATE = re.compile(r"<[^<>]*>")


@dataclass(frozen=True, slots=True)
class Leaf:
    """What a stack says its thread does.

    kind: peers, data, gpu, disk, lock, network, running, threads, leaving, or "" if unknown.
    frame: the innermost frame that a user would name. op: the operation, of peers. cut: how many
    innermost frames lie inside libraries, of which a tree shows only the outermost. called: an
    unknown function of the user's lies inside of what decided.
    """

    kind: str
    frame: Frame | None
    op: str = ""
    cut: int = 0
    called: bool = False


@lru_cache(maxsize=1 << 16)
def kind_of(frame: Frame) -> str:
    """Returns the class of a frame by the tables; "" if it is in none."""
    function = bare(frame)
    if not frame.file and not frame.native:  # of a list of functions alone
        return PEERS if _OPS.fullmatch(function) else LOCK if function in _WAITS else ""
    if frame.native:
        if frame.file.startswith("libcuda.so"):
            return GPU
        plain = _plain(frame.function)
        return next((kind for kind, known in _NATIVE_ROWS if known.search(plain)), "")
    return next(
        (
            kind
            for kind, file, known in _PYTHON_ROWS
            if known.fullmatch(function) and file.search(frame.file)
        ),
        "",
    )


def _plain(function: str) -> str:
    """Returns a function of C++ without template arguments: they name other functions' types."""
    for _ in range(8):
        shorter = _TEMPLATE.sub("", function)
        if shorter == function:
            break
        function = shorter
    return function


def short(frame: Frame) -> str:
    """Returns a function's name as a sentence can hold it."""
    if not frame.native:
        return frame.function
    plain = _plain(frame.function).partition("(")[0] or frame.function
    return plain if len(plain) <= 80 else plain[:77] + "..."


def bare(frame: Frame) -> str:
    """Returns a function's name without its class: __next__ of DataLoader.__next__."""
    return frame.function if frame.native else frame.function.rpartition(".")[2] or frame.function


@lru_cache(maxsize=1 << 14)
def leaf(frames: tuple[Frame, ...]) -> Leaf:
    """Returns what a thread does by its stack, innermost first."""
    waits = ""  # a lock or socket at the bottom: what it is for shows further out
    waits_at: Frame | None = None
    user: Frame | None = None
    for i, frame in enumerate(frames):
        kind = kind_of(frame)
        if kind == THROUGH or (not kind and frame.native):
            continue
        if not kind:
            user = user or frame
            context = next((k for k, known in _CONTEXT_ROWS if known.fullmatch(bare(frame))), "")
            if context and waits in ("", LOCK):
                return Leaf(context, user, cut=i if user is frame else 0, called=user is not frame)
            continue
        if user is None and kind in (LOCK, NETWORK, THREADS):
            if not waits or kind == THREADS or (kind == waits and frame.native):
                waits, waits_at = kind, frame
            continue
        if user is None:
            cut = _cut(frames, i, kind)
            op = _op(frames[: cut + 1]) if kind == PEERS else ""
            place = frames[cut] if kind in (PEERS, LEAVING) else _outermost_name(frames, i, kind)
            return Leaf(kind, place, op, cut)
        if kind in (DATA, DISK):
            return Leaf(waits if waits == NETWORK else kind, user, called=True)
    if waits:
        return Leaf(waits, user or waits_at, cut=frames.index(waits_at) if waits_at else 0)
    return Leaf("", user or (frames[0] if frames else None))


def _cut(frames: Sequence[Frame], first: int, kind: str) -> int:
    """Returns the outermost frame of the block of a library that begins at `first`."""
    last = first
    for i in range(first + 1, len(frames)):
        found = kind_of(frames[i])
        if found == kind:
            if kind == PEERS and not frames[last].native and not _same_call(frames, last, i):
                break
            last = i
        elif found != THROUGH and not (frames[i].native and not found):
            break
    return last


def _same_call(frames: Sequence[Frame], inner: int, outer: int) -> bool:
    """Whether two frames of communication libraries belong to one call of the user's."""
    return outer - inner <= 4


def _outermost_name(frames: Sequence[Frame], first: int, kind: str) -> Frame:
    """Returns the frame to name: the innermost of its class, unless that is a native one."""
    for frame in frames[first:]:
        found = kind_of(frame)
        if found == kind and not frame.native:
            return frame
        if found not in (kind, THROUGH) and not frame.native:
            break
    return frames[first]


def _op(block: Sequence[Frame]) -> str:
    """Returns the operation that a block of communication frames, innermost first, is about."""
    for frame in block:
        if not frame.native and kind_of(frame) == PEERS:
            name = bare(frame)
            if _OPS.fullmatch(name):
                return name.lstrip("_") if name != "_store_based_barrier" else "barrier"
    for frame in reversed(block):
        if kind_of(frame) == PEERS:
            for pattern, op in _OP_ROWS:
                if pattern.search(_plain(frame.function)):
                    return op
    return ""


@lru_cache(maxsize=1 << 14)
def is_helper(name: str, frames: tuple[Frame, ...]) -> bool:
    """Whether a thread runs beside training and waits for work: no evidence."""
    if not frames:
        return True
    if model_frames.HELPER_NAMES.search(name) and kind_of(frames[0]) not in (PEERS,):
        return True
    for i, frame in enumerate(frames):
        if frame.native:
            if model_frames.HELPER_NATIVE.search(frame.function):
                return True
            continue
        for file, function in _HELPER_ROWS:
            if function.fullmatch(bare(frame)) and file.search(frame.file):
                # A pool's thread is a helper only while it waits for work.
                return bare(frame) != "_worker" or all(
                    kind_of(f) == LOCK or f.native for f in frames[:i]
                )
    return False


@lru_cache(maxsize=1 << 14)
def no_rank(frames: tuple[Frame, ...]) -> str:
    """Returns what a process with this stack is, if it is no rank: dataloader worker, launcher."""
    for frame in frames:
        if frame.native:
            continue
        for what, file, function in _NO_RANK_ROWS:
            if function.fullmatch(bare(frame)) and file.search(frame.file):
                return what
    return ""


def wants_gil(frames: Sequence[Frame]) -> bool:
    """Whether a thread waits for the GIL, by its native frames."""
    for frame in frames:
        if not frame.native:
            return False
        if model_frames.WANTS_GIL.search(frame.function):
            return True
    return False
