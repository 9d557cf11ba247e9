"""Reads stacks: py-spy, faulthandler, gdb, pystack, profiling.sampling, tracebacks and others.

Facts: Stack and Identity. Deaths are made from logs.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

from oddrank import _native
from oddrank.finding import grouped
from oddrank.inputs import Item, Notes
from oddrank.triage.evidence import Kind, lines, rank_in_name, without_other_ranks
from oddrank.triage.evidence.log_lines import Writers
from oddrank.triage.facts import Child, Fact, Frame, Identity, Process, Source, Stack, Thread

_LIST = re.compile(
    rb"^ +(all_reduce|all_gather\w*|broadcast|barrier|reduce_scatter\w*|recv|send)\s*$", re.M
)
_OPS = re.compile(r"all_\w+|broadcast\w*|barrier|reduce\w*|send|recv|isend|irecv|gather|scatter")
# A crash shows where a process died. An abort, mostly by a watchdog, shows where it was stuck.
_CRASHES = ("Segmentation fault", "Bus error", "Illegal instruction", "Floating-point exception")


# Words of stacks' first lines, and how many lines behind the last of them are read of a large log.
_WORDS = lines.words("most recent call ", "MainThread", "Thread ", "#0  0x")
_LARGE, _BEHIND = 1 << 20, 20_000


# Rank, local rank, task, number behind a host, pid, host, pod, as a launcher's prefix says them.
Writer: TypeAlias = tuple[
    int | None, int | None, int | None, int | None, int | None, str | None, str | None
]  # fmt: skip


class _Seen(NamedTuple):
    """One dump of one process, as _core.pyi's read_stack_files returns it."""

    source: int
    line: int
    pid: int
    parent: int
    headline: str
    writer: Writer
    fatal: str
    timed_out: bool
    list: bool


class _Row(NamedTuple):
    """One thread of a dump."""

    process: int
    stack: int
    line: int
    id: int
    name: str
    state: str
    gil: bool | None
    wants_gil: bool
    form: str


class _Frames(tuple[Frame, ...]):
    """Frames of a stack that many threads share: its hash is found once."""

    @cached_property
    def _hash(self) -> int:
        return super().__hash__()

    def __hash__(self) -> int:
        return self._hash


def _last(item: Item) -> int:
    """Returns the line behind which a large log holds no more of stacks; 0: not known."""
    if item.size < _LARGE or (found := lines.numbers(item, _WORDS)) is None:
        return 0
    return max((number for number, _ in found), default=0) + _BEHIND


def _sniff(item: Item) -> bool:
    if b"\0" in item.head[:4096]:
        return False
    if len(_LIST.findall(item.head)) >= 4:
        return True
    return bool(_native.core().has_stacks(os.fsencode(item.path)))


def _read(items: Sequence[Item], notes: Notes) -> Iterator[Fact]:
    found = _native.core().read_stack_files(
        [os.fsencode(item.path) for item in items], [_last(item) for item in items]
    )
    for index, why in found["failed"]:
        notes.add(items[index], why)
    if found["dropped"]:
        notes.add("stacks", f"{found['dropped']} threads or frames are too many: left out")
    seen = [_Seen(*one) for one in found["processes"]]
    rows = [_Row(*one) for one in found["threads"]]
    processes = _Namer(items, seen, rows).processes()
    frames = [_Frames(Frame(*frame) for frame in stack) for stack in found["stacks"]]
    looks = _looks(processes, rows)
    threads: dict[int, list[Thread]] = defaultdict(list)
    skip = _prose(seen, rows, frames)
    for row in rows:
        one = seen[row.process]
        if row.process in skip or one.fatal.startswith(_CRASHES):
            continue
        state = row.state or ("waits for the GIL" if row.wants_gil else "")
        source = Source(items[one.source].name, row.line)
        aborted = one.timed_out or one.fatal.startswith("Aborted")
        threads[row.stack].append(
            Thread(processes[row.process], row.name, row.id or None, state, row.gil, source,
                   look=looks[row.process], timed_out=aborted, own=row.form == "faulthandler")
        )  # fmt: skip
    before: dict[int, tuple[Frame, ...]] = {}
    for kind, link, process, stack, line, last in found["errors"]:
        if kind == "exception" and last.startswith("KeyboardInterrupt"):
            # A signal ended a stuck rank: the traceback shows where.
            source = Source(items[seen[process].source].name, line)
            thread = Thread(processes[process], "MainThread", source=source)
            stood = _stood(frames[stack], before.get(process, ())) if link == "context" else ()
            if stood:
                yield Stack(stood, (thread,))
            else:
                threads[stack].append(thread)
        before[process] = frames[stack]
    for stack, members in threads.items():
        if frames[stack] or len(members) < len(rows):
            yield Stack(frames[stack], tuple(members))
    yield from _identities(processes, seen, items)
    by_pid = {(one.source, one.pid): p for p, one in zip(processes, seen, strict=True) if one.pid}
    for process, one in zip(processes, seen, strict=True):
        if parent := by_pid.get((one.source, one.parent)):
            yield Child(process, parent, Source(items[one.source].name, one.line))


def _stood(frames: tuple[Frame, ...], before: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Returns where a process stood that was interrupted while it handled an error of a collective.

    A signal waits until a collective returns, and this one failed, as its peers were ended, too.
    """
    if before and "torch/distributed/" in before[0].file:
        last = (before[-1].function, before[-1].file)
        for index, frame in enumerate(frames):
            if (frame.function, frame.file) == last:
                return (*before, *frames[index + 1 :])
    return ()


def _looks(processes: Sequence[Process], rows: Sequence[_Row]) -> dict[int, int]:
    """Numbers the dumps of each process. Only dumps with threads count."""
    of = grouped((processes[number], number) for number in sorted({row.process for row in rows}))
    return {number: look for numbers in of.values() for look, number in enumerate(numbers)}


def _prose(
    seen: Sequence[_Seen], rows: Sequence[_Row], frames: Sequence[tuple[Frame, ...]]
) -> set[int]:
    """Returns the "processes" of lists of words that are no functions of stacks."""
    listed = grouped((one.source, row) for row in rows if (one := seen[row.process]).list)
    skip: set[int] = set()
    for found in listed.values():
        known = sum(bool(_OPS.fullmatch(frames[row.stack][0].function)) for row in found)
        if known < 4 or 2 * known < len(found):
            skip.update(row.process for row in found)
    return skip


def _identities(
    processes: Sequence[Process], seen: Sequence[_Seen], items: Sequence[Item]
) -> Iterator[Identity]:
    first = dict(reversed([*zip(processes, seen, strict=True)]))
    for process in dict.fromkeys(processes):
        if [process.rank, process.pid, process.host].count(None) < 2:
            yield Identity(process, Source(items[first[process].source].name, first[process].line))


_RANK = re.compile(r"(?<!local[\W_])(?<![a-z])rank[\W_]*(\d{1,7})(?!\d)", re.I)
_PID = re.compile(r"(?<![a-z])pid[\W_]*(\d{1,10})(?!\d)", re.I)
_HOST = re.compile(r"\b(?:host(?:name)?|ip)[=: ]+([\w.-]*\w)", re.I)
_OF_HOST = re.compile(r"(?:node|host)[\W_]?\d", re.I)
_LAST_NUMBER = re.compile(r"[._-](\d{1,6})(?:\.(?!\d)\w+)*$")
_ENDING = re.compile(r"(?:\.(?:txt|out|log|err|md|json|stack|stacks|dump|trace|gz|zst))+$", re.I)
_WORD_OF_DUMP = re.compile(
    r"(?:^|(?<=[._-]))(?:traces?|stacks?|dumps?|py-?spy|pystack|gdb|bt|pstack|hang|faulthandler)"
    r"(?:[._-]|$)",
    re.I,
)


class _Namer:
    """Says which process each dump is of: from its lines, its headline, prefix and file's name."""

    def __init__(self, items: Sequence[Item], seen: Sequence[_Seen], rows: Sequence[_Row]) -> None:
        self._items = items
        self._seen = seen
        self._shapes = Counter(re.sub(r"\d+", "#", item.name) for item in items)
        self._threads: dict[int, list[_Row]] = defaultdict(list)
        for row in rows:
            self._threads[row.process].append(row)
        self._in_file = Counter(one.source for one in seen)
        by_file = grouped((one.source, one.writer) for one in seen)
        self._writers = {file: Writers(of, None, set()) for file, of in by_file.items()}
        # The children of a process are dumped behind it: they are no other ranks.
        known = {(one.source, one.pid) for one in seen if one.pid}
        self._children = {
            number for number, one in enumerate(seen) if (one.source, one.parent) in known
        }
        # A task with several processes is a node, not a rank.
        tasks = Counter(
            (one.source, one.writer[2])
            for number, one in enumerate(seen)
            if one.pid and number not in self._children
        )
        self._of_nodes = {source for (source, _), count in tasks.items() if count > 1}
        self._pids: dict[int, set[int]] = defaultdict(set)
        for number, one in enumerate(seen):
            if number not in self._children:
                self._pids[one.source].add(self._pid(number, one) or -1)

    def processes(self) -> list[Process]:
        made: list[Process] = []
        nth: Counter[tuple[int, str]] = Counter()
        ids: dict[tuple[int, str], list[tuple[set[int], Process]]] = defaultdict(list)
        for number, one in enumerate(self._seen):
            process = self._named(number, one)
            if process.rank is None and process.pid is None:
                # Dumps with the same threads, by their addresses, are of the same process.
                where = (one.source, f"{one.writer}\0{one.headline}")
                own = {row.id for row in self._threads[number]} - {0}
                same = next((p for known, p in ids[where] if known & own), None)
                if same is None:
                    nth[where] += 1
                    same = replace(process, label=self._label(one, nth[where]))
                    ids[where].append((own, same))
                process = same
            made.append(process)
        return made

    def _label(self, one: _Seen, nth: int) -> str:
        _, local, task, _, _, host, pod = one.writer
        item = self._items[one.source]
        place = one.headline or host or pod or item.label or item.name
        if local is not None or task is not None:
            place = f"task {task}" if local is None else f"local rank {local}"
        several = one.list or nth > 1 or self._in_file[one.source] > 1
        return f"stack {nth} of {place}" if several else place

    def _pid(self, number: int, one: _Seen) -> int | None:
        if one.pid:
            return one.pid
        # pystack names threads by the kernel's numbers: the main thread's is the process's.
        own = [row.id for row in self._threads[number] if row.form == "pystack"]
        return min(own, default=None)

    def _named(self, number: int, one: _Seen) -> Process:
        name = self._items[one.source].name
        if number in self._children:
            return Process(None, self._host(one, name), one.pid)
        said = self._writers[one.source].process(one.writer)
        rank = said.rank
        if rank == one.writer[2] and one.source in self._of_nodes:
            rank = None
        if rank is None and (found := _RANK.search(one.headline)):
            rank = int(found[1])
        pid = self._pid(number, one) or said.pid
        if pid is None and (found := _PID.search(one.headline)):
            pid = int(found[1])
        if rank is None:
            rank = self._rank_of_file(number, one, name)
        return Process(rank, said.host or self._host(one, name), pid)

    def _host(self, one: _Seen, name: str) -> str | None:
        if one.headline and not _PID.match(one.headline):
            if found := _HOST.search(one.headline):
                return found[1]
            if not _RANK.search(one.headline):
                is_file = _ENDING.search(one.headline)
                return _host_of_name(one.headline) or (None if is_file else one.headline)
        base = name.rpartition("/")[2].rpartition(":")[2]
        alike = self._shapes[re.sub(r"\d+", "#", name)] > 1
        return _host_of_name(base) if alike or _OF_HOST.search(base) else None

    def _rank_of_file(self, number: int, one: _Seen, name: str) -> int | None:
        if self._in_file[one.source] > 1 and len(self._pids[one.source]) > 1:
            return None
        base = name.rpartition("/")[2].rpartition(":")[2]
        if (rank := rank_in_name(base)) is not None:
            return rank
        item = self._items[one.source]
        if item.rank is not None or item.label:
            return item.rank
        found = _LAST_NUMBER.search(_ENDING.sub("", without_other_ranks(base)))
        if found is None or int(found[1]) in self._pids[one.source]:
            return None
        alike = self._shapes[re.sub(r"\d+", "#", name)]
        # The last number of a log's name may be an attempt's.
        of_dump = (alike > 1 and self._threads[number]) or _WORD_OF_DUMP.search(base)
        return int(found[1]) if of_dump and int(found[1]) < max(64, 4 * alike) else None


def _host_of_name(name: str) -> str | None:
    """Returns the host that a file such as trace-node03.out is named after."""
    base = _ENDING.sub("", name.rpartition("/")[2])
    base = re.sub(r"[._-]?rank[\W_]*\d+[._-]?", "", base, flags=re.I)
    host = _WORD_OF_DUMP.sub("", base).strip("._-")
    if host == base and not _OF_HOST.search(base):
        return None
    return host if re.search(r"[A-Za-z]", host) and re.search(r"\d", host) else None


KIND = Kind("stacks", binary=False, sniff=_sniff, read=_read)
