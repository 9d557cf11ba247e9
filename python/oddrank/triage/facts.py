"""Typed facts: the contents of evidence. Readers make them; judges know no kind of file.

The way: sniff -> read -> facts -> judges -> Suspect -> findings -> Report. Times are Unix seconds
on the clock of the process's host; None: unknown. A rank is a global rank, never one of a group.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from oddrank.pauses import Pause

GONE = ("dead", "zombie")  # states of a process that has ended
MOST_RANKS = 1 << 22
"""A job of more ranks is a misread number: judges go through all ranks of a job."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a fact was read: a file as the user named it, and its line from 1."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Process:
    """The process of a fact, as far as its source says. Identities join what several sources say.

    label: how a source without ranks and pids tells its processes apart: 9th stack of a.txt.
    """

    rank: int | None = None
    host: str | None = None
    pid: int | None = None
    label: str = ""

    @property
    def key(self) -> tuple[object, ...] | None:
        """Equal for one process, by the surest name known of it; None: it has no name."""
        if self.rank is not None:
            return ("rank", self.rank)
        if self.pid is not None:
            return ("pid", self.host, self.pid)
        return ("label", self.host, self.label) if self.label else None


@dataclass(frozen=True, slots=True)
class Identity:
    """A source names one process in several ways: its rank and host, its pid.

    gpu: the PCI address of its GPU as 0000:9b:00 (oddrank.machine.xid.pci_slot); "": unknown.
    gpu_index: that GPU's number on its host, as NVML counts.
    """

    process: Process
    source: Source
    gpu: str = ""
    gpu_index: int | None = None
    world: int = 0
    """WORLD_SIZE of a process of a job in which no rank has got through a call; 0: unknown."""


@dataclass(frozen=True, slots=True)
class Child:
    """A process that another one started and that is no rank: a worker that loads data, mostly."""

    process: Process
    parent: Process
    source: Source
    what: str = ""
    """As a sentence names it: DataLoader worker; "": unknown."""


@dataclass(frozen=True, slots=True)
class World:
    """The size of the job, as a source says it.

    implied: no source says it, but so many ranks spoke, without a gap: there may be more.
    """

    size: int
    source: Source
    implied: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """When the job began on a host: what logs of that host say of processes before is not of it."""

    host: str
    began: float
    source: Source


@dataclass(frozen=True, slots=True)
class Group:
    """A process group. Names repeat across disjoint groups: name and ranks together are the key.

    ranks: global, in the order of the group's own ranks; empty: unknown. text: its description.
    """

    name: str
    ranks: tuple[int, ...] = ()
    text: str = ""
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        # Groups are keys. Python hashes a tuple anew each time: of all ranks, for each rank.
        object.__setattr__(self, "_hash", hash((self.name, self.ranks, self.text)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def title(self) -> str:
        """The name that users know: its description, if it has one. torch's is "undefined"."""
        return self.name if self.text in ("", "undefined") else self.text


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a stack. native: C or C++, else Python."""

    function: str
    file: str = ""
    line: int | None = None
    native: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """An operation that a rank issued in a group and that has not completed.

    seq: its number in the group, from 1; of send and recv, among the messages of the two ranks.
    op: the name as users call it: all_reduce, all_to_all, send, ... peer: the global rank that a
    send or recv is meant for. sizes: input and output, as text such as 2048x5120. root: global.
    state: enqueued (by the host), started (the GPU or gloo works on it). site: innermost first.
    """

    seq: int | None
    op: str
    peer: int | None = None
    root: int | None = None
    dtype: str = ""
    sizes: str = ""
    bytes: int | None = None
    state: Literal["enqueued", "started", "unknown"] = "unknown"
    since: float | None = None
    site: tuple[Frame, ...] = ()
    nth: int | None = None
    """Number of a send or recv among those from its sender to its receiver, if counted so."""
    usual: bool | None = None
    """Whether its rank always issued the same after the same calls before; None: no pattern."""


# Back ends that run the calls of several groups at once, each in a thread of the host. The calls
# of the others are queued on a device.
ON_HOST = frozenset({"gloo", "mpi", "ucc"})


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a rank has come in a group: the fact that waits are judged by.

    enqueued, completed: last sequence numbers; None: unknown. open: calls that have not completed,
    oldest first, perhaps not all: open_count is their number. whole: the source shows all calls
    that this rank has open in all its groups; none is missing here. backend: nccl (nccl2, too),
    gloo, ...; progress of different back ends is never compared.
    """

    process: Process
    group: Group
    source: Source
    backend: str = ""
    enqueued: int | None = None
    completed: int | None = None
    open: tuple[Call, ...] = ()
    open_count: int = 0
    whole: bool = False
    time: float | None = None
    """When this was true: the moment of the dump or of the line."""
    timed_out: bool = False
    """A watchdog gave this group's oldest call up, or it failed."""
    failed: bool = False
    """The call failed: it timed out, or lost a peer; the source does not say which."""
    wall: bool = False
    """The source names no zone: UTC was assumed, and times of other sources prove no order."""
    unseen: bool = False
    """The rank also issued calls that the source does not record, such as sends over gloo."""
    no_messages: bool = False
    """The source never records sends and receives of this back end, nor that a call failed."""
    pause: float | None = None
    """The longest time between two calls that the source shows of this rank, in seconds."""
    threads: tuple[str, ...] = ()
    """The threads that were in calls of this group at the same time, with their places."""
    cut: bool = False
    """The source was cut off: its rank may have come further, and open calls may be missing."""


@dataclass(frozen=True, slots=True)
class Variant:
    """The call that some ranks issued at one sequence number.

    usual: whether the group always issued the same after the same calls; None: no pattern.
    """

    call: Call
    ranks: tuple[int, ...]
    source: Source
    usual: bool | None = None


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Ranks issued different operations at the same sequence number of a group.

    seq: 0 if not known.
    is_fork: at one place in the order of all their calls, after one that all of the group ended.
    differs: op, dtype, sizes, root, peer or order (the same operations, in another order).
    variants: the commonest first.
    """

    group: Group
    seq: int
    differs: Literal["op", "dtype", "sizes", "root", "peer", "order"]
    variants: tuple[Variant, ...]
    is_fork: bool = False


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread whose stack was seen. state: as the source says (active, idle, D, ...)."""

    process: Process
    name: str = ""
    id: int | None = None
    state: str = ""
    gil: bool | None = None
    """Whether it holds the GIL; None: not said."""
    source: Source = field(default_factory=lambda: Source(""))
    time: float | None = None
    look: int = 0
    """Which dump of its process it is from, counted from 0, if there are several."""
    timed_out: bool = False
    """A timer of the process made the dump: it knew itself to be stuck."""
    own: bool = False
    """The process wrote the dump itself (faulthandler): one that stands still in C still does."""
    trains: bool = False
    """It makes calls with others; the main one does, too, if no thread is known to."""


@dataclass(frozen=True, slots=True)
class Stack:
    """One stack and all threads that stood in it. frames: innermost first."""

    frames: tuple[Frame, ...]
    threads: tuple[Thread, ...]


@dataclass(frozen=True, slots=True)
class State:
    """State of a process at a moment, as the kernel or a guard says it."""

    process: Process
    state: Literal["running", "stopped", "uninterruptible", "zombie", "dead"]
    source: Source
    time: float | None = None
    where: str = ""
    """The kernel's function in which it waits, if it is uninterruptible."""


@dataclass(frozen=True, slots=True)
class Activity:
    """The time of a process's last activity, as its source records it. step: of the training loop.

    last: of the threads that make its calls with others, else of its main one, where that is known:
    threads that watch or log go on in a stall.
    """

    process: Process
    source: Source
    last: float | None = None
    step: int | None = None
    seen: float | None = None
    """When the source was written or read; None: unknown."""
    alone: float | None = None
    """When its last call with other ranks ended, if it is in none."""
    pause: float | None = None
    """The longest time between two of its last calls with others, in seconds."""
    beside: bool = False
    """Others of its threads computed when they were looked at."""
    turns: bool = False
    """A thread that makes calls ran then, or waited for a core: it computes, or waits in a loop."""
    runs: bool = False
    """A thread that makes calls ran code too frequent to be recorded: `last` says nothing."""
    raised: str = ""
    """The exception that ended another thread of it, as the end of a sentence on the process."""
    over: bool = False
    """The thread that armed it, not its main one, has returned, in no call with others."""
    began: float | None = None
    """When the source began to record it."""
    job: str = ""
    """By which `oddrank trace` finds its record on its host."""

    @property
    def rests(self) -> float | None:
        """Seconds since it last did something when it was seen; None: unknown."""
        if self.runs:
            return 0.0
        return self.seen - self.last if self.seen is not None and self.last is not None else None


@dataclass(frozen=True, slots=True)
class Paused:
    """A process waits on purpose, as it says itself. seen: when that was still so; None: unknown.

    gone: it was so when the process ended; its deadline says nothing any more.
    """

    process: Process
    pause: Pause
    source: Source
    seen: float | None = None
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Death:
    """A process ended, or says that it is about to.

    how: exception (it raised), signal, exit (a code), oom (the kernel or cgroup killed it), abort
    (a library gave up: NCCL's watchdog, CUDA's assert), evicted (a scheduler). by: the killer, if
    the source says: launcher, watchdog, scheduler, kernel, "". text: its own last words.
    """

    process: Process
    how: Literal["exception", "signal", "exit", "oom", "abort", "evicted"]
    source: Source
    time: float | None = None
    coarse: bool = False
    """The time is in whole seconds or was read from another clock: ties order nothing."""
    signal: int | None = None
    code: int | None = None
    by: str = ""
    text: str = ""
    site: tuple[Frame, ...] = ()
    """Frames of the traceback, innermost first."""
    sampled: bool = False
    """The site is a sample's: the process may have come further."""
    failed: str = ""
    """The operation with other ranks that failed and made it raise: mostly, as a peer was gone."""
    among: bool = False
    """Its words also fit victims, or an error that the process survived."""
    child: str = ""
    """Not the process itself ended but one that it started: DataLoader worker pid 4711."""
    wall: bool = False
    """The source names no zone: UTC was assumed, and times of other sources prove no order."""
    gone: float | None = None
    """When a guard saw the process gone. `time` may be the time of its last words."""
    went_on: bool = False
    """Later lines look as if the process went on, unless another source says that it ended. If the
    exit code is 0, the script has ended, and its process may end later, or otherwise."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A user or a launcher ended the whole job: that shows no rank's fault.

    what: the program that got the order, as sentences name it: torchrun, SLURM. why: its own words,
    if any. named: the ranks that `oddrank run`, which watched the job, named with these words.
    """

    what: str
    source: Source
    time: float | None = None
    signal: int | None = None
    why: str = ""
    wall: bool = False
    """The source names no zone."""
    named: tuple[Process, ...] = ()


# The code of kills that a cgroup counts: of some process in it, at an unknown time.
OF_CGROUP = "cgroup"
Whose: TypeAlias = Literal["hardware", "application", "cleanup", "notice", "unknown"]


@dataclass(frozen=True, slots=True)
class Trouble:
    """A fault of a device, link, host or file system that a log reports.

    kind: xid, sxid, gpu, nvlink, ib-flap, link-flap, network, pcie, ecc, mce, thermal, power, oom,
    hung-task, lockup, file-system, disk, node, boot; nccl (an error that NCCL reports), setting,
    unreachable (a watcher gets no answer from a process).
    fatal: jobs do not survive it. device: as users name it: GPU 0000:9b:00, ib6. whose: hardware,
    an application's error (a consequence, never the cause of a stall), cleanup after another fault,
    or a notice. count, time, last: how often, first and last. pids: of processes that it hit.
    """

    kind: str
    text: str
    source: Source
    host: str | None = None
    device: str | None = None
    code: str = ""
    fatal: bool = False
    count: int = 1
    time: float | None = None
    last: float | None = None
    pids: tuple[int, ...] = ()
    whose: Whose = "hardware"
    hits: tuple[int, ...] = ()
    """Ranks of this job whose device it is, as its own line says."""
    coarse: bool = False
    """The source does not say the zone or the year: a time far from others proves nothing."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Operation counts that a library's own watcher reports of a communicator (NCCL RAS).

    counts: rank -> operations launched. dead, silent: ranks that it calls dead, or could not ask.
    Ranks are the communicator's own unless `whole`: it holds all ranks of the job, so its ranks are
    global. members: its known ranks; `Process.rank` is global or None. unnamed: operations and how
    many ranks have launched so many, of ranks that the watcher does not list. A watcher lists the
    rarest count, which may be ahead: counts blame no rank.
    """

    communicator: str
    op: str
    counts: tuple[tuple[int, int], ...]
    source: Source
    time: float | None = None
    dead: tuple[int, ...] = ()
    silent: tuple[int, ...] = ()
    size: int | None = None
    whole: bool = False
    members: tuple[tuple[int, Process], ...] = ()
    unnamed: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Advice:
    """A source says which setting was off that would have shown more: flight-recorder, stacks, ...

    compared: torch compared each call before it ran, as a setting asks.
    """

    key: str
    source: Source


Fact: TypeAlias = (
    Identity | Child | World | Span | Progress | Mismatch | Stack | State | Activity | Paused
    | Death | Stop | Trouble | Counts | Advice
)  # fmt: skip


def ranks(processes: Sequence[Process]) -> tuple[int, ...]:
    """Returns the known ranks, sorted, each once."""
    return tuple(sorted({p.rank for p in processes if p.rank is not None}))
