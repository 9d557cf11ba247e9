"""What each rank of a job does now or did last, read from the record files alone."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from oddrank import _native
from oddrank.trace import processes
from oddrank.trace.frames import Frame
from oddrank.trace.last_place import last_place
from oddrank.trace.processes import Process

# The kernel's letters for what a thread does.
_STATES = {
    "R": "running",
    "S": "asleep",
    "D": "in uninterruptible sleep (D)",
    "T": "stopped",
    "t": "stopped by a debugger",
}
_HELD = {_STATES[letter] for letter in "DTt"}
_HERTZ = 100.0  # USER_HZ: of the times in /proc, on all of Linux


@dataclass(frozen=True)
class Thread:
    """A thread's stack, innermost frame last, and for a live one what the kernel says of it."""

    tid: int
    name: str
    stack: tuple[Frame, ...]
    hidden: int
    """Frames that the record had no room for: between the last two of the stack."""
    ended: bool
    last: float | None
    """Unix time of its last event, in seconds."""
    torn: bool = False
    """It changed at every look: frames of different moments."""
    state: str | None = None
    cpu: float | None = None
    """Seconds of CPU time it took while it was looked at."""

    @property
    def held(self) -> str | None:
        """How the kernel keeps it from running; None where it does not."""
        return self.state if self.state in _HELD else None


@dataclass(frozen=True)
class Collective:
    """A collective as this process issued it (oddrank.trace.collectives says more of `state`)."""

    operation: str
    group: str
    sequence: int | None
    bytes: int
    tid: int
    number: int
    """How many this process has issued up to it."""
    state: str
    began: float | None
    ended: float | None

    @property
    def open(self) -> bool:
        return self.state == "open"


@dataclass(frozen=True)
class End:
    """What a process itself has said of its end."""

    how: str | None = None
    """no word (it runs, or was killed, crashed, called os._exit()), ending (its script has ended,
    Python clears up), exited (it has called exit()); None: its record can't say it."""
    exit_code: int | None = None
    raised: str = ""
    """Type of the exception that ended its script."""


@dataclass(frozen=True)
class Rank(Process):
    """One process of a job."""

    step: int | None
    last: float | None
    """Unix time of the last event of any thread, in seconds."""
    collectives: tuple[Collective, ...]
    """The open ones, the oldest first; else the last one that was issued."""
    sections: tuple[str, ...]
    threads: tuple[Thread, ...]
    notes: tuple[str, ...] = ()
    """What the record lacks, and why."""
    end: End = End()
    last_at: Frame | None = None
    """Where its main thread ran last, of one that is gone and whose stack is empty."""
    runs_back: int = 0
    """How many runs of the job began after the one that it is of, as far as that was looked at."""
    file: str = field(default="", compare=False)

    @property
    def main(self) -> Thread | None:
        return next((thread for thread in self.threads if thread.tid == self.pid), None)

    def as_data(self) -> dict[str, Any]:
        """An element of data.ranks of `trace where --json`."""
        first = self.collectives[0] if self.collectives else None
        return {
            "job": self.job,
            "rank": self.rank,
            "host": self.host,
            "pid": self.pid,
            "child": self.is_child,
            "alive": self.alive,
            "end": asdict(self.end),
            "runs_back": self.runs_back,
            "time": self.last,
            "step": self.step,
            "sections": list(self.sections),
            "collective": first and asdict(first),
            "threads": [_thread_data(thread) for thread in self.threads],
            "last_at": self.last_at and asdict(self.last_at),
            "notes": list(self.notes),
            "record": self.file,
        }


def read(files: Sequence[Path], look: float = 0.0) -> tuple[list[Rank], dict[Path, str]]:
    """The ranks that could be read, and a line for each file that could not.

    look: seconds between two looks at the CPU time of live threads; 0 takes none.
    """
    found, refused = processes.read(files, _native.core().trace_snapshot)
    ranks = [_with_last_place(_rank(facts, str(file))) for file, facts in found]
    ranks = [
        replace(rank, runs_back=back)
        for rank, back in zip(ranks, processes.runs_back(ranks), strict=True)
    ]
    return _with_states(ranks, look), refused


def _rank(found: dict[str, Any], file: str) -> Rank:
    collectives = [_collective(each) for each in found["open"]]
    if not collectives and found["last_collective"]:
        collectives = [_collective(found["last_collective"])]
    return Rank(
        **processes.identity(found),
        step=found["step"],
        last=_seconds(found["last_ns"]),
        collectives=tuple(sorted(collectives, key=lambda each: each.number)),
        sections=tuple(name for name, _, _ in found["sections"]),
        threads=tuple(_thread(each) for each in found["threads"]),
        notes=tuple(_notes(found)),
        end=End(found["end"], found["exit_code"], found["raised"]),
        file=file,
    )


def _with_last_place(rank: Rank) -> Rank:
    if rank.alive or rank.main is None or rank.main.stack:
        return rank
    last = last_place(Path(rank.file), rank.pid, raised=bool(rank.end.raised))
    return replace(rank, last_at=last)


def _thread(found: dict[str, Any]) -> Thread:
    stack = tuple(Frame(*frame) for frame in found["stack"])
    return Thread(
        tid=found["tid"],
        name=found["name"],
        stack=stack,
        hidden=max(found["depth"] - len(stack), 0),
        ended=found["ended"],
        last=_seconds(found["last_ns"]),
        torn=found["torn"],
    )


def _collective(found: dict[str, Any]) -> Collective:
    return Collective(
        operation=found["operation"].strip("_"),
        group=found["group"],
        sequence=found["sequence"],
        bytes=found["bytes"],
        tid=found["tid"],
        number=found["number"],
        state=found["state"],
        began=_seconds(found["begin_ns"]),
        ended=_seconds(found["end_ns"]),
    )


def _notes(found: dict[str, Any]) -> Iterable[str]:
    yield from processes.lacks(found)
    seen = {thread["tid"] for thread in found["threads"]}
    for each in found["open"]:
        if each["tid"] not in seen:
            yield (
                f"{each['operation'].strip('_')} was issued by a thread without a stack here: made"
                " in C++ (CPython before 3.12 does not show those), or in code that is not recorded"
            )


def _with_states(ranks: list[Rank], look: float) -> list[Rank]:
    """What the kernel says of live threads, in two looks."""
    ids = [
        thread.tid for rank in ranks if rank.alive for thread in rank.threads if not thread.ended
    ]
    if not ids or look <= 0:
        return ranks
    states = _native.core().trace_kernel_states
    before = dict(zip(ids, states(ids), strict=True))
    time.sleep(look)
    after = dict(zip(ids, states(ids), strict=True))
    return [
        replace(
            rank,
            threads=tuple(_looked_at(thread, before, after) for thread in rank.threads),
        )
        if rank.alive
        else rank
        for rank in ranks
    ]


def _looked_at(
    thread: Thread, before: dict[int, tuple[str, int]], after: dict[int, tuple[str, int]]
) -> Thread:
    letter, ticks = after.get(thread.tid, ("", 0))
    if not letter or thread.ended:
        return thread
    cpu = (ticks - before[thread.tid][1]) / _HERTZ
    return replace(thread, state=_STATES.get(letter, letter), cpu=cpu)


def _thread_data(thread: Thread) -> dict[str, Any]:
    return {
        "tid": thread.tid,
        "name": thread.name,
        "ended": thread.ended,
        "time": thread.last,
        "state": thread.state,
        "cpu_s": thread.cpu,
        "hidden": thread.hidden,
        "stack": [
            {"function": frame.function, "file": frame.file, "line": frame.line}
            for frame in thread.stack
        ],
    }


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9
