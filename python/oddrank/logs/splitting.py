"""Splits logs into one file a rank. Every byte goes to one file; the C++ core does the work."""

import os
from pathlib import Path
from typing import Any

from oddrank import _native
from oddrank.errors import OddrankError
from oddrank.logs import sources
from oddrank.logs.sources import Source
from oddrank.triage.facts import Process


class Splitter:
    """Splits logs, one after the other, into files of a folder: rank3.log, no-rank.log, ..."""

    def __init__(self, folder: str, *, strip: bool) -> None:
        self._folder = _empty_folder(folder)
        self._core = _native.core().LogSplitter(str(self._folder), self._number, strip)
        self._source: Source | None = None
        self._numbers: dict[str, int] = {}
        self._processes: list[Process] = []
        self.read = 0

    def _number(self, writer: tuple[Any, ...]) -> int:
        assert self._source is not None
        process = self._source.process(writer)
        name = sources.name(process)
        if name not in self._numbers:
            self._numbers[name] = self._core.add(f"{name}.log")
            self._processes.append(process)
        return self._numbers[name]

    def add(self, source: Source) -> None:
        """Splits a whole log."""
        self._source = source
        for chunk in source.chunks():
            self.read += len(chunk)
            self._core.feed(chunk)
        self._core.finish()

    def data(self) -> dict[str, Any]:
        """Writes what is left in memory; returns what each file has got, ranks first."""
        self._core.flush()
        shares, names = self._core.shares(), list(self._numbers)
        ranks = [process.rank for process in self._processes]
        # Ranks by number, then all others by name.
        order = sorted(range(len(names)), key=lambda i: (ranks[i] is None, ranks[i] or 0, names[i]))
        rows = [
            {"file": f"{names[i]}.log", "rank": ranks[i],
             "host": self._processes[i].host, "lines": shares[i][0], "bytes": shares[i][1]}
            for i in order
        ]  # fmt: skip
        return {"folder": str(self._folder), "files": rows, "bytes": self.read}


def _empty_folder(folder: str) -> Path:
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
