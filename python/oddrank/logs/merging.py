"""Merges logs by time, with the offsets of their hosts' clocks: given, or estimated from steps.

Ranks end a step at the same moment, within what a collective takes. So the first lines of one step
on two hosts show how far their clocks are apart: the median over many steps, if they agree.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from oddrank import _native
from oddrank.errors import OddrankError
from oddrank.logs import sources
from oddrank.logs.sources import Source
from oddrank.render import safe
from oddrank.triage.facts import Process

_STEP = re.compile(
    r"(?<![a-z])(step|iter(?:ation)?)(?![a-z])\W{0,12}(\d+)|commId (\w+).*Init COMPLETE",
    re.IGNORECASE,
)
_STEP_WORDS = [("step", 0), ("Step", 0), ("iter", 0), ("Iter", 0), ("Init COMPLETE", 0)]
_LEAST_EVENTS = 8
_MOST_SPREAD = 1.0  # seconds: if steps disagree by more, they are not the same event
_MOST_OFFSET = 1e9
_MOST_NAMES = 8


@dataclass(frozen=True)
class Offset:
    """Seconds to add to the times of a host. events: how many it is estimated from; 0: given.

    to: whose clock it gives, if it is estimated.
    """

    seconds: float
    to: str = ""
    events: int = 0
    spread: float = 0.0


def place(source: Source, process: Process) -> str:
    """Returns whose clock the times of a line are of: its host's, else its file's."""
    return process.host or source.item.name


def given(texts: Iterable[str]) -> dict[str, Offset]:
    """Returns the offsets of host=seconds options; OddrankError for other texts."""
    found = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        try:
            seconds = float(value)
        except ValueError:
            seconds = _MOST_OFFSET
        if not equals or not name or not abs(seconds) < _MOST_OFFSET:
            raise OddrankError(f"--offset {text[:60]!r} is not like node7=-1.5, or auto")
        found[name] = Offset(seconds)
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


def estimate(logs: Sequence[Source]) -> tuple[dict[str, Offset], list[str]]:
    """Returns the offsets of all hosts to the one with most events, and why others have none."""
    events: dict[str, dict[object, float]] = defaultdict(dict)
    for source in logs:
        for key, who, seconds in _events(source):
            times = events[who]
            times[key] = min(seconds, times.get(key, seconds))
    if len(events) < 2:
        return {}, ["clocks are taken as they are: no step was logged by two hosts or files"]
    reference = max(events, key=lambda who: (len(events[who]), who))
    found, notes = {reference: Offset(0.0)}, []
    for who, times in sorted(events.items()):
        apart = [times[key] - t for key, t in events[reference].items() if key in times]
        if who == reference:
            continue
        middle = median(apart) if apart else 0.0
        spread = 1.4826 * median(abs(a - middle) for a in apart) if apart else 0.0
        if len(apart) < _LEAST_EVENTS or spread > _MOST_SPREAD:
            why = f"{len(apart)} common steps, which differ by {spread:.1f} s"
            notes.append(f"the clock of {who} is taken as it is: {why}")
        else:
            found[who] = Offset(-middle, reference, len(apart), spread)
    return found, notes


def _events(source: Source) -> Iterable[tuple[object, str, float]]:
    path = os.fsencode(source.item.path)
    for match in _native.core().scan_lines(path, _STEP_WORDS)["matches"]:
        _, _, text, writer, time, _, _ = match
        step = _STEP.search(text)
        if step and time is not None and time[1] != "boot":
            key = ("commId", step[3]) if step[3] else (step[1].lower()[:4], int(step[2][:18]))
            yield key, place(source, source.process(writer)), time[0] / 1e9


def merge(
    logs: Sequence[Source], offsets: Mapping[str, Offset], fd: int, *, strip: bool, clean: bool
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
            seconds = offsets[who].seconds
        says_it = writer[0] is not None and not strip
        return "" if says_it else _label(source, process), round(seconds * 1e9)

    paths = [(os.fsencode(source.item.path), source.item.written_ns) for source in logs]
    counts = _native.core().merge_logs(paths, fd, strip, clean, bool(offsets), label)
    return {
        "files": [source.item.name for source in logs],
        **{key: counts[key] for key in ("lines", "untimed", "late")},
        "without_times": [logs[number].item.name for number in counts["without_times"]],
        "offsets": [
            {"of": who, "seconds": o.seconds, "events": o.events, "spread": o.spread,
             "to": o.to or None, "used": who in used}
            for who, o in offsets.items()
        ],
    }  # fmt: skip


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
        f"the clock of {o['of']} is {_apart(o['seconds'], o['to'])} ({o['events']} common steps,"
        f" spread {o['spread']:.3f} s)" for o in data["offsets"] if o["events"]
    ]  # fmt: skip
    found += [
        f"no line is by {o['of']}: its offset was not used"
        for o in data["offsets"] if o["seconds"] and not o["used"]
    ]  # fmt: skip
    return found


def _apart(seconds: float, to: str) -> str:
    """Says how far a clock is from another one, and what is done. seconds: to add to its times."""
    far = f"{abs(seconds):.3f} s"
    if seconds < 0:
        return f"{far} ahead of that of {to}; {far} are subtracted"
    return f"{far} behind that of {to}; {far} are added"
