"""Merges logs by time."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from oddrank import _native
from oddrank.logs import sources
from oddrank.logs.sources import Source
from oddrank.render import safe
from oddrank.triage.facts import Process


def merge(logs: Sequence[Source], fd: int, *, strip: bool, clean: bool) -> dict[str, Any]:
    """Writes all lines to a descriptor by time, each behind who wrote it; returns the data."""

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
