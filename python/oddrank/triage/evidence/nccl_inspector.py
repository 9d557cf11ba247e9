"""Reads the JSON lines of NCCL Inspector (v4.0): the last operation that each rank has completed.

It writes completed operations only, and by default only those with GPU timing and of 8 KiB or more:
what is missing proves nothing. So the facts say what a rank has completed at least, and when; they
have no open calls.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from oddrank.inputs import Item, Notes, unix_time
from oddrank.inputs.files import is_text
from oddrank.triage.evidence import Kind
from oddrank.triage.facts import Fact, Group, Identity, Process, Progress, Source

_MARK = b'"inspector_output_format_version"'
_LONGEST = 1 << 20
_TAIL = 1 << 20
_MOST_BROKEN = 3


@dataclass
class _Last:
    """The newest completed operation of a rank of a communicator."""

    process: Process
    rank: int
    size: int
    number: int
    time: float | None
    source: Source


def _sniff(item: Item) -> bool:
    return is_text(item) and _MARK in item.head


def _read(items: Sequence[Item], notes: Notes) -> Iterable[Fact]:
    last: dict[tuple[str, str | None, int | None], _Last] = {}
    for item in items:
        try:
            for line in _lines(item, notes):
                _take(line, last)
        except OSError as error:
            notes.add(item, f"not readable: {error.strerror}")
    yield from _facts(last)


def _lines(item: Item, notes: Notes) -> Iterator[tuple[dict[str, Any], Source]]:
    """Yields the objects of a file: of a large one, of its beginning and its end."""
    broken = 0
    for number, line in _numbered(item):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            broken += bool(line.strip())
            continue
        if isinstance(row, dict):
            yield row, Source(item.name, number)
    if broken > _MOST_BROKEN:  # the first and last line of a part may be cut
        notes.add(item, f"{broken} lines of NCCL Inspector that are no JSON")


def _numbered(item: Item) -> Iterator[tuple[int | None, bytes]]:
    with open(item.path, "rb") as file:
        number = 0
        while file.tell() < _TAIL and (line := file.readline(_LONGEST)):
            number += 1
            yield number, line
        if item.size > file.tell():
            file.seek(max(file.tell(), item.size - _TAIL))
            while line := file.readline(_LONGEST):
                yield None, line


def _take(
    line: tuple[dict[str, Any], Source], last: dict[tuple[str, str | None, int | None], _Last]
) -> None:
    row, source = line
    try:
        header, meta = row["header"], row["metadata"]
        host, pid = str(meta["hostname"]), int(meta["pid"])
        time = unix_time(int(meta["dump_timestamp_us"]) / 1e6)
        number = int(row.get("coll_perf", {}).get("coll_sn", 0))
        new = _Last(
            Process(None, host, pid), int(header["rank"]), int(header["n_ranks"]),
            number, time, source,
        )  # fmt: skip
        key = (str(header["id"]), host, pid)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return
    old = last.get(key)
    if old is not None:
        new.number = max(new.number, old.number)
        if (new.time or 0.0) < (old.time or 0.0):
            new.time, new.source = old.time, old.source
    last[key] = new


def _facts(last: dict[tuple[str, str | None, int | None], _Last]) -> Iterator[Fact]:
    everyone = {each.process for each in last.values()}
    largest = max((each.size for each in last.values()), default=0)
    # The largest communicator is the job's only if no process is outside it.
    whole = {each.process: each.rank for each in last.values() if each.size == largest}
    ranks = whole if len(everyone) <= largest and set(whole) == everyone else {}
    if len(set(ranks.values())) < len(ranks):
        ranks = {}
    for (communicator, _, _), each in last.items():
        process = Process(ranks.get(each.process), each.process.host, each.process.pid)
        if process.rank is not None:
            yield Identity(process, each.source)
        # The name is the communicator's own: torch counts its calls of a group differently.
        group = Group(f"NCCL communicator {communicator}")
        yield Progress(
            process, group, each.source, "nccl", completed=each.number or None, time=each.time
        )


KIND = Kind("NCCL Inspector", binary=False, sniff=_sniff, read=_read)
