"""Reads each rank's present or last state from its record file."""

import json
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from oddrank import _native, pauses
from oddrank.errors import OddrankError
from oddrank.finding import grouped
from oddrank.pauses import Pause
from oddrank.trace.collectives import Collective, ProcessGroup, collective_of, group_of, seconds

# The kernel's letters for the state of a thread.
_STATES = {
    "R": "running",
    "S": "asleep",
    "D": "in uninterruptible sleep (D)",
    "T": "stopped",
    "t": "stopped by a debugger",
}
LIVES = {"T": "stopped", "t": "stopped", "Z": "zombie", "X": "dead", "D": "uninterruptible"}
"""Those for the state of a process, but for one that runs."""
STATES_FILE, STATES_SCHEMA = "states.json", "oddrank.states/1"
LOOK = 0.2  # seconds between the two looks at threads
SILENT = "silent"
HELD = {_STATES[letter] for letter in "DTt"}  # the kernel keeps such threads from running
_DEPTHS = {"call": 1, "resume": 1, "throw": 1, "return": -1, "yield": -1, "unwind": -1}
_LAST_EVENTS = 128  # of all threads; more would slow down reading a thousand ranks
_HERTZ = 100.0  # USER_HZ, the unit of times in /proc on every Linux
_AS_READ = ("rank", "host", "pid", "world", "is_child", "job", "begin_ns", "clocks", "step")
_INSTALLED = ("/site-packages/", "/dist-packages/")  # `short` cuts a path up to the end of these

Clocks: TypeAlias = list[tuple[int, int, int]]
"""(Ticks, monotonic ns, wall clock ns) at a few moments."""


@dataclass(frozen=True)
class Frame:
    """A place in the code."""

    function: str
    file: str
    line: int | None  # None if it is recorded by calls only
    level: str | None = field(default=None, compare=False)
    """If the line is unknown since the function ran too often: its level now."""
    since: float | None = field(default=None, compare=False)
    """Unix time since which it is recorded at this level."""

    def as_data(self) -> dict[str, Any]:
        data = {"function": self.function, "file": self.file, "line": self.line}
        return data if self.level is None else {**data, "level": self.level, "since": self.since}


@dataclass(frozen=True)
class Lowered:
    """A function that is recorded less closely than asked for, since it ran too often."""

    function: str
    file: str
    line: int | None  # its first line
    level: str  # off, where or calls
    wanted: str
    since: float | None


@dataclass(frozen=True)
class Thread:
    """A thread's stack, innermost frame last; if it is alive, also its state in the kernel."""

    tid: int
    name: str
    stack: tuple[Frame, ...]
    hidden: int  # frames that the record had no room for, between the last two of the stack
    ended: bool
    last: float | None  # Unix time of its last event, in seconds
    sampled: float | None = None  # Unix time at which lines were sampled; None: all are from events
    torn: bool = False  # the stack changed during every read: its frames are from different moments
    state: str | None = None
    cpu: float | None = None  # seconds of CPU time between the two checks


@dataclass(frozen=True)
class End:
    """The end of a process, from its own record."""

    how: str | None = None
    """no word (it runs, was killed, crashed or called os._exit()), ending (its script has ended,
    Python shuts down), exited (it has called exit()); None if this part of the record is broken."""
    exit_code: int | None = None
    raised: str = ""  # type of the exception that ended its script; empty if none did
    message: str = ""  # the first line of its message, cut to 191 bytes
    time: float | None = field(default=None, compare=False, repr=False)
    """Unix time at which that exception was noted."""

    @property
    def words(self) -> str:
        """The exception as Python prints it."""
        return f"{self.raised}: {self.message}" if self.message else self.raised


@dataclass(frozen=True)
class Rank:
    """One process of a job: of a rank, or of a child of one."""

    rank: int
    host: str
    pid: int
    started: int  # clock ticks since its host's boot
    world: int
    is_child: bool
    alive: bool | None  # None if unknown: a process of another host cannot be looked up
    step: int | None
    last: float | None  # Unix time of the last event of any thread, in seconds
    collectives: tuple[Collective, ...]
    """The open ones, oldest first; if none is open, the last one issued."""
    sections: tuple[str, ...]
    threads: tuple[Thread, ...]
    pause: Pause | None = None  # why it waits on purpose, if it does
    gaps: tuple[str, ...] = ()  # a line for each gap in the record
    end: End = End()
    gil_asked: float | None = None  # Unix time since which the recorder waits for the GIL
    gil_wanted: float | None = None  # the same, if the record says that it was for long
    sampled_since: float | None = None
    """Unix time since which no code gives events, only samples; None: code does."""
    thread_raised: str = ""
    """The exception that ended a thread of it, as the end of a sentence on the rank; or empty."""
    last_at: Frame | None = None
    """Where the exception was raised that ended the script; else the last place of the main thread,
    if the process is gone and its stack is empty."""
    runs_back: int = 0  # number of later runs of its job among the records that were read
    groups: tuple[ProcessGroup, ...] = ()  # the process groups that it has begun a collective in
    records_collectives: bool = False  # since it was armed, or torch was imported
    lost_collectives: int = 0  # those for which the table of open ones had no room
    lost_groups: int = 0  # at least so many with begun collectives are not in `groups`
    lowered: tuple[Lowered, ...] = field(default=(), compare=False)
    """Functions that run too often to be recorded as closely as asked for."""
    job: str = ""  # the job's name in the record; empty in records of older versions
    parent: int = 0  # the pid of its parent when it was armed
    boot: str = ""  # its host's boot, and so the clock of its record
    begin_ns: int | None = field(default=None, compare=False)  # wall-clock time of arm()
    clocks: Clocks = field(default_factory=list, compare=False)
    file: str = field(default="", compare=False)
    content: bytes | None = field(default=None, compare=False, repr=False)
    """The record, if it is in no file."""

    def __str__(self) -> str:
        return f"rank {self.rank} (pid {self.pid})"

    @property
    def place(self) -> tuple[str, str, int]:
        """Identifies a rank across the runs of its job."""
        return self.job, self.host, self.rank

    @property
    def notes(self) -> tuple[str, ...]:
        """The gaps, and a line for each open collective whose thread has no stack."""
        seen = {thread.tid for thread in self.threads}
        return *self.gaps, *(
            f"{each.op.strip('_')} was issued by a thread without a stack here: made in C++"
            " (CPython before 3.12 does not show those), or in code that is not recorded"
            for each in self.collectives
            if each.open and each.thread not in seen
        )

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
            "collective": first and first.as_data(),
            "threads": [
                {
                    "tid": each.tid, "name": each.name, "ended": each.ended, "time": each.last,
                    "sampled": each.sampled, "state": each.state, "cpu_s": each.cpu,
                    "hidden": each.hidden, "stack": [frame.as_data() for frame in each.stack],
                }
                for each in self.threads
            ],
            "last_at": self.last_at and self.last_at.as_data(),
            "lowered": [asdict(each) for each in self.lowered],
            "notes": list(self.notes),
            "record": self.file,
        }  # fmt: skip


def read(
    files: Sequence[Path], look: float = 0.0, contents: Mapping[str, bytes] | None = None
) -> tuple[list[Rank], dict[Path, str]]:
    """Returns the ranks that could be read, and a line for each file that could not.

    look: seconds between two checks of live threads' CPU time; 0: no states and no CPU times.
    contents: records that are in no file, by name.
    """
    held = contents or {}
    found, refused = snapshots(files, held)
    ranks = [_rank(facts, str(file), held.get(str(file))) for file, facts in found]
    ranks = [
        replace(rank, runs_back=back, last_at=rank.last_at or _last_place(rank))
        for rank, back in zip(ranks, runs_back(ranks), strict=True)
    ]
    return look_at(ranks, look) if look > 0 else ranks, refused


def snapshots(
    files: Sequence[Path], contents: Mapping[str, bytes] | None = None
) -> tuple[list[tuple[Path, dict[str, Any]]], dict[Path, str]]:
    """Returns what the compiled reader says of each file, and a line for each it cannot read."""
    held, snapshot = contents or {}, _native.core().trace_snapshot

    def attempt(file: Path) -> dict[str, Any] | str:
        try:
            found: dict[str, Any] = snapshot(str(file), held.get(str(file)))
        except OddrankError as error:
            return str(error)
        return found

    with ThreadPoolExecutor(max_workers=2) as pool:  # the reader works without the GIL
        all_found = list(zip(files, pool.map(attempt, files), strict=True))
    read = [(file, found) for file, found in all_found if not isinstance(found, str)]
    return read, {file: found for file, found in all_found if isinstance(found, str)}


def by_job(processes: Iterable[Rank], folder: str) -> dict[str, list[Rank]]:
    """Groups processes by job. folder: the job of records that name none."""
    return dict(sorted(grouped((one.job or folder, one) for one in processes).items()))


def runs_back(processes: Sequence[Rank]) -> list[int]:
    """Counts for each process the runs of its job that began later; 0 is the last run.
    A rank's n-th last process belongs to the n-th last run, a child to its rank's run."""
    last = {id(p) for p in last_run(processes)}
    earlier = [p for p in processes if not p.is_child and id(p) not in last]
    begins = grouped((p.place, p.started) for p in earlier)
    return [
        0 if id(p) in last else 1 + sum(begin > p.started for begin in begins.get(p.place, ()))
        for p in processes
    ]


def last_run(processes: Sequence[Rank]) -> list[Rank]:
    """Leaves out dead processes of earlier runs, if a job was started again under its name.

    For each rank of a host, keeps the live processes, or else the one that began last, and the
    children that began after it.
    """
    living = {p.place for p in processes if p.alive and not p.is_child}
    newest: dict[tuple[str, str, int], int] = {}
    for p in processes:
        if not p.is_child and (p.alive or p.place not in living):
            newest[p.place] = max(newest.get(p.place, 0), p.started)
    return [p for p in processes if p.alive or p.started >= newest.get(p.place, 0)]


def _rank(found: dict[str, Any], file: str, content: bytes | None) -> Rank:
    collectives = [collective_of(each) for each in found["open"]]
    if not collectives and found["last_collective"]:
        collectives = [collective_of(found["last_collective"])]
    sections, pause = pauses.parted(found["sections"])
    last_at, thread_raised, noted = _place(found["raised_at"]), "", _time(found["raised_at"])
    end = End(found["end"], found["exit_code"], found["raised"], found["message"], noted)
    if found["raised_at"].startswith("thread "):
        thread, _, text = found["raised_at"].partition("\n")
        place, comma = _place(text), "," if end.message else ""
        at = f" at {place.function} ({os.path.basename(place.file)}:{place.line})" if place else ""
        thread_raised = f"its {thread} raised {end.words}{comma}{at}"
        end = replace(end, raised="", message="")
    return Rank(
        **{name: found[name] for name in _AS_READ},
        started=found["start_time"],
        parent=found["parent_pid"],
        # A process that has called exit() is gone, even if its pid cannot be looked up.
        alive={"alive": True, "dead": False}.get(
            found["life"], False if found["end"] == "exited" else None
        ),
        boot=found["boot_id"] or file,
        last=seconds(found["last_ns"]),
        collectives=tuple(sorted(collectives, key=lambda each: each.number)),
        sections=tuple(sections),
        pause=pause,
        threads=tuple(_thread(each) for each in found["threads"]),
        gaps=tuple(_gaps(found)),
        end=end,
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
        gil_asked=seconds(found["gil_asked_ns"]),
        gil_wanted=seconds(found["gil_wanted_ns"]),
        sampled_since=seconds(found["sampled_since_ns"]),
        last_at=last_at,
        thread_raised=thread_raised,
    )


def _last_place(rank: Rank) -> Frame | None:
    """Returns the main thread's last line; None if it runs, or no event shows it."""
    runs = rank.alive and rank.end.how == "no word"
    if runs or rank.main is None or rank.main.stack:
        return None
    own = [Frame(*at) for _, tid, kind, at, _ in _events(rank) if (tid, kind) == (rank.pid, "line")]
    return own[-1] if own else None


def _events(rank: Rank) -> list[Any]:
    try:
        return list(_native.core().trace_history(rank.file, _LAST_EVENTS, rank.content)[1])
    except OddrankError:  # removed since
        return []


def way_out(rank: Rank, thread: Thread) -> tuple[str, Frame | None]:
    """Returns how own code left a thread, "return" or "unwind" ("": not known), and from where."""
    events = [(kind, at) for _, tid, kind, at, _ in _events(rank) if tid == thread.tid]
    own = {file for kind, (_, file, _) in events if kind == "line"}
    out: tuple[str, Frame | None] = ("", None)
    depth, least, line = 0, math.inf, None
    for kind, at in events:
        line = Frame(*at) if kind == "line" else line
        depth += _DEPTHS.get(kind, 0)
        # A generator that it leaves behind is closed after it.
        if kind in ("return", "unwind") and at[1] in own and depth < least:
            least, out = depth, (kind, line)
    return out


def _time(text: str) -> float | None:
    with suppress(ValueError):
        return float(text.partition("\n")[0].partition(" ")[2])
    return None


def _place(text: str) -> Frame | None:
    """Returns the place that a record has of an exception; "": none."""
    first, _, rest = text.partition("\n")
    line, (function, _, file) = first.partition(" ")[0], rest.partition("\n")
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


def _gaps(found: dict[str, Any]) -> Iterable[str]:
    """Yields a line for each gap in a record, from a dict of the compiled reader."""
    if found["displaced_by"]:
        yield f"{found['displaced_by']} has taken the trace hook: lines since then are missing"
    if found["disarmed"]:
        yield "recording was switched off: this is the state at that moment"
    for what, count in found["lost"].items():
        if count:
            yield f"no room for {count} {what}: raise ODDRANK_TRACE_MB"
    if found.get("trouble"):
        yield found["trouble"]


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

    def looked_at(thread: Thread) -> Thread:
        letter, ticks, _, _, wchan = after.get(thread.tid, ("", 0, 0, 0, ""))
        if not letter or thread.ended:
            return thread
        cpu = (ticks - before[thread.tid][1]) / _HERTZ
        return replace(thread, state=state_words(letter, wchan, cpu), cpu=cpu)

    return [
        replace(rank, threads=tuple(map(looked_at, rank.threads))) if rank.alive else rank
        for rank in ranks
    ]


def state_words(letter: str, wchan: str, cpu: float) -> str:
    """Returns a thread's state in words. wchan: the kernel's function in which it sleeps.

    A thread at a futex that has computed since the look before, cpu seconds, waits for the GIL.
    Short work, as when it writes its stack, is less than three ticks.
    """
    if cpu > 2 / _HERTZ and wchan.startswith("futex"):
        letter = "R"
    words = _STATES.get(letter, letter)
    return f"{words} in {wchan}" if letter == "S" and wchan else words


def short(file: str) -> str:
    """Returns the path without the folder where Python is installed, or the working directory."""
    for folder in _INSTALLED:
        if folder in file:
            return file.rpartition(folder)[2]
    return file.removeprefix(os.path.dirname(os.__file__) + "/").removeprefix(os.getcwd() + "/")


@dataclass(frozen=True)
class Seen:
    """A process's state, as the kernel gave it at a moment; kept beside copies of records.

    A copy can't tell a process that was stopped from one that waits, nor one that was killed before
    it was made from one that was killed after that.

    state: running, stopped, uninterruptible, zombie or dead; silent: its guard says nothing more.
    signal, code: how it ended, if its parent has not asked for it yet. threads: id -> (its state in
    words, seconds of CPU time between two looks). oom_kills: of its cgroup while a guard watched
    it. ended: Unix time of its end, if a guard saw that.
    """

    rank: int
    host: str
    pid: int
    started: int
    state: str
    time: float
    signal: int | None = None
    code: int | None = None
    threads: dict[int, tuple[str, float]] = field(default_factory=dict)
    oom_kills: int = 0
    ended: float | None = None


def seen_now(ranks: Sequence[Rank]) -> list[Seen]:
    """Looks at the processes that this host runs, or ran. Their threads were looked at before."""
    known = [rank for rank in ranks if rank.alive is not None]
    states = _native.core().trace_kernel_states([rank.pid for rank in known])
    now = time.time()
    return [
        with_end(
            Seen(rank.rank, rank.host, rank.pid, rank.started, "dead", now, threads={
                t.tid: (t.state, t.cpu or 0.0) for t in rank.threads if t.state is not None
            }),
            letter if started == rank.started else "", status,
        )
        for rank, (letter, _, status, started, _) in zip(known, states, strict=True)
    ]  # fmt: skip


def with_end(seen: Seen, letter: str, status: int) -> Seen:
    """Adds a process's state and end: its letter in /proc ("": it is gone) and wait status."""
    state, signal, code = LIVES.get(letter, "running") if letter else "dead", None, None
    if state == "uninterruptible" and seen.threads.get(seen.pid, ("", 0.0))[0] != _STATES["D"]:
        state = "running"  # for a moment
    if state == "zombie" and status >= 0:
        signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    return replace(seen, state=state, signal=signal, code=code)


def states_text(seen: Iterable[Seen]) -> str:
    """Returns the content of a file of states."""
    return (
        json.dumps({"schema": STATES_SCHEMA, "processes": [asdict(each) for each in seen]}) + "\n"
    )


def parse_states(found: Any) -> list[Seen]:
    """Returns the states of such a file. ValueError if it is none; anybody may have written it."""
    if not isinstance(found, Mapping) or found.get("schema") != STATES_SCHEMA:
        raise ValueError("it has another schema")
    try:
        return [_seen(each) for each in found["processes"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is broken ({error})") from None


def _seen(found: Mapping[str, Any]) -> Seen:
    threads = {int(tid): (str(s), float(cpu)) for tid, (s, cpu) in found["threads"].items()}
    signal, code = (
        None if found[name] is None else int(found[name]) for name in ("signal", "code")
    )
    return Seen(
        int(found["rank"]), str(found["host"]), int(found["pid"]), int(found["started"]),
        str(found["state"]), float(found["time"]), signal, code, threads,
        int(found.get("oom_kills", 0)), None if (end := found.get("ended")) is None else float(end),
    )  # fmt: skip
