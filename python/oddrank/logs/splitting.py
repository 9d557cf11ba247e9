"""Splits logs into one file a rank. Every byte goes to one file; the C++ core does the work."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from oddrank import _native
from oddrank.errors import OddrankError
from oddrank.logs import sources
from oddrank.logs.sources import Source
from oddrank.triage.facts import Process

_CHUNK = 1 << 17  # what was read stays in a core's cache while it is cut


def split(logs: Iterable[Source], folder: Path, *, strip: bool) -> dict[str, Any]:
    """Splits logs into files of a folder, rank3.log, no-rank.log, ...; returns the data."""
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
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(os.scandir(path)):
            raise OddrankError(f"{folder} is not empty: give -o a new folder")
    except OSError as error:
        text = f"cannot write to {folder}: {error.strerror}; give -o a folder"
        raise OddrankError(text) from None
    return path
