"""Says what the thread of a stack does, by the tables of frames: what it waits for, if anything."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from oddrank.triage import model_frames as kinds
from oddrank.triage.facts import Frame

# A word that names only a package or one file, as `wandb/*` or `code.py`. Users' folders or files
# may have this name, so it counts only where packages are installed, or in the package's own clone
# (wandb/src/wandb/). Longer words, as `torch/distributed/*.py`, count in any folder.
_SHORT = re.compile(r"[^/*]+(?:\*|/\*(?:\.py)?)?")
_PACKAGES = re.compile(
    rf"{re.escape(str(Path(__file__).parents[2]))}/"
    r"|.*/(?:(?:site|dist)-packages|lib(?:64)?/python3[^/]*)/(?:[^/]+\.egg/)?|.*\.whl/"
    r"|.*/([^/]+)/(?:python|src)/(?=\1/)|(?!/)"  # py-spy cuts the folders before a package off
)


@lru_cache(maxsize=1 << 16)
def _marked(file: str) -> str:
    """Returns a path with a NUL where the folder of packages that it lies in ends, if in any."""
    found = _PACKAGES.match(file)
    return f"{file[: found.end()]}\0{file[found.end() :]}" if found else file


def _words(words: Iterable[str]) -> str:
    return "|".join(re.escape(word).replace(r"\*", ".*") for word in words)


def _files(words: str) -> re.Pattern[str]:
    """Returns a pattern to search in marked paths."""
    # The places of Python's own frozen modules hold a space.
    joined = re.findall(r"<[^>]*>|\S+", words)
    short = [word for word in joined if _SHORT.fullmatch(word)]
    longer = [word for word in joined if word not in short]
    kinds = {r"\0": short, r"[/\0]": longer}
    places = [f"{before}(?:{_words(some)})" for before, some in kinds.items() if some]
    return re.compile(f"(?:{'|'.join(places)})$")


def _functions(words: str) -> re.Pattern[str]:
    return re.compile(_words(words.split()))


_OPS = _functions(kinds.C10D_OPS)
_WAITS = frozenset({"wait", "get", "acquire", "poll", "select", "join", "result", "sleep", "put"})
_INSTALLED = re.compile(r"^.*/(?:(?:site|dist)-packages|lib(?:64)?/python3\.\d+)/")
MAY_WAIT = _functions(kinds.MAYBE_WAITS)
_TEMPLATE = re.compile(r"<[^<>]*>")


# The tables are compiled when the first stack is judged: that takes longer than to read a log.
@cache
def _rows(table: str) -> tuple[tuple[str, re.Pattern[str], re.Pattern[str]], ...]:
    rows: tuple[tuple[str, str, str], ...] = getattr(kinds, table)
    return tuple((what, _files(files), _functions(names)) for what, files, names in rows)


@cache
def _patterns(table: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    rows: tuple[tuple[str, str | tuple[str, ...]], ...] = getattr(kinds, table)
    return tuple((what, re.compile(t if isinstance(t, str) else "|".join(t))) for what, t in rows)


def _row(table: str, frame: Frame) -> str:
    """Returns what the first row of a table says of a frame of Python; "" if none fits."""
    function = bare(frame)
    return next((
        what for what, file, known in _rows(table)
        if known.fullmatch(function) and file.search(_marked(frame.file))
    ), "")  # fmt: skip


_MOST_WRAPPERS = 4
KERNEL = "kernel"  # in the place of a file, of the kernel's functions


@dataclass(frozen=True, slots=True)
class Leaf:
    """The activity of a thread, as its stack shows it.

    kind: peers, data, gpu, disk, file-lock, lock, pipe, child, network, running, threads, leaving,
    or "" if unknown. frame: the innermost frame that a user would name. op: the operation, of
    peers. cut: how many innermost frames lie inside libraries, of which a tree shows only the
    outermost.
    """

    kind: str
    frame: Frame | None
    op: str = ""
    cut: int = 0
    by_name: bool = False
    """Only the name of the user's function says its kind: nothing in it reads or writes."""


@lru_cache(maxsize=1 << 16)
def kind_of(frame: Frame) -> str:
    """Returns the class of a frame by the tables; "" if it is in none."""
    function = bare(frame)
    if not frame.file and not frame.native:  # of a list of functions alone
        return kinds.PEERS if _OPS.fullmatch(function) else kinds.LOCK if function in _WAITS else ""
    if frame.native:
        if frame.file.startswith("libcuda.so"):
            return kinds.GPU
        plain = _plain(frame.function)
        return next((kind for kind, known in _patterns("NATIVE") if known.search(plain)), "")
    return _row("PYTHON", frame)


def is_own(frame: Frame) -> bool:
    """Returns whether a frame is of the user's own code: of no library, and in no table."""
    library = frame.native or frame.file.startswith("<") or _INSTALLED.match(frame.file)
    return not library and not kind_of(frame)


def kernel_class(state: str) -> str:
    """Returns what a thread in a function of the kernel waits for; "" if unknown."""
    function = state.removeprefix("asleep in ")  # as oddrank.trace.ranks writes it
    return next((kind for kind, known in _patterns("KERNEL") if known.match(function)), "")


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


def text(frame: Frame) -> str:
    """Returns a frame as a line can hold it: _try_get_data (torch/utils/data/dataloader.py:1)."""
    line = "" if frame.line is None else f":{frame.line}"
    file = _INSTALLED.sub("", frame.file)
    return f"{short(frame)} ({file}{line})" if file else short(frame)


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
        if kind == kinds.THROUGH or (not kind and frame.native):
            continue
        if not kind:
            user = user or frame
            context = _row("CONTEXTS", frame)
            if context and waits in ("", kinds.LOCK):
                return Leaf(context, user, cut=frames.index(user), by_name=True)
            continue
        if user is None and kind in (kinds.LOCK, kinds.FILE_LOCK, kinds.NETWORK, kinds.THREADS):
            if not waits or kind == kinds.THREADS or (kind == waits and frame.native):
                waits, waits_at = kind, frame
            continue
        if user is None:
            if kind == kinds.PEERS:
                cut = _cut(frames, i)
                return Leaf(kind, frames[cut], _op(frames[: cut + 1]), cut)
            cut = _named(frames, i, kind)
            return Leaf(kind, frames[cut], cut=cut)
        if kind in (kinds.DATA, kinds.DISK):
            return Leaf(waits if waits == kinds.NETWORK else kind, user, cut=frames.index(user))
    if waits:
        return Leaf(waits, user or waits_at, cut=frames.index(waits_at) if waits_at else 0)
    return Leaf("", user or (frames[0] if frames else None))


def _cut(frames: Sequence[Frame], first: int) -> int:
    """Returns the outermost frame of the communication that begins at `first`."""
    last = first
    for i in range(first + 1, len(frames)):
        found = kind_of(frames[i])
        if found == kinds.PEERS:
            # Further out it is another call, from whose hook this one comes.
            if not frames[last].native and i - last > _MOST_WRAPPERS:
                break
            last = i
        elif found != kinds.THROUGH and not (frames[i].native and not found):
            break
    return last


def _named(frames: Sequence[Frame], first: int, kind: str) -> int:
    """Returns the frame to name: the innermost of its class, Python's before a native one."""
    for i in range(first, len(frames)):
        found = kind_of(frames[i])
        if found == kind and not frames[i].native:
            return i
        if found not in (kind, kinds.THROUGH) and not frames[i].native:
            break
    return first


def _op(block: Sequence[Frame]) -> str:
    """Returns the operation that a block of communication frames, innermost first, is about."""
    calls = (f for f in block if not f.native and kind_of(f) == kinds.PEERS)
    names = [name.lstrip("_") for name in map(bare, calls) if _OPS.fullmatch(name)]
    if names:
        name = "init_process_group" if "init_process_group" in names else names[0]
        return name if name != "store_based_barrier" else "barrier"
    for frame in reversed(block):
        if kind_of(frame) == kinds.PEERS:
            for op, pattern in _patterns("NATIVE_OPS"):
                if pattern.search(_plain(frame.function)):
                    return op
    return ""


@lru_cache(maxsize=1 << 14)
def is_helper(name: str, frames: tuple[Frame, ...]) -> bool:
    """Whether a thread runs beside training and waits for work: no evidence."""
    if not frames:
        return True
    if kinds.HELPER_NAMES.search(name) and kind_of(frames[0]) not in (kinds.PEERS,):
        return True
    for i, frame in enumerate(frames):
        if frame.native:
            if kinds.HELPER_NATIVE.search(frame.function):
                return True
            continue
        if _row("HELPER_FRAMES", frame):
            # A pool's thread is a helper only while it waits for work.
            return bare(frame) != "_worker" or all(
                kind_of(f) == kinds.LOCK or f.native for f in frames[:i]
            )
    return False


@lru_cache(maxsize=1 << 14)
def no_rank(frames: tuple[Frame, ...]) -> str:
    """Returns what a process with this stack is, if it is no rank: dataloader worker, launcher."""
    told = (_row("NO_RANKS", frame) for frame in frames if not frame.native)
    return next(filter(None, told), "")


def wants_gil(frames: Sequence[Frame]) -> bool:
    """Whether a thread waits for the GIL, by its native frames."""
    for frame in frames:
        if not frame.native:
            return False
        if kinds.WANTS_GIL.search(frame.function):
            return True
    return False
