"""Finds ranks that stopped talking while others went on, each measured by its own rhythm."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from oddrank import _native
from oddrank.logs import sources
from oddrank.logs.sources import Source
from oddrank.triage.facts import Process

_LEAST_LINES = 8
# Silence counts from so many times the longest pause before, and the usual one (95 of 100).
_LONGEST, _USUAL = 2.0, 3.0
# Clocks of hosts that keep time are this close, in seconds.
_CLOCKS = 1.0
# Ranks that spoke only at the start have no rhythm: most programs print from rank 0 alone.
_LEAST_SPAN = 0.2

Unit = Literal["s", "lines"]


@dataclass(frozen=True)
class Voice:
    """How one rank speaks. Lengths are in seconds, or in lines of the log.

    last: its last line, from the first line of the log. usual: 95 of 100 pauses are not longer.
    """

    process: Process
    file: str
    lines: int
    last_line: int
    last: float
    silent: float
    span: float
    usual: float
    longest: float

    @property
    def has_rhythm(self) -> bool:
        return self.lines >= _LEAST_LINES and self.span >= _LEAST_SPAN * self.silent

    @property
    def stopped(self) -> bool:
        return self.silent - _CLOCKS > max(_LONGEST * self.longest, _USUAL * self.usual)


@dataclass(frozen=True)
class Silence:
    """Ranks that stopped while others went on. most: they are not the fewer ones."""

    voices: tuple[Voice, ...]
    others: tuple[Voice, ...]
    unit: Unit
    most: bool


class Listener:
    """Listens to one log, whole or while it grows."""

    def __init__(self, source: Source, *, live: bool = False) -> None:
        self.source = source
        self._core = _native.core().LogRhythms(self._number)
        self._numbers: dict[Process, int] = {}
        if not live:
            for chunk in source.chunks():
                self.feed(chunk, 0)
            self._core.finish(source.written_ns)

    def _number(self, writer: tuple[Any, ...]) -> int:
        process = self.source.process(writer)
        if process not in self._numbers:
            self._numbers[process] = self._core.add()
        return self._numbers[process]

    def feed(self, chunk: bytes, arrival_ns: int) -> None:
        self._core.feed(chunk, self.source.written_ns, arrival_ns)

    def rows(self) -> Iterator[tuple[Process, str, tuple[Any, ...]]]:
        for process, row in zip(self._numbers, self._core.all(), strict=True):
            yield process, self.source.item.name, row

    @property
    def lines(self) -> int:
        return int(self._core.lines)


def voices(listeners: Sequence[Listener]) -> tuple[list[Voice], Unit | None]:
    """Returns how each rank speaks, by time, or by lines; None: neither can be compared.

    Lines are a clock only within one log, to which all ranks write. Of several logs, those that
    name no times are left aside, see aside(). A rank's logs count together: the last line of any.
    """
    rows = [found for one in listeners for found in one.rows() if found[0] != Process()]
    talkers = [row for _, _, row in rows if row[0] >= _LEAST_LINES]
    clocked = [row for row in talkers if row[4] is not None]
    if clocked and (len(listeners) > 1 or len(clocked) == len(talkers)):
        timed = [found for found in rows if found[2][4] is not None]
        begin = min(row[3] for _, _, row in timed)
        end = max(row[4] for _, _, row in timed)
        latest = {found[0]: found for found in sorted(timed, key=lambda found: found[2][4])}
        return [_voice(*found, begin, end) for found in latest.values()], "s"
    if len(listeners) == 1:
        end = listeners[0].lines
        return [
            Voice(process, file, lines, last, last, end - last, last - first, usual, longest)
            for process, file, (lines, first, last, _, _, (_, _, usual, longest), _) in rows
        ], "lines"
    return [], None


def aside(listeners: Sequence[Listener], found: Sequence[Voice]) -> Iterator[tuple[str, bool]]:
    """Yields the files that were not compared for want of times, and whether a rank is missing."""
    compared = {voice.process for voice in found}
    for one in listeners:
        untimed = [
            process
            for process, _, row in one.rows()
            if process != Process() and row[0] >= _LEAST_LINES and row[4] is None
        ]
        if untimed:
            yield one.source.item.name, not compared.issuperset(untimed)


def _voice(process: Process, file: str, row: tuple[Any, ...], begin: int, end: int) -> Voice:
    lines, _, last_line, first_ns, last_ns, _, (_, _, usual, longest) = row
    return Voice(
        process, file, lines, last_line, (last_ns - begin) / 1e9, (end - last_ns) / 1e9,
        (last_ns - first_ns) / 1e9, usual / 1e9, longest / 1e9,
    )  # fmt: skip


def judge(found: Sequence[Voice], unit: Unit) -> Silence | None:
    """Returns the ranks that stopped while others went on; None if all did alike."""
    steady = [voice for voice in found if voice.has_rhythm]
    stopped = [voice for voice in steady if voice.stopped]
    others = [voice for voice in steady if not voice.stopped]
    if not stopped or not others:
        return None
    # The others' silence now is what a rank that is well may show.
    usual = median(voice.silent for voice in others)
    stopped = [voice for voice in stopped if voice.silent > _USUAL * usual]
    if not stopped:
        return None
    return Silence(tuple(stopped), tuple(others), unit, len(stopped) >= len(others))


def comparable(found: Sequence[Voice]) -> int:
    """Returns how many ranks speak regularly enough to be compared."""
    return sum(voice.has_rhythm for voice in found)


def data(found: Sequence[Voice], unit: Unit | None, silence: Silence | None) -> dict[str, Any]:
    """Returns the data of the report."""
    named = {voice.process for voice in silence.voices} if silence else set()
    return {
        "unit": unit,
        "ranks": [
            {"name": sources.name(v.process), "rank": v.process.rank, "host": v.process.host,
             "file": v.file, "lines": v.lines, "last_line": v.last_line, "last": v.last,
             "silent": v.silent, "usual": v.usual, "longest": v.longest, "regular": v.has_rhythm,
             "stopped": v.process in named}
            for v in sorted(found, key=lambda v: (-v.silent, sources.sort_key(v.process)))
        ],
    }  # fmt: skip


def rows(data: Mapping[str, Any], most: int) -> Iterator[Sequence[object]]:
    """Yields the rows of the table, the longest silence first. No pauses: too few lines."""
    for rank in data["ranks"][:most]:
        pauses = (f"{rank[key]:.4g}" if rank["regular"] else None for key in ("usual", "longest"))
        yield rank["name"], rank["lines"], rank["last_line"], f"{rank['silent']:.4g}", *pauses
