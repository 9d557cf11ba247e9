"""Shows how much ranks record, what it costs, what was lost, and where their time goes.

The cost of an event is not measured in the job. It comes from benchmarks/trace/event_cost.py
(benchmarks/results/trace_event_cost_*.json, an EPYC core): the CPU time per event that recording
adds to a loop of lines and to a recursion. 23-25 ns a line with both hooks (CPython 3.10-3.13),
43-53 ns a call or return with PyEval_SetTrace (3.10, 3.11), 26 ns with sys.monitoring (3.12, 3.13).
Another core may need half or twice that.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oddrank import _native
from oddrank.trace import processes
from oddrank.trace.processes import Lowered, Process, short

# Hook -> ns per line, ns per call or return: see above.
_COSTS = {"settrace": (24.0, 48.0), "monitoring": (25.0, 26.0)}
_TOP = 20
_PER_RECORD = 500  # enough for code that is hot only in the sum of many ranks
_LONGEST = 50  # characters of a name in a table; --json has the whole


@dataclass(frozen=True)
class Code:
    """Times and counts of a function in the windows of one rank, or of all."""

    function: str
    file: str
    line: int | None
    """Its first line."""
    events: int
    calls: int
    seconds: float | None
    """Between call and return; in a recursion, of the outermost call. None without a clock."""
    own: float | None
    """Seconds without those of recorded callees."""


@dataclass(frozen=True)
class RankStats(Process):
    """One process."""

    hook: str
    threads: int
    events: int
    """All events, overwritten ones too, of threads that still have a place in the record."""
    seconds: float | None
    """From arm() to now, or to the last event of a dead process."""
    window_events: int
    window_seconds: float | None
    """Age of the main thread's oldest event."""
    window_lines: int
    marks: int
    collectives: int
    lost: dict[str, int]
    """Numbers of threads, code objects and open collectives for which there was no room."""
    notes: tuple[str, ...]
    """A line for each gap in the record."""
    codes: tuple[Code, ...]
    lowered: tuple[Lowered, ...] = ()
    """Functions that run too often to be recorded as closely as asked for."""

    @property
    def per_second(self) -> float | None:
        return self.events / self.seconds if self.seconds else None

    @property
    def overhead(self) -> float | None:
        """Estimates the share of one core's time that recording takes: see above."""
        costs = _COSTS.get(self.hook)
        if costs is None or not self.window_events or self.per_second is None:
            return None
        lines = self.window_lines / self.window_events
        return self.per_second * (lines * costs[0] + (1 - lines) * costs[1]) * 1e-9

    def as_data(self) -> dict[str, Any]:
        data = asdict(self)
        del data["codes"]
        return {**data, "events_per_second": self.per_second, "overhead": self.overhead}


def read(files: Sequence[Path]) -> tuple[list[RankStats], dict[Path, str]]:
    """Returns the ranks that could be read, and a line for each file that could not."""
    core = _native.core()
    found, refused = processes.read(files, lambda file: core.trace_stats(file, _PER_RECORD))
    return [_rank(facts) for _, facts in found], refused


def hottest(found: Iterable[RankStats], top: int = _TOP) -> list[Code]:
    """Returns the code with the most own time, then the code with the most events, `top` each."""
    sums: dict[tuple[str, str, int | None], Code] = {}
    for rank in found:
        for code in rank.codes:
            key = (code.function, code.file, code.line)
            sums[key] = _sum(sums[key], code) if key in sums else code
    by_time = sorted(sums.values(), key=lambda code: -(code.own or 0.0))[:top]
    by_events = sorted(sums.values(), key=lambda code: -code.events)[:top]
    return [*by_time, *(code for code in by_events if code not in by_time)]


def as_data(found: Sequence[RankStats], hot: Sequence[Code]) -> dict[str, Any]:
    return {
        "ranks": [rank.as_data() for rank in found],
        "hottest": [asdict(code) for code in hot],
    }


def rank_table(found: Sequence[RankStats]) -> tuple[list[str], list[list[object]]]:
    columns = ["rank", "host", "pid", "events", "events/s", "in the record", "window s", "lost",
               "est. overhead"]  # fmt: skip
    rows: list[list[object]] = [
        [
            f"{rank.rank} child" if rank.is_child else rank.rank,
            rank.host,
            rank.pid,
            rank.events,
            _rounded(rank.per_second, 0),
            rank.window_events,
            _rounded(rank.window_seconds, 3),
            sum(rank.lost.values()),
            None if rank.overhead is None else f"{rank.overhead:.2%}",
        ]
        for rank in found
    ]
    return columns, rows


def code_table(codes: Sequence[Code]) -> tuple[list[str], list[list[object]]]:
    columns = ["own s", "total s", "calls", "events", "function", "at"]
    rows: list[list[object]] = [
        [
            _rounded(code.own, 4),
            _rounded(code.seconds, 4),
            code.calls,
            code.events,
            _cut(code.function),
            _cut(f"{short(code.file)}:{'?' if code.line is None else code.line}"),
        ]
        for code in codes
    ]
    return columns, rows


def notes(found: Sequence[RankStats]) -> Iterable[str]:
    """Yields a line for each gap in the figures."""
    for rank in found:
        yield from (f"rank {rank.rank} (pid {rank.pid}): {note}" for note in rank.notes)
        for each in rank.lowered:
            yield (
                f"rank {rank.rank} (pid {rank.pid}): {each.function} ({short(each.file)}:"
                f"{each.line}) runs too often for level {each.wanted}: it has level {each.level}"
            )


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"...{text[3 - _LONGEST :]}"


def _rank(found: dict[str, Any]) -> RankStats:
    return RankStats(
        **processes.identity(found),
        hook=found["hook"],
        threads=found["threads"],
        events=found["events"],
        seconds=_between(found["begin_ns"], found["end_ns"]),
        window_events=found["window_events"],
        window_seconds=_between(found["window_begin_ns"], found["end_ns"]),
        window_lines=found["window_lines"],
        marks=found["marks"],
        collectives=found["collectives"],
        lost=found["lost"],
        notes=tuple(processes.lacks(found)),
        codes=tuple(Code(*each) for each in found["codes"]),
        lowered=processes.lowered_in(found),
    )


def _sum(one: Code, other: Code) -> Code:
    def add(a: float | None, b: float | None) -> float | None:
        return b if a is None else a if b is None else a + b

    return Code(
        one.function, one.file, one.line, one.events + other.events, one.calls + other.calls,
        add(one.seconds, other.seconds), add(one.own, other.own),
    )  # fmt: skip


def _between(begin: int | None, end: int | None) -> float | None:
    return None if begin is None or end is None else max(end - begin, 0) / 1e9


def _rounded(value: float | None, digits: int) -> float | int | None:
    if value is None:
        return None
    return round(value, digits) if digits else round(value)
