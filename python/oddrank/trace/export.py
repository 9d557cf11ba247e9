"""All ranks of a job as one Chrome trace (Trace Event Format), for Perfetto or chrome://tracing.

Each rank is a process, on one clock: ticks are told as wall-clock time by the pictures of the
clocks in each record. Ranks of one host fit within microseconds, those of two as well as their
clocks do.

The text is made in C++, a MiB at a time, while the MiB before it is compressed here.
"""

import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from oddrank import __version__, _native
from oddrank.errors import OddrankError

# What a process is called in the picture where two hosts have used one pid. No pid is so large.
_FIRST_OWN_ID = 10_000_000
_GZIP = 31  # zlib's window bits for a gzip header


@dataclass(frozen=True)
class Exported:
    """What has been written."""

    ranks: int
    """Processes, children too."""
    events: int
    bytes: int
    notes: tuple[str, ...]
    """A line for each record, or part of one, that is not in it."""


def export(files: Sequence[Path], target: Path, *, lines: bool = False, level: int = 1) -> Exported:
    """Writes the records to `target`, whole or not at all; compressed if its name ends in .gz.

    lines: each line as an instant event. level: zlib's, 1 is fastest.
    OddrankError where no record can be read, or `target` can't be written.
    """
    if target.exists() and not target.is_file():
        raise OddrankError(f"cannot write {target}: it is no regular file, name another one")
    notes: list[str] = []
    facts = _facts(files, notes)
    if not facts:
        raise OddrankError(f"none of {len(files)} files is a record that can be read: {notes[0]}")
    half = target.with_name(f".{target.name}.{os.urandom(6).hex()}")
    try:
        with open(half, "xb") as file:
            packed = _Packed(file, level if target.suffix == ".gz" else None)
            ranks, events = _write(packed, facts, lines, notes)
        os.replace(half, target)
    except OSError as error:
        raise OddrankError(
            f"cannot write {target} ({error.strerror}): name a file in a folder that you can write"
        ) from None
    finally:
        half.unlink(missing_ok=True)
    return Exported(ranks, events, target.stat().st_size, tuple(notes))


def _chunks(make: Callable[[], bytes]) -> Iterator[bytes]:
    """What `make` returns until it is empty; the next one is made while the caller works on one."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        coming = pool.submit(make)
        while chunk := coming.result():
            coming = pool.submit(make)
            yield chunk


def _facts(files: Sequence[Path], notes: list[str]) -> list[tuple[Path, dict[str, Any]]]:
    """Of each record that can be read. Each is closed again: there may be thousands."""
    found = []
    for file in files:
        try:
            found.append((file, _native.core().TraceExport(str(file)).facts))
        except OddrankError as error:
            notes.append(str(error))
    return found


def _write(
    packed: "_Packed", facts: Sequence[tuple[Path, dict[str, Any]]], lines: bool, notes: list[str]
) -> tuple[int, int]:
    origin = min((f["begin_ns"] for _, f in facts if f["begin_ns"] is not None), default=0)
    pids = [f["pid"] for _, f in facts]
    own_ids = len(set(pids)) < len(pids)
    packed.write(_head(origin, facts))
    ranks = events = 0
    for i, (file, fact) in enumerate(facts):
        process_id = _FIRST_OWN_ID + i if own_ids else fact["pid"]
        ticks = fact["ticks_per_ns"] or _ticks_elsewhere(fact, facts)
        try:
            record = _native.core().TraceExport(str(file))
            if not record.start(process_id, origin, ticks, lines):
                notes.append(f"{file} is left out: its clock can only be read on its own host")
                continue
            for chunk in _chunks(record.chunk):
                packed.write_event_text(chunk)
        except OddrankError as error:  # gone since, or cut while it was read
            notes.append(str(error))
            continue
        if record.trouble:
            notes.append(f"{file} is not whole: {record.trouble}")
        ranks += 1
        events += record.events
    packed.write(b"\n]}\n")
    packed.finish()
    return ranks, events


def _head(origin: int, facts: Sequence[tuple[Path, dict[str, Any]]]) -> bytes:
    about = {
        "tool": f"oddrank {__version__}",
        "world": max(fact["world"] for _, fact in facts),
        "origin_ns": str(origin),  # Unix time of ts 0; as text, since readers would round it
    }
    return f'{{"displayTimeUnit":"ns","otherData":{json.dumps(about)},"traceEvents":['.encode()


def _ticks_elsewhere(fact: dict[str, Any], facts: Sequence[tuple[Path, dict[str, Any]]]) -> float:
    """The rate of the counter as another process of the same boot has seen it; 0: none has."""
    for _, other in facts:
        if other["boot_id"] == fact["boot_id"] and other["ticks_per_ns"]:
            return float(other["ticks_per_ns"])
    return 0.0


class _Packed:
    """Writes bytes as they are (level None) or as gzip does."""

    def __init__(self, file: IO[bytes], level: int | None) -> None:
        self._file = file
        self._packer = None if level is None else zlib.compressobj(level, zlib.DEFLATED, _GZIP)
        self._first = True

    def write(self, data: bytes | memoryview) -> None:
        self._file.write(data if self._packer is None else self._packer.compress(data))

    def write_event_text(self, chunk: bytes) -> None:
        """Each event begins with a comma; the file's first one must not."""
        self.write(memoryview(chunk)[1:] if self._first else chunk)
        self._first = False

    def finish(self) -> None:
        if self._packer is not None:
            self._file.write(self._packer.flush())
