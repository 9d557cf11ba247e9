"""Writes logs anew: a file a rank, or all lines by time. The C++ core does the work."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from oddrank import _native
from oddrank.errors import OddrankError
from oddrank.logs import sources
from oddrank.logs.sources import Source
from oddrank.render import safe
from oddrank.report import check_writable
from oddrank.triage.facts import Process

_CHUNK = 1 << 17  # what was read stays in a core's cache while it is cut


def split(logs: Iterable[Source], folder: Path, *, strip: bool) -> dict[str, Any]:
    """Splits logs into files of a folder, rank3.log, no-rank.log, ...; returns the data.

    Every byte goes to one file.
    """
    made: dict[str, Process] = {}
    numbers: dict[str, int] = {}
    read = 0

    def number(writer: tuple[Any, ...]) -> int:
        process = source.writers.process(writer)
        name = sources.name(process)
        if name not in made:
            made[name], numbers[name] = process, core.add(f"{name}.log")
        return numbers[name]

    core = _native.core().LogSplitter(str(folder), number, strip)
    for source in logs:
        with open(source.item.path, "rb", buffering=0) as file:
            while chunk := file.read(_CHUNK):
                read += len(chunk)
                core.feed(chunk)
        core.finish()
    core.flush()
    found = zip(made.items(), core.shares(), strict=True)
    rows = [
        {"file": f"{name}.log", "rank": one.rank, "host": one.host, "lines": lines, "bytes": size}
        for (name, one), (lines, size) in found
    ]
    # Ranks by number, then all others by name.
    rows.sort(key=lambda row: (row["rank"] is None, row["rank"] or 0, row["file"][:-4]))
    return {"folder": str(folder), "files": rows, "bytes": read}


def empty_folder(folder: str) -> Path:
    """Makes a folder. OddrankError if it has files."""
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise OddrankError(f"{folder!r} is a file: give -o a new folder")
    check_writable(folder, "give -o a folder you can write", folder=True)
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(os.scandir(path)):
            raise OddrankError(f"{folder} is not empty: give -o a new folder")
    except OSError as error:
        text = f"cannot write to {folder}: {error.strerror}; give -o a folder you can write"
        raise OddrankError(text) from None
    return path


def merge(logs: Sequence[Source], fd: int, *, strip: bool, clean: bool) -> dict[str, Any]:
    """Writes all lines to a descriptor by time, each behind its writer; returns the data."""

    def label(number: int, writer: tuple[Any, ...]) -> str:
        says_it = writer[0] is not None and not strip
        return "" if says_it else _label(logs[number], logs[number].writers.process(writer))

    paths = [(os.fsencode(source.item.path), source.item.written_ns) for source in logs]
    counts = _native.core().merge_logs(paths, fd, strip, clean, label)
    return {
        "files": [source.item.name for source in logs],
        **{key: counts[key] for key in ("lines", "untimed", "late")},
        "without_times": [logs[number].item.name for number in counts["without_times"]],
    }


def _label(source: Source, process: Process) -> str:
    if process.rank is not None:
        rank = f"rank{process.rank}"
        return f"[{safe(process.host)}:{rank}] " if process.host else f"[{rank}]: "
    if process == Process():
        return f"({safe(os.path.basename(source.item.name))}) "
    return f"({sources.name(process)}) "


def notes(data: Mapping[str, Any]) -> list[str]:
    """Returns what the reader of a merged log must know about its order."""
    found = [
        f"no line of {name} names a time: its lines come first" for name in data["without_times"]
    ]
    if data["late"]:
        many = data["late"] > 1
        found.append(
            f"{data['late']} {'lines name' if many else 'line names'} an earlier time than the line"
            f" before {'them' if many else 'it'} in the same file:"
            f" {'they stay behind it' if many else 'it stays behind that one'}"
        )
    return found
