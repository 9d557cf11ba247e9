"""What _core exports, one section per subject."""

from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any, Literal, NoReturn, SupportsIndex

build_info: dict[str, str]

# stats
def ratio_of_medians(
    over: Sequence[float], under: Sequence[float], confidence: float, replicates: int, seed: int, /
) -> tuple[float, float, float, int, int]:
    """Returns the ratio of medians, its interval by a block bootstrap, and both blocks' lengths."""

# bench
def bench_fill(
    address: int, dtype: str, op: str, source: int, world: int, first: int, count: int, turn: int, /
) -> None:
    """Writes elements first..first+count of rank `source`'s contribution to a collective."""

def bench_check(
    address: int, dtype: str, op: str, source: int, world: int, first: int, count: int, turn: int, /
) -> tuple[int, int, float, float]:
    """Returns (number wrong, index of the first in the buffer or -1, expected, got)."""

def bench_noise(address: int, bytes: int, dtype: str, op: str, *, low: bool) -> None:
    """low: small values, whose sums stay finite for longest."""

def bench_turns(dtype: str, op: str, world: int, count: int, most: int, /) -> int:
    """Returns the turns until every rank has contributed to one of `count` elements."""

# control
class Timestamps:
    @property
    def count(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    def enter(self) -> None: ...
    def leave(self) -> None: ...
    def starts(self) -> bytes: ...
    def durations(self) -> bytes: ...

class Worker:
    @property
    def guard(self) -> int: ...
    def mark_stage(self, number: int, stage: str, /) -> None: ...
    def mark_step(self, step: str, waiting: bool, /) -> None: ...
    def mark_waiting_in_join(self, step: str, /) -> None: ...
    def wait(self, seconds: float, /) -> tuple[str, int, str, str, int]: ...
    def sync_clock(self, seconds: float, shortcut: bool, /) -> tuple[int, int]: ...
    def timestamps(self, capacity: int, /) -> Timestamps: ...
    def send_address(self, address: str, /) -> None: ...
    def publish(self, payload: bytes, /) -> None: ...
    def fail(self, text: str, /) -> None: ...

class Hub:
    def __init__(
        self, listener: int, world: int, token: str, host: str, deadline: float,
        heartbeat_ms: int = 0, silence_ms: int = 0,
    ) -> None: ...  # fmt: skip
    def begin(self, number: int, stage: str, parameters: str, seconds: float, /) -> None: ...
    def wait(self, seconds: float, /) -> str: ...
    def refresh(self, seconds: float, /) -> None: ...
    def send_roster(self) -> None: ...
    def end(self, code: int, seconds: float, /) -> None: ...
    def snapshot(self) -> list[dict[str, Any]]: ...
    def results(self) -> dict[int, bytes]: ...
    def result_count(self) -> int: ...
    def remaining(self) -> float: ...
    def notes(self) -> tuple[str, list[tuple[int, bool, str]], int, str]: ...

def start_worker(
    rank: int, world: int, local_rank: int, local_world: int, node: int, host: str, launcher: str,
    fetcher: list[str], address: str, rendezvous_file: str, published: bool, deadline: float,
    join_deadline: float, no_verdict: int, /,
) -> Worker: ...  # fmt: skip
def control_interfaces(first: str, /) -> list[str]: ...
def control_interface_towards(address: str, /) -> str: ...
def control_parse_address(address: str, /) -> tuple[list[str], int, str]: ...
def ignore_launchers_signals() -> None: ...
def control_keep(rank: int, seconds: float, passed_on: list[int], /) -> NoReturn: ...
def kill_this_process_in(seconds: float, /) -> None: ...

# logs
def find_time(line: str, reference_ns: int, /) -> tuple[int, str, bool] | None:
    """Returns (nanoseconds, clock, whether in whole seconds) of the first time that a line names.

    Without a year it is the last one before reference_ns.
    """

def scan_lines(
    path: bytes, needles: Sequence[tuple[str, int]], most: int = 20000, speakers: bool = True,
    ranges: Sequence[tuple[int, int]] = (), begin: tuple[int, int] = (0, 0),
) -> dict[str, Any]:  # fmt: skip
    """Returns the lines that contain one of the needles, (word, lines that follow) each.

    Keeps `most` of a needle. ranges: looks only at these lines, (first, last) from 1, sorted and
    apart. begin: one of `marks`, (lines, bytes) before it; ranges begin behind its line.
    """

class LogReaders:
    def __init__(
        self, words: Sequence[tuple[str, int]], others: Sequence[Sequence[tuple[str, int]]], /
    ) -> None:
        """words: (word, lines that follow) each. others: lists of such, of further readers."""
    def read(self, path: bytes, /) -> tuple[dict[str, Any], list[list[tuple[int, int]]]]:
        """As scan_lines(); and for each other reader (line, index of the word)."""

class LogSplitter:
    def __init__(
        self, folder: str, number: Callable[[tuple[Any, ...]], int], strip: bool, /
    ) -> None:
        """number: writer -> the number that add() gave to its file."""
    def add(self, name: str, /) -> int:
        """Makes a file, which must not exist, and returns its number."""
    def feed(self, chunk: bytes) -> None: ...
    def finish(self) -> None: ...
    def flush(self) -> None: ...
    def shares(self) -> list[tuple[int, int]]: ...

def merge_logs(
    sources: Sequence[tuple[bytes, int]], fd: int, strip: bool, clean: bool,
    label: Callable[[int, tuple[Any, ...]], str],
) -> dict[str, Any]:  # fmt: skip
    """Writes the lines of logs, (path, reference_ns) each, in order of time.

    label: (source, writer) -> what to put in front.
    """

# metrics
class Metrics:
    def __init__(
        self, references_ns: Sequence[int], csv: bool = ..., pattern: str = ...
    ) -> None: ...
    def feed(self, file: int, bytes: bytes) -> None: ...
    def end(self, file: int) -> None: ...
    def pause(self, file: int) -> None: ...
    def replace(self, file: int) -> None: ...
    def wanted(self) -> int: ...
    def flush(self) -> None: ...
    def silence(self, seconds: float) -> None: ...
    def suspects(self) -> list[dict[str, Any]]: ...
    def figures(self) -> dict[str, Any]: ...
    def lines(self) -> int: ...
    def csv(self) -> bytes: ...
    def points(self) -> list[tuple[float, float, float, float, float, bool]]: ...

# printing
def printing_open(folders: Sequence[str], timeout_s: float) -> tuple[str, str]:
    """Returns (path, why earlier folders were refused); no path: forked children alone share it."""

def printing_prefix(prefix: str) -> None: ...
def printflock(
    *args: object, sep: str | None = " ", end: str | None = "\n", file: object = None,
    flush: object = False,
) -> None: ...  # fmt: skip

# replicas
REPLICAS_CHUNK: int

def digest_blocks(
    ranges: Sequence[tuple[int, int, int]], block: int = 0, threads: int = 1
) -> bytes:
    """Returns 16 bytes for each block of each range of host memory (address, begin, end).

    block: a multiple of REPLICAS_CHUNK; 0: whole ranges.
    """

# selftest
def verify_host_memory(
    bytes: int, seed: int, *, thorough: bool = False, damage: int | None = None,
    damage_pass: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """thorough: also each word's own address, and a walking bit."""

def probe_folders(
    folders: Sequence[str], name: str, seconds: float, repeats: int, /
) -> list[dict[str, Any]]: ...
def time_host_memory(bytes: int, repeats: int, slices: int, /) -> dict[str, Any]:
    """CPU seconds to read, write and copy `bytes`, each repeat as its fastest slice."""

def time_host_compute(seconds: float, repeats: int, /) -> dict[str, Any]:
    """CPU seconds that `operations` take in registers, each repeat as its fastest run."""

def host_fingerprint() -> dict[str, int]: ...
def golden_fingerprint() -> dict[str, int]: ...

# trace
class section:
    def __init__(self, name: str, /) -> None: ...
    def __enter__(self) -> section: ...
    def __exit__(self, *error: object) -> Literal[False]: ...

def step(number: SupportsIndex, /) -> None: ...
def count_step() -> None: ...
def mark(text: str, /) -> None: ...

TRACE_MAGIC: bytes  # with which a record begins
TRACE_LARGEST: int  # bytes of the largest record

class TraceExport:
    def __init__(self, path: str, /) -> None: ...
    def start(
        self, process_id: int, origin_ns: int, clocks: Sequence[tuple[int, int, int]],
        lines: bool, operations: Mapping[str, str], /,
    ) -> bool:  # fmt: skip
        """clocks: those in the snapshots of all records of its boot. False: ticks are no times."""
    def chunk(self) -> bytes:
        """Returns the next MiB of text, each event after a comma; empty at the end."""
    @property
    def events(self) -> int: ...
    @property
    def trouble(self) -> str: ...

def trace_arm(
    folders: Sequence[str], job: str, bytes: int, place: tuple[int, int, int, int],
    is_child: bool, host: str, arguments: str, rules: Sequence[tuple[str, str]],
    stdlib: Sequence[str], site: Sequence[str], budget: float = 0.0,
) -> str:  # fmt: skip
    """Makes this process's record file, or continues it; returns its path.

    folders: the first with room is used; place: rank, local rank, world, node; rules: (package,
    level); stdlib, site: folders that end with a slash; budget: share of CPU time, 0: no limit.
    """

def trace_armed() -> bool: ...
def run_unpack_snapshot(payload: bytes, /) -> dict[str, Any]:
    """threads: (tid, letter of its state, where it sleeps in the kernel, seconds of CPU time)."""

def trace_check(on: bool, /) -> None:
    """For tests: compares the shadow stack with the frames after every event."""

def trace_check_result() -> tuple[int, int]: ...  # (events compared, stacks that differed)
def trace_pause_sampler() -> None: ...  # before a fork, and before Python finalizes
def trace_resume_sampler() -> None: ...
def trace_disarm() -> None: ...
def trace_object() -> object: ...  # for threading.settrace(); None: threads need no hook
def trace_raised(raised: str, message: str, at: str, has_ended: bool, /) -> None:
    """at: line, function and file, in lines; of a thread behind a line `thread NAME`."""

def trace_remove_dead_jobs(base: str, own: str, keep: int, /) -> int:
    """Keeps `own`, the last `keep` of several ranks and of one; returns how many were removed."""

def trace_lines(code: CodeType, offsets: list[int], /) -> list[int | None]:
    """For tests: the lines that a record of this code gives; None where there is no line."""

def trace_snapshot(path: str, content: bytes | None = None) -> dict[str, Any]:
    """content: the record, if it is in no file. Raises OddrankError if it is no record."""

def trace_history(
    path: str, last: int, content: bytes | None = None
) -> tuple[
    dict[str, Any], list[tuple[int | None, int, str, tuple[str, str, int | None], str]], str
]:
    """Returns (process, the last events and marks, why parts could not be read).

    An event is (ns, tid, kind, (function, file, line), mark).
    """

def trace_slim(path: str, /) -> bytes: ...
def trace_kernel_states(ids: Sequence[int], /) -> list[tuple[str, int, int, int]]:
    """Returns (state, CPU ticks, wait status of a zombie, start, where in the kernel it sleeps)."""

def trace_collective_sink() -> object: ...
def trace_unseen(function: Callable[[Any], None]) -> Callable[[Any], None]:
    """Up to 3.11 no profiler or tracer sees its calls."""

def trace_quiet_imports(function: Callable[..., Any]) -> Callable[..., Any]:
    """For importlib's _call_with_frames_removed: imports without events up to 3.11."""

class TraceCalls:
    def __init__(
        self, group: tuple[str, str, str, Sequence[int], int, int], operation: str, role: int,
        side: int, type: str,
    ) -> None:  # fmt: skip
        """group: name, back end, description, ranks, size and own rank."""
    def begin(self, put: int, take: int, partner: int, /) -> int:
        """put, take: bytes; partner: a rank in the group, -1: none. Returns a ticket, or 0."""
    def timed(self, sequence: int | None, bytes: int, begin_ns: int, ns: int, /) -> None: ...

def trace_collective_numbered(ticket: int, number: int, /) -> None: ...  # before the next two
def trace_collective_closed(ticket: int, failed: bool, /) -> None: ...  # this or the next, once
def trace_collective_issued(ticket: int, /) -> None: ...  # a device goes on, and tells no end
def trace_collectives(
    path: str, content: bytes | None = None, timed: bool = False
) -> list[tuple[Any, ...]]:
    """Returns the calls in the order of issue; timed: those whose time on a device is known.

    Each: thread, group, sequence, op, bytes, state, begin and end (wall-clock ns; timed: the issue,
    and the device's time later), data type, bytes in, bytes out, peer, tag, root, failed, number.
    group: name, back end, description, size, own rank, ranks as ((first, step, count), ...).
    """

class TraceText:
    def __init__(
        self, says: bool, counts: bool, callers: bool, start_ns: int | None, pid: int,
        script: str, roots: Sequence[str],
    ) -> None: ...  # fmt: skip
    def next(self, lines_of: Callable[[str], list[str]]) -> str | None:
        """Returns the text of the oldest events left. lines_of: path -> its source lines."""
    def lines(self) -> list[tuple[str, int, int]]: ...  # (file, line, count)
    def called(self) -> list[tuple[str, str]]: ...  # (file, qualified name)
    def callers(self) -> list[tuple[tuple[str, str], tuple[str, str]]]:
        """(caller, called) as in called()."""

def trace_text_begin() -> None: ...
def trace_text_close() -> None: ...
def trace_text_collect() -> None: ...
def trace_text_end() -> None: ...
def trace_text_forked() -> None: ...  # in a child: leaves the parent's events to the parent
def trace_text_printer(tid: int, /) -> None:
    """Sets the native id of the thread that calls next(); it is not shown. 0: there is none."""

def trace_text_wait(ms: int, /) -> None:
    """Waits until there are many events, or trace_text_wake(), or so long."""

def trace_text_wake() -> None: ...

# triage
def read_flight_records(
    files: Sequence[tuple[bytes, int, int]], threads: int, /
) -> dict[str, list[Any]]:
    """files: path, rank by its name (-1: unknown), time of the last change in ns."""

def read_stack_files(paths: Sequence[bytes], last: Sequence[int] = ()) -> dict[str, Any]:
    """Reads each file up to about a line of `last`, 0: all. failed: (index, why)."""

def read_stack_text(text: bytes, /) -> dict[str, Any]: ...
def has_stacks(path: bytes, /) -> bool: ...  # whether one is in the first 16 MiB
def wait_graph(
    progress: Sequence[tuple[object, ...]], groups: Sequence[Sequence[int]], /
) -> dict[str, Any]: ...
