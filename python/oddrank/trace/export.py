"""Writes all ranks of a job as one Chrome trace (Trace Event Format), for Perfetto.

Each rank is a process of the picture. Ranks of one host share a clock, the processor's counter; all
of their records together map it to wall-clock time. Hosts fit as well as their wall clocks do.

C++ makes the text, a MiB at a time, while Python compresses the MiB before it.
"""

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from oddrank import __version__, _native
from oddrank.errors import OddrankError
from oddrank.report import whole_file
from oddrank.trace import ranks
from oddrank.trace.collectives import OPS
from oddrank.trace.ranks import Clocks, Rank

# Ids of processes in the picture if two hosts use one pid. No pid is so large.
_FIRST_OWN_ID = 10_000_000
_LEVEL = 1  # of compression: the fastest


@dataclass(frozen=True)
class Exported:
    """The result of an export."""

    job: str
    processes: int  # ranks and their children
    earlier: int  # number of records of earlier runs, which are left out
    events: int
    bytes: int
    notes: tuple[str, ...]  # a line for each record, or part of a record, that is missing
    refused: frozenset[Path]  # files that are no records


def export(files: Sequence[Path], target: Path, *, lines: bool = False) -> Exported:
    """Writes the records to `target`, whole or not at all; compressed if its name ends in .gz.

    Dead processes of earlier runs are left out. lines: write each line as an instant event. Raises
    OddrankError if no record can be read and timed, or `target` cannot be written.
    """
    found, refused = ranks.read(files)
    notes = list(refused.values())
    if not found:
        raise _nothing(files, notes)
    names = list(ranks.by_job(found, files[0].parent.name))
    if len(names) > 1:
        raise OddrankError(
            f"these are records of {len(names)} jobs ({', '.join(names)}): name the folder, or the"
            " files, of one"
        )
    sources = ranks.last_run(found)
    with whole_file(target, "name a file in a folder you can write") as file:
        if target.suffix == ".gz":
            with gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as packed:
                written, events = _write(packed, sources, lines, notes)
        else:
            written, events = _write(file, sources, lines, notes)
        if written == 0:
            raise _nothing(files, notes)
    earlier = len(found) - len(sources)
    return Exported(
        names[0], written, earlier, events, target.stat().st_size, tuple(notes), frozenset(refused)
    )


def _nothing(files: Sequence[Path], notes: Sequence[str]) -> OddrankError:
    return OddrankError(f"nothing to export in {len(files)} files: {(*notes, 'no record')[0]}")


def _write(
    file: IO[bytes] | gzip.GzipFile, sources: Sequence[Rank], lines: bool, notes: list[str]
) -> tuple[int, int]:
    origin = min((s.begin_ns for s in sources if s.begin_ns is not None), default=0)
    clocks = _clocks(sources)
    own_ids = len({s.pid for s in sources}) < len(sources)
    about: dict[str, Any] = {
        "tool": f"oddrank {__version__}",
        "world": max((source.world for source in sources), default=0),
        "origin_ns": str(origin),  # Unix time of ts 0; as text, since readers would round it
    }
    head = f'{{"displayTimeUnit":"ns","otherData":{json.dumps(about)},"traceEvents":['
    file.write(head.encode())
    written = events = 0
    is_first = True
    for i, source in enumerate(sources):
        process_id = _FIRST_OWN_ID + i if own_ids else source.pid
        try:
            record = _native.core().TraceExport(source.file)
            if not record.start(process_id, origin, clocks[source.boot], lines, OPS):
                notes.append(f"{source} is left out: its clock can only be read on its own host")
                continue
            for chunk in _chunks(record.chunk):
                file.write(memoryview(chunk)[is_first:])  # each event begins with a comma
                is_first = False
        except OddrankError as error:  # removed since, or cut while it was read
            notes.append(str(error))
            continue
        notes += [f"{source}: {note}" for note in (*source.gaps, record.trouble) if note]
        written += 1
        events += record.events
    file.write(b"\n]}\n")
    return written, events


def _clocks(sources: Sequence[Rank]) -> dict[str, Clocks]:
    """Returns the first and the last reading of each boot's clocks, from any of its records."""
    taken: dict[str, Clocks] = {}
    for source in sources:
        taken.setdefault(source.boot, []).extend(source.clocks)
    return {boot: [min(each), max(each)] if each else [] for boot, each in taken.items()}


def _chunks(make: Callable[[], bytes]) -> Iterator[bytes]:
    """Yields what `make` returns until it is empty. Makes the next while the caller uses one."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        coming = pool.submit(make)
        while chunk := coming.result():
            coming = pool.submit(make)
            yield chunk
