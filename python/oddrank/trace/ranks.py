"""Reads each rank's present or last state from its record file."""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from oddrank import _native, pauses
from oddrank.errors import OddrankError
from oddrank.finding import fold
from oddrank.pauses import Pause
from oddrank.trace import processes
from oddrank.trace.collectives import ProcessGroup, group_of
from oddrank.trace.processes import Frame, Lowered, Process, seconds

# The kernel's letters for the state of a thread.
_STATES = {
    "R": "running",
    "S": "asleep",
    "D": "in uninterruptible sleep (D)",
    "T": "stopped",
    "t": "stopped by a debugger",
}
_HELD = {_STATES[letter] for letter in "DTt"}
_LAST_EVENTS = 128  # of all threads; more would slow down reading a thousand ranks
_State: TypeAlias = tuple[str, int, int, int, str]
_SIZES = ("dtype", "bytes_in", "bytes_out", "peer", "tag", "root", "failed")
_THREAD = "thread "  # before the name of one that raised
_HERTZ = 100.0  # USER_HZ, the unit of times in /proc on every Linux


@dataclass(frozen=True)
class Thread:
    """A thread's stack, innermost frame last; if it is alive, also its state in the kernel."""

    tid: int
    name: str
    stack: tuple[Frame, ...]
    hidden: int
    """Number of frames that the record had no room for, between the last two of the stack."""
    ended: bool
    last: float | None
    """Unix time of its last event, in seconds."""
    sampled: float | None = None
    """Unix time at which lines of the stack were sampled; None: all are from events."""
    torn: bool = False
    """The stack changed during every read: its frames are from different moments."""
    state: str | None = None
    cpu: float | None = None
    """Seconds of CPU time between the two checks."""

    @property
    def held(self) -> str | None:
        """The state in which the kernel keeps it from running; None if it may run."""
        return self.state if self.state in _HELD else None


@dataclass(frozen=True)
class Collective:
    """A collective as this process issued it. oddrank.trace.collectives explains `state`."""

    operation: str
    group: str
    sequence: int | None
    bytes: int
    tid: int
    number: int
    """Its number among the collectives of this process, from 1."""
    state: str
    began: float | None
    ended: float | None
    ranks: tuple[int, ...] = ()
    """The group's ranks, global; empty: unknown."""
    backend: str = ""
    dtype: str = ""
    bytes_in: int = 0
    bytes_out: int = 0
    peer: int | None = None
    tag: int | None = None
    root: int | None = None
    failed: bool = False
    """It ended with an error."""

    @property
    def open(self) -> bool:
        return self.state == "open"


@dataclass(frozen=True)
class End:
    """The end of a process, from its own record."""

    how: str | None = None
    """no word (it runs, was killed, crashed or called os._exit()), ending (its script has ended,
    Python shuts down), exited (it has called exit()); None if this part of the record is broken."""
    exit_code: int | None = None
    raised: str = ""
    """Type of the exception that ended its script; empty if none did."""
    message: str = ""
    """The first line of its message, cut to 191 bytes."""

    @property
    def words(self) -> str:
        """The exception as Python prints it."""
        return f"{self.raised}: {self.message}" if self.message else self.raised


@dataclass(frozen=True)
class Rank(Process):
    """One process of a job."""

    step: int | None
    last: float | None
    """Unix time of the last event of any thread, in seconds."""
    collectives: tuple[Collective, ...]
    """The open ones, oldest first; if none is open, the last one issued."""
    sections: tuple[str, ...]
    threads: tuple[Thread, ...]
    pause: Pause | None = None
    """Why it waits on purpose, if it does."""
    notes: tuple[str, ...] = ()
    """A line for each gap in the record."""
    end: End = End()
    gil_wanted: float | None = None
    """Unix time since which no other thread gets the GIL; None if that is not known."""
    sampled_since: float | None = None
    """Unix time since which no code gives events, only samples; None: code does."""
    thread_raised: str = ""
    """What ended a thread of it, as the end of a sentence on the rank; empty if nothing did."""
    last_at: Frame | None = None
    """Where the exception was raised that ended the script; else the last place of the main thread,
    if the process is gone and its stack is empty."""
    runs_back: int = 0
    """Number of later runs of its job among the records that were read."""
    groups: tuple[ProcessGroup, ...] = ()
    """The process groups that it has begun a collective in."""
    records_collectives: bool = False
    """Since it was armed, or torch was imported."""
    lost_collectives: int = 0
    """Those for which the table of open ones had no room."""
    lost_groups: int = 0
    """Groups that collectives were begun in and that are not in `groups`; at least so many."""
    lowered: tuple[Lowered, ...] = field(default=(), compare=False)
    """Functions that run too often to be recorded as closely as asked for."""
    file: str = field(default="", compare=False)
    content: bytes | None = field(default=None, compare=False, repr=False)
    """The record, if it is in no file."""

    @property
    def main(self) -> Thread | None:
        return next((thread for thread in self.threads if thread.tid == self.pid), None)

    def as_data(self) -> dict[str, Any]:
        """Returns an element of data.ranks of `trace where --json`."""
        first = self.collectives[0] if self.collectives else None
        return {
            "job": self.job,
            "rank": self.rank,
            "host": self.host,
            "pid": self.pid,
            "child": self.is_child,
            "alive": self.alive,
            "end": asdict(self.end),
            "thread_raised": self.thread_raised,
            "runs_back": self.runs_back,
            "time": self.last,
            "step": self.step,
            "sections": list(self.sections),
            "pause": self.pause and asdict(self.pause),
            "gil_held_since": self.gil_wanted,
            "sampled_since": self.sampled_since,
            # The ranks as text: a list for each rank would be megabytes for a thousand ranks.
            "collective": first
            and {**asdict(replace(first, ranks=())), "ranks": fold(first.ranks)},
            "threads": [_thread_data(thread) for thread in self.threads],
            "last_at": self.last_at and self.last_at.as_data(),
            "lowered": [asdict(each) for each in self.lowered],
            "notes": list(self.notes),
            "record": self.file,
        }


def read(
    files: Sequence[Path], look: float = 0.0, contents: Mapping[str, bytes] | None = None
) -> tuple[list[Rank], dict[Path, str]]:
    """Returns the ranks that could be read, and a line for each file that could not.

    look: seconds between two checks of live threads' CPU time; 0: no states and no CPU times.
    contents: records that are in no file, by name.
    """
    held, snapshot = contents or {}, _native.core().trace_snapshot
    found, refused = processes.read(files, lambda file: snapshot(file, held.get(file)))
    ranks = [_rank(facts, str(file), held.get(str(file))) for file, facts in found]
    ranks = [
        replace(rank, runs_back=back, last_at=rank.last_at or _last_place(rank))
        for rank, back in zip(ranks, processes.runs_back(ranks), strict=True)
    ]
    return look_at(ranks, look) if look > 0 else ranks, refused


def _rank(found: dict[str, Any], file: str, content: bytes | None) -> Rank:
    collectives = [_collective(each) for each in found["open"]]
    if not collectives and found["last_collective"]:
        collectives = [_collective(found["last_collective"])]
    sections, pause = pauses.parted(found["sections"])
    thread, _, at = found["raised_at"].partition("\n")
    raised = End(None, None, found["raised"], found["message"])
    if not thread.startswith(_THREAD):
        thread, at = "", found["raised_at"]
    return Rank(
        **processes.identity(found),
        step=found["step"],
        last=seconds(found["last_ns"]),
        collectives=tuple(sorted(collectives, key=lambda each: each.number)),
        sections=tuple(sections),
        pause=pause,
        threads=tuple(_thread(each) for each in found["threads"]),
        notes=tuple(_notes(found)),
        end=replace(End() if thread else raised, how=found["end"], exit_code=found["exit_code"]),
        groups=tuple(
            group_of(facts, begun, issued or None, ended or None, seconds(last))
            for facts, begun, issued, ended, last in found["groups"]
        ),
        records_collectives=found["collectives_recorded"],
        lost_collectives=found["lost"]["collectives"],
        lost_groups=found["lost"]["groups"],
        lowered=tuple(
            Lowered(function, file, line, level, wanted, seconds(since))
            for function, file, line, level, wanted, since in found["lowered"]
        ),
        file=file,
        content=content,
        gil_wanted=seconds(found["gil_wanted_ns"]),
        sampled_since=seconds(found["sampled_since_ns"]),
        last_at=None if thread else _place(at),
        thread_raised=_thread_raised(thread, raised, _place(at)) if thread else "",
    )


def _last_place(rank: Rank) -> Frame | None:
    """Returns the main thread's last line; None if it runs, or no event shows it."""
    if rank.alive or rank.main is None or rank.main.stack:
        return None
    try:
        _, events, _ = _native.core().trace_history(rank.file, _LAST_EVENTS, rank.content)
    except OddrankError:  # removed since
        return None
    own = [Frame(*at) for _, tid, kind, at, _, _ in events if (tid, kind) == (rank.pid, "line")]
    return own[-1] if own else None


def _thread_raised(thread: str, raised: End, place: Frame | None) -> str:
    at = f" at {place.function} ({os.path.basename(place.file)}:{place.line})" if place else ""
    comma = "," if raised.message else ""
    return f"its thread {thread.removeprefix(_THREAD)} raised {raised.words}{comma}{at}"


def _place(text: str) -> Frame | None:
    """Returns the place that a record has of an exception; "": none."""
    line, _, rest = text.partition("\n")
    function, _, file = rest.partition("\n")
    return Frame(function, file, int(line)) if line.isdecimal() and function else None


def _thread(found: dict[str, Any]) -> Thread:
    stack = tuple(
        Frame(function, file, line, level, seconds(since))
        for function, file, line, level, since in found["stack"]
    )
    return Thread(
        found["tid"], found["name"], stack, max(found["depth"] - len(stack), 0), found["ended"],
        seconds(found["last_ns"]), seconds(found["sampled_ns"]), found["torn"],
    )  # fmt: skip


def _collective(found: dict[str, Any]) -> Collective:
    group = group_of(found["group"])
    return Collective(
        operation=found["operation"].strip("_"),
        group=group.name,
        sequence=found["sequence"],
        bytes=found["bytes"],
        tid=found["tid"],
        number=found["number"],
        state=found["state"],
        began=seconds(found["begin_ns"]),
        ended=seconds(found["end_ns"]),
        ranks=group.ranks,
        backend=group.backend,
        **dict(zip(_SIZES, found["sizes"], strict=True)),
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


def look_at(ranks: list[Rank], look: float) -> list[Rank]:
    """Adds states and CPU times of live threads, from two checks that are `look` seconds apart."""
    ids = [
        thread.tid for rank in ranks if rank.alive for thread in rank.threads if not thread.ended
    ]
    if not ids:
        return ranks
    states = _native.core().trace_kernel_states
    before = dict(zip(ids, states(ids), strict=True))
    time.sleep(look)
    after = dict(zip(ids, states(ids), strict=True))
    return [
        replace(rank, threads=tuple(_looked_at(each, before, after) for each in rank.threads))
        if rank.alive
        else rank
        for rank in ranks
    ]


def _looked_at(thread: Thread, before: dict[int, _State], after: dict[int, _State]) -> Thread:
    letter, ticks, _, _, wchan = after.get(thread.tid, ("", 0, 0, 0, ""))
    if not letter or thread.ended:
        return thread
    cpu = (ticks - before[thread.tid][1]) / _HERTZ
    return replace(thread, state=state_words(letter, wchan), cpu=cpu)


def state_words(letter: str, wchan: str = "") -> str:
    """Returns a thread's state in words. wchan: the kernel's function in which it sleeps."""
    words = _STATES.get(letter, letter)
    return f"{words} in {wchan}" if letter == "S" and wchan else words


def _thread_data(thread: Thread) -> dict[str, Any]:
    return {
        "tid": thread.tid,
        "name": thread.name,
        "ended": thread.ended,
        "time": thread.last,
        "sampled": thread.sampled,
        "state": thread.state,
        "cpu_s": thread.cpu,
        "hidden": thread.hidden,
        "stack": [frame.as_data() for frame in thread.stack],
    }
