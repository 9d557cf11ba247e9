"""Reads core files: who died of which signal, and by pystack or gdb where it stood.

The notes of a core say pid, signal and program, its stack still holds the environment, so that
also without a tool the rank is known. Tools run with a deadline, without scripts and network.
"""

import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from oddrank.inputs import HEAD, Item, Notes
from oddrank.triage.evidence import Kind, stacks
from oddrank.triage.facts import Death, Fact, Frame, Identity, Process, Source, Stack

_SECONDS = 60.0
_MOST, _MOST_NOTES, _MOST_TEXT = 16, 64 << 20, 64 << 20
_LOAD, _NOTE = 1, 4
_PRSTATUS, _PRPSINFO, _AUXV, _FILE = 1, 3, 6, 0x46494C45
_EXECFN = 31  # where the kernel put the program's name, right behind the environment
_ENVIRONMENT = 256 << 10
_RANKS = (b"RANK", b"OMPI_COMM_WORLD_RANK", b"PMI_RANK", b"SLURM_PROCID")
# Signals by which the program itself died. Others are of debuggers, which take cores of the living.
_FATAL = frozenset({signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV})
_GDB = ("-nx", "-batch", "-iex", "set auto-load off", "-iex", "set debuginfod enabled off",
        "-ex", "thread apply all bt")  # fmt: skip


@dataclass
class _Core:
    """Content of the notes of a core."""

    pid: int | None = None
    thread: int | None = None  # that died
    signal: int = 0
    program: str = ""
    rank: int | None = None
    host: str | None = None


def _sniff(item: Item) -> bool:
    """Whether a file is an ELF file of 64 bits, with the lowest byte first, of the kind core."""
    return item.head.startswith(b"\x7fELF\x02\x01") and item.head[16:18] == b"\x04\x00"


def _read(items: Sequence[Item], notes: Notes) -> Iterable[Fact]:
    for item in items[:_MOST]:
        core = _Core()
        try:
            with item.path.open("rb") as file:
                core = _parsed(file)
        except (OSError, struct.error, ValueError, OverflowError) as error:
            notes.add(item, f"no core that can be read: {error}")
            continue
        yield from _facts(item, core, notes)
    for item in items[_MOST:]:
        notes.add(item, f"left out: more than {_MOST} cores")


def _facts(item: Item, core: _Core, notes: Notes) -> Iterator[Fact]:
    process = Process(core.rank, core.host, core.pid)
    if core.rank is not None:
        yield Identity(process, Source(item.name))
    found = _stacks(item, core, notes)
    if core.signal not in _FATAL:
        yield from found
        return
    if core.signal == signal.SIGABRT:
        # Mostly a watchdog's: it shows where the process was stuck.
        yield from (
            replace(s, threads=tuple(replace(t, timed_out=True) for t in s.threads)) for s in found
        )
    own = next((s for s in found if any(t.id in (core.thread, None) for t in s.threads)), None)
    frames = own.frames if own else ()
    python = tuple(frame for frame in frames if not frame.native)
    yield Death(
        process, "signal", Source(item.name), signal=core.signal, site=_named(python or frames)
    )


def _named(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Returns frames from the first one that has a name on."""
    first = next((i for i, f in enumerate(frames) if f.function.strip("?")), len(frames))
    return frames[first:]


def _parsed(file: BinaryIO) -> _Core:
    core, segments = _Core(), []
    file.seek(0, 2)
    size = file.tell()
    header = _at(file, 0, 64)
    (offset,) = struct.unpack_from("<Q", header, 32)
    width, count = struct.unpack_from("<HH", header, 54)
    if width < 56:
        raise ValueError("its table of segments is broken")
    table = _at(file, offset, width * count)
    execfn = 0
    for at in range(0, len(table) - 55, width):
        kind, _, start, address, _, length, _, _ = struct.unpack_from("<IIQQQQQQ", table, at)
        if kind == _LOAD:
            segments.append((start, address, length))
        elif kind == _NOTE and start < size:
            execfn = _notes(_at(file, start, min(length, _MOST_NOTES)), core) or execfn
    for start, address, length in segments:
        if address <= execfn < address + length:
            before = min(execfn - address, _ENVIRONMENT)
            _environment(_at(file, start + execfn - address - before, before), core)
    return core


def _at(file: BinaryIO, offset: int, size: int) -> bytes:
    file.seek(offset)
    return file.read(size)


def _notes(text: bytes, core: _Core) -> int:
    """Takes what a segment of notes says. Returns the address of the program's name."""
    at = execfn = 0
    while at + 12 <= len(text):
        name, size, kind = struct.unpack_from("<III", text, at)
        begin = at + 12 + (name + 3 & ~3)
        body = text[begin : begin + size]
        at = begin + (size + 3 & ~3)
        if kind == _PRSTATUS and core.thread is None and len(body) >= 36:
            core.signal = struct.unpack_from("<h", body, 12)[0]  # the thread that died comes first
            core.thread = struct.unpack_from("<i", body, 32)[0]
        elif kind == _PRPSINFO and len(body) >= 28:
            core.pid = struct.unpack_from("<i", body, 24)[0]
        elif kind == _AUXV:
            pairs = struct.iter_unpack("<QQ", body[: len(body) & ~15])
            execfn = next((value for key, value in pairs if key == _EXECFN), execfn)
        elif kind == _FILE and len(body) >= 16 and not core.program:
            (count,) = struct.unpack_from("<Q", body)
            names = body[16 + 24 * min(count, len(body)) :]
            core.program = names.partition(b"\0")[0].decode(errors="replace")
    return execfn


def _environment(text: bytes, core: _Core) -> None:
    for name in _RANKS:
        if found := re.search(rb"\0" + name + rb"=(\d{1,7})\0", text):
            core.rank = int(found[1])
            break
    if found := re.search(rb"\0HOSTNAME=([\w.-]{1,255})\0", text):
        core.host = found[1].decode()


def _stacks(item: Item, core: _Core, notes: Notes) -> list[Stack]:
    """Returns the stacks that pystack shows, else gdb."""
    beside = str(Path(sys.executable).parent)
    pystack = shutil.which("pystack", path=beside) or shutil.which("pystack")
    gdb = shutil.which("gdb")
    program = [core.program] if core.program and Path(core.program).is_file() else []
    commands = [[pystack, "core", "--native", str(item.path)]] if pystack else []
    if gdb:
        commands.append([gdb, *_GDB, *(program or ["-c"]), str(item.path)])
    if not commands:
        notes.add(item, "its stacks take pystack (pip install pystack) or gdb")
    for command in commands:
        text = _output(command)
        found = _read_text(item, text, notes)
        if any(frame.function.strip("?") for stack in found for frame in stack.frames):
            return found
    if commands:
        notes.add(item, f"{Path(commands[-1][0]).name} shows no stack of it")
    return []


def _output(command: Sequence[str]) -> bytes:
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False
        )
        return done.stdout[:_MOST_TEXT]
    return b""


def _read_text(item: Item, text: bytes, notes: Notes) -> list[Stack]:
    try:
        folder = tempfile.TemporaryDirectory(prefix="oddrank-core-")
    except OSError as error:
        notes.add(item, f"its stacks were not read: {error.strerror}", lost=True)
        return []
    with folder as name:
        path = Path(name, "stacks.txt")
        path.write_bytes(text)
        shown = Item(item.name, path, len(text), text[:HEAD])
        return [fact for fact in stacks.KIND.read([shown], notes) if isinstance(fact, Stack)]


KIND = Kind("core files", binary=True, sniff=_sniff, read=_read)
