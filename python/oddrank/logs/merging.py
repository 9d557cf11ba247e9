"""Merges logs by time, with the offsets of their hosts' clocks that a user gives."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from oddrank import _native
from oddrank.errors import OddrankError
from oddrank.logs import sources
from oddrank.logs.sources import Source
from oddrank.render import safe
from oddrank.triage.facts import Process

_MOST_OFFSET = 1e9
_MOST_NAMES = 8


def given(texts: Iterable[str]) -> dict[str, float]:
    """Returns the seconds of host=seconds options; OddrankError for other texts."""
    found = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        try:
            seconds = float(value)
        except ValueError:
            seconds = _MOST_OFFSET
        if not equals or not name or not abs(seconds) < _MOST_OFFSET:
            raise OddrankError(f"--offset {text[:60]!r} is not like node7=-1.5")
        found[name] = seconds
    return found


def check_names(logs: Sequence[Source], offsets: Iterable[str]) -> None:
    """Raises OddrankError for an offset of a host or file that the logs don't know."""
    known = {name for source in logs for name in _names(source)}
    hosts = {host for source in logs for host in source.hosts}
    for who in offsets:
        if who not in known and who not in hosts:
            names = sorted(hosts) or [os.path.basename(source.item.name) for source in logs]
            more = ", ..." if len(names) > _MOST_NAMES else ""
            raise OddrankError(
                f"--offset {who[:60]!r}: no log is of this host or has this name; there are"
                f" {', '.join(names[:_MOST_NAMES])}{more}"
            )


def _names(source: Source) -> tuple[str, ...]:
    """Returns the names under which an offset may be given to a file: n2 for n2.log, too."""
    base = os.path.basename(source.item.name)
    return source.item.name, base, os.path.splitext(base)[0], base.partition(".")[0]


def merge(
    logs: Sequence[Source], offsets: Mapping[str, float], fd: int, *, strip: bool, clean: bool
) -> dict[str, Any]:
    """Writes all lines to a descriptor by time, each behind who wrote it; returns the data."""
    used: set[str] = set()

    def label(number: int, writer: tuple[Any, ...]) -> tuple[str, int]:
        source = logs[number]
        process = source.process(writer)
        who = next((who for who in (process.host, *_names(source)) if who in offsets), None)
        seconds = 0.0
        if who is not None:
            used.add(who)
            seconds = offsets[who]
        says_it = writer[0] is not None and not strip
        return "" if says_it else _label(source, process), round(seconds * 1e9)

    paths = [(os.fsencode(source.item.path), source.item.written_ns) for source in logs]
    counts = _native.core().merge_logs(paths, fd, strip, clean, bool(offsets), label)
    return {
        "files": [source.item.name for source in logs],
        **{key: counts[key] for key in ("lines", "untimed", "late")},
        "without_times": [logs[number].item.name for number in counts["without_times"]],
        "offsets": [
            {"of": who, "seconds": seconds, "used": who in used} for who, seconds in offsets.items()
        ],
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
    found += [
        f"no line is by {o['of']}: its offset was not used"
        for o in data["offsets"] if o["seconds"] and not o["used"]
    ]  # fmt: skip
    return found
