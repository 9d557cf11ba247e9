"""All ranks of a job as one Chrome trace (Trace Event Format), for Perfetto or chrome://tracing.

Each rank is a process of the picture. The ranks of one host share one clock, its counter of ticks,
told as wall-clock time by all of their records together; two hosts fit as well as their wall clocks
do.

The text is made in C++, a MiB at a time, while the MiB before it is compressed here.
"""

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from oddrank import __version__, _native, finding
from oddrank.errors import OddrankError
from oddrank.trace import processes
from oddrank.trace.processes import Process

# What a process is called in the picture where two hosts have used one pid. No pid is so large.
_FIRST_OWN_ID = 10_000_000
_GZIP = 31  # zlib's window bits for a gzip header

Clocks = list[tuple[int, int]]


@dataclass(frozen=True)
class Exported:
    """What has been written."""

    job: str
    processes: int
    """Ranks and their children."""
    earlier: int
    """Records of earlier runs, which are left out."""
    events: int
    bytes: int
    notes: tuple[str, ...]
    """A line for each record, or part of one, that is not in it."""


@dataclass(frozen=True)
class _Source(Process):
    """A record that can be read."""

    file: Path
    boot: str
    """What has one counter of ticks: a boot of a host."""
    begin: int | None
    """When it was armed: wall clock, in ns."""
    clocks: Clocks
    """(Ticks, wall clock in ns) of some moments."""
    notes: tuple[str, ...]

    def __str__(self) -> str:
        return f"rank {self.rank} (pid {self.pid})"


def export(
    files: Sequence[Path],
    target: Path,
    *,
    lines: bool = False,
    all_runs: bool = False,
    level: int = 1,
) -> Exported:
    """Writes the records to `target`, whole or not at all; compressed if its name ends in .gz.

    lines: each line as an instant event. all_runs: also the dead of a job's earlier runs.
    level: zlib's, 1 is fastest.
    OddrankError where no record can be read and told in time, or `target` can't be written.
    """
    notes: list[str] = []
    found = list(_sources(files, notes))
    if not found:
        raise _nothing(files, notes)
    job = processes.only_job(found, files[0].parent.name)
    sources = found if all_runs else processes.last_run(found)
    with finding.whole_file(target, "name a file in a folder you can write") as file:
        packed = _Packed(file, level if target.suffix == ".gz" else None)
        written, events = _write(packed, sources, lines, notes)
        if written == 0:
            raise _nothing(files, notes)
    earlier = len(found) - len(sources)
    return Exported(job, written, earlier, events, target.stat().st_size, tuple(notes))


def _nothing(files: Sequence[Path], notes: Sequence[str]) -> OddrankError:
    return OddrankError(f"nothing to export in {len(files)} files: {(*notes, 'no record')[0]}")


def _sources(files: Sequence[Path], notes: list[str]) -> Iterator[_Source]:
    """Each file is closed again: there may be thousands."""
    for file in files:
        try:
            facts = _native.core().TraceExport(str(file)).facts
        except OddrankError as error:
            notes.append(str(error))
            continue
        yield _Source(
            **processes.identity(facts),
            file=file,
            boot=facts["boot_id"] or str(file),
            begin=facts["begin_ns"],
            clocks=facts["clocks"],
            notes=tuple(processes.lacks(facts)),
        )


def _write(
    packed: "_Packed", sources: Sequence[_Source], lines: bool, notes: list[str]
) -> tuple[int, int]:
    origin = min((s.begin for s in sources if s.begin is not None), default=0)
    clocks = _clocks(sources)
    own_ids = len({s.pid for s in sources}) < len(sources)
    packed.write(_head(origin, sources))
    written = events = 0
    for i, source in enumerate(sources):
        process_id = _FIRST_OWN_ID + i if own_ids else source.pid
        try:
            record = _native.core().TraceExport(str(source.file))
            if not record.start(process_id, origin, clocks[source.boot], lines):
                notes.append(f"{source} is left out: its clock can only be read on its own host")
                continue
            for chunk in _chunks(record.chunk):
                packed.write_event_text(chunk)
        except OddrankError as error:  # gone since, or cut while it was read
            notes.append(str(error))
            continue
        notes += [f"{source}: {note}" for note in (*source.notes, record.trouble) if note]
        written += 1
        events += record.events
    packed.write(b"\n]}\n")
    packed.finish()
    return written, events


def _clocks(sources: Sequence[_Source]) -> dict[str, Clocks]:
    """Of each boot the first and the last picture of its clocks, whoever has taken it."""
    taken: dict[str, Clocks] = {}
    for source in sources:
        taken.setdefault(source.boot, []).extend(source.clocks)
    return {boot: [min(each), max(each)] if each else [] for boot, each in taken.items()}


def _chunks(make: Callable[[], bytes]) -> Iterator[bytes]:
    """What `make` returns until it is empty; the next one is made while the caller works on one."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        coming = pool.submit(make)
        while chunk := coming.result():
            coming = pool.submit(make)
            yield chunk


def _head(origin: int, sources: Sequence[_Source]) -> bytes:
    about: dict[str, Any] = {
        "tool": f"oddrank {__version__}",
        "world": max((source.world for source in sources), default=0),
        "origin_ns": str(origin),  # Unix time of ts 0; as text, since readers would round it
    }
    return f'{{"displayTimeUnit":"ns","otherData":{json.dumps(about)},"traceEvents":['.encode()


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
