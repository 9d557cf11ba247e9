"""Reads what NCCL RAS says: output of ncclras as text, as JSON, and of its monitor (2.24 to 2.31).

RAS counts launches of five collectives, no send or recv. It lists the rarest count, which may be
ahead: the facts hold the counts of all ranks, and blame nobody.
"""

import itertools
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from oddrank.finding import ranks_text
from oddrank.inputs import Item, Notes, unix_time
from oddrank.inputs.files import is_text
from oddrank.triage.evidence import Kind, kernel
from oddrank.triage.evidence.lines import lines, numbers, words
from oddrank.triage.facts import Counts, Fact, Identity, Process, Source, Trouble, World

# A line of RAS holds one of these. The first ones stand in no other file.
_OWN = (
    "Communicators...", "launched up to operation", "not launched any operations", "NCCL DIAG [",
    ") MISMATCH", ") INCOMPLETE", ") ERROR", "] PEER_",
)  # fmt: skip
WORDS = words(
    *_OWN, ("Job summary", -6), "NCCL version", "Errors", "ranks have ",
    "The missing rank", "on node ", "ranks reported ", "Communicator ranks", "considered dead",
    "communicator data", "RUNNING  ", "INIT  ", "FINALIZE  ", "ABORT  ", "NOCOMM  ",
    *(f"Rank {digit}" for digit in range(10)), '"nccl_version"', '"PEER_',
)  # fmt: skip
_SURE = re.compile(
    r"Communicators\.\.\.|anks? .*launched (?:up to operation|any operations)|NCCL DIAG \[|"
    r"#\d+-\d+ \([0-9a-f]+\) (?:MISMATCH|INCOMPLETE|ERROR)|\] PEER_[A-Z_]+: "
)
_MOST_TRIED = 1000
_MOST_LISTED = 4096
_JSON = (len(WORDS.each) - 2, len(WORDS.each) - 1)
_BEGINS = {i for i, (word, _) in enumerate(WORDS.each) if word in ("NCCL version", "Job summary")}
_TABLE = re.compile(
    r"^\s*(\d+)\s+\d+\s+\d+\s+[\d-]+\s+(\d+)\s+\d+\s+"
    r"(RUNNING|INIT|FINALIZE|ABORT|NOCOMM)\s+([A-Z,+]+)\s*$"
)
_TOTAL = re.compile(r"^\s+\d+\s+\d+\s+(?:\d+\s+\d+\s+)?(\d+)\s*$")
_HEAD = re.compile(r"#(\d+)-\d+ \(([0-9a-f]+)\) (MISMATCH|INCOMPLETE|ERROR)")
_BEGIN = re.compile(r"Job summary|Communicators\.\.\.|^\s*Errors\s*$")
_SECTION = re.compile(r"Missing communicator data from \d+ job process|considered dead")
_OP = re.compile(
    r"Communicator ranks have different (?:(\w+) operation counts|status)|\d+ ranks have status"
)
_LEVEL = re.compile(r"(\d+) ranks have (?:launched up to operation (\d+)|not launched any)")
_REPORTED = re.compile(r"\d+ ranks reported ([\w ]+)")
_RANK = re.compile(
    r"Rank (\d+)(?: has launched up to operation (?P<op>\d+)| (?P<none>has not launched any "
    r"operations)| has status (?P<status>\w+)| reported (?P<error>[\w ]+?))? -- "
    r"(?:GPU (?P<gpu>\d+)(?: \(NVML (?P<nvml>\d+)\))? managed by process (?P<pid>\d+) on node "
    r"(?P<host>\S+))?"
)
_MISSING = re.compile(r"The missing ranks?: ([\d, ]+)")
_PROCESS = re.compile(r"Process (\d+) on node (\S+) managing GPUs? ([\d,]+)")
_PEER = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\] (PEER_\w+): (.*)")
_DIAG = re.compile(r"NCCL DIAG \[(\w+)\] *(.*)")
_DIAG_BAD = re.compile(
    r"passed verification|mismatch|differ across|% off median|timed out|incomplete|uncorrect|"
    r"deferred|link.* (?:down|inactive)|failed", re.IGNORECASE,
)  # fmt: skip
_DIAG_XID = re.compile(
    r"\b(S?)Xid (\d+) detected (\d+) times?(?: \((.*?)\))? on host ([\w.-]+?)\.?(?:\s|$)"
)
_DIAG_RANKS = re.compile(r"rank\(s\) \{([\d, -]+)\}")
_DIAG_SETTING = re.compile(r"NCCL environment: (\w+)=(.*) on rank\(s\) \{([\d, -]+)\}")
_DIAG_HOST = re.compile(r"\brank \d+ \(([\w.-]+)\)")
_DATES = (
    (re.compile(r"^\W*(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)\W*$"), "%Y-%m-%d %H:%M:%S"),
    (
        re.compile(r"^(\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d)(?: \w+)? (\d{4})$"),
        "%a %b %d %H:%M:%S %Y",
    ),
)
_MOST_RANKS = 1 << 20
# Names in NCCL -> as users call them.
_OPS = {
    "AllGather": "all_gather", "AllReduce": "all_reduce", "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast", "Reduce": "reduce", "AlltoAll": "all_to_all", "Gather": "gather",
    "Scatter": "scatter", "Send": "send", "Recv": "recv", "collective": "",
}  # fmt: skip


def op_name(name: str) -> str:
    """Returns an operation's name as users call it: all_reduce. "": any collective."""
    return _OPS.get(name, name)


@dataclass
class _Block:
    """One communicator: the lines below a line #0-0 (hash)."""

    group: int
    communicator: str
    kind: str
    source: Source
    op: str | None = None
    levels: list[tuple[int, int, list[int]]] = field(default_factory=list)
    """Number of ranks, operations launched, and those of the ranks that are listed."""
    missing: list[int] = field(default_factory=list)
    members: dict[int, tuple[str, int]] = field(default_factory=dict)
    error: str = ""


@dataclass
class _Snapshot:
    """One answer of RAS. lost: silent or dead -> hosts and pids. summary: its table comes now."""

    time: float | None = None
    summary: bool = False
    sizes: dict[int, int] = field(default_factory=dict)
    gpus: int | None = None
    section: str = ""
    lost: dict[str, list[tuple[str, int]]] = field(default_factory=dict)


def has_text(item: Item) -> bool:
    """Returns whether lines of RAS stand in a file."""
    own = (number for number, index in numbers(item, WORDS) or () if index < len(_OWN))
    few = itertools.islice(own, _MOST_TRIED)
    return any(_SURE.search(line) for _, line in lines(item, few))


def has_json(item: Item) -> bool:
    return any(index in _JSON for _, index in numbers(item, WORDS) or ())


def text_facts(item: Item) -> Iterator[Fact]:
    """Yields the facts of a file, in which other lines may stand and answers may repeat."""
    reader = _Reader()
    found = numbers(item, WORDS) or []
    # Users print the date before each answer.
    dates = {number - 1 for number, index in found if index in _BEGINS and number > 1}
    for number, line in lines(item, dates | {number for number, _ in found}):
        for pattern, take in _LINES:
            if match := pattern.search(line):
                yield from take(reader, match, Source(item.name, number))
                break
    yield from reader.end()
    yield from reader.settings()


def ranks_of(text: str) -> tuple[int, ...]:
    """Returns the ranks of a list such as 0-2,5."""
    found: list[int] = []
    for low, high in re.findall(r"(\d{1,7})(?:-(\d{1,7}))?", text):
        found += range(int(low), min(int(high or low), int(low) + _MOST_LISTED) + 1)
    return tuple(found[:_MOST_LISTED])


def _xid(told: re.Match[str], source: Source) -> Iterator[Trouble]:
    """Yields the Xids of a GPU, or those of an NVSwitch, that diagnostics found on a host."""
    switch, code, times, words, host = told.groups()
    trouble: Trouble | None = Trouble("sxid", f"SXid {code}{f': {words}' if words else ''}", source,
                                      code=code, fatal="Fatal" in (words or ""))  # fmt: skip
    if not switch:
        trouble = kernel.xid(int(code[:6]), "")
    if trouble is not None:
        yield replace(trouble, source=source, host=host, count=int(times[:9]))


class _Reader:
    """Goes through the lines. Each method takes one kind of line: the table is _LINES."""

    def __init__(self) -> None:
        self._seen = _Snapshot()
        self._block: _Block | None = None
        self._differ: list[tuple[str, Source]] = []
        self._settings: dict[str, list[tuple[str, tuple[int, ...], Source]]] = defaultdict(list)

    def end(self) -> Iterator[Fact]:
        """Yields the counts of a block that has ended, and who is missing in it."""
        block, seen, self._block = self._block, self._seen, None
        if block is None:
            return
        yield from _counts(block, seen)
        if block.missing:
            lost = [process for several in seen.lost.values() for process in several]
            if len(block.missing) == 1 == len(lost):
                block.members.setdefault(block.missing[0], lost[0])
            died = set(seen.lost.get("dead", ()))
            only_dead = bool(died) and "silent" not in seen.lost
            dead = [r for r in block.missing if only_dead or block.members.get(r) in died]
            yield Counts(
                block.communicator, "", (), block.source, seen.time, tuple(dead),
                tuple(r for r in block.missing if r not in dead), _size(block, seen),
                _whole(block, seen), _members(block, seen),
            )  # fmt: skip

    def date(self, found: re.Match[str], _: Source) -> Iterator[Fact]:
        yield from self.end()
        self._seen = _Snapshot(_date(found[0]))

    def begin(self, found: re.Match[str], _: Source) -> Iterator[Fact]:
        """Takes the first lines of an answer, and of its parts."""
        yield from self.end()
        if found[0] == "Job summary":
            self._seen = _Snapshot(None if self._seen.sizes else self._seen.time)
        self._seen.summary = found[0] == "Job summary"
        if "Errors" not in found[0]:
            self._seen.sizes = {}
        self._seen.section, self._seen.lost = "", {}

    def head(self, found: re.Match[str], source: Source) -> Iterator[Fact]:
        yield from self.end()
        self._block = _Block(int(found[1][:9]), found[2], found[3], source)

    def table(self, found: re.Match[str], _: Source) -> Iterator[Fact]:
        self._seen.sizes[int(found[1][:9])] = min(int(found[2][:9]), _MOST_RANKS)
        yield from ()

    def total(self, found: re.Match[str], source: Source) -> Iterator[Fact]:
        if self._seen.summary:
            self._seen.gpus = int(found[1][:9])
            yield World(self._seen.gpus, source)

    def peer(self, found: re.Match[str], source: Source) -> Iterator[Fact]:
        """Takes an event of the monitor. Only a death is a fact: the rest is everyday life."""
        process = _PROCESS.search(found[3])
        if found[2] in ("PEER_DEAD", "PEER_TIMEOUT_DEAD") and process:
            yield _lost(process, _Snapshot(_date(f"[{found[1]}]"), section="dead"), source)

    def diagnostic(self, found: re.Match[str], source: Source) -> Iterator[Fact]:
        """Takes a line of NCCL's diagnostics. [INFO] tags what failed, and what was not asked."""
        text = found[2].strip()
        if found[1] == "OK" or "unavailable" in text:
            return
        if told := _DIAG_XID.search(text):
            yield from _xid(told, source)
        elif told := _DIAG_SETTING.search(text):
            self._settings[told[1]].append((told[2], ranks_of(told[3]), source))
        elif text.startswith("NCCL environment: mismatch"):
            self._differ.append((text, source))
        elif _DIAG_BAD.search(text) and not text.startswith("NCCL environment"):
            host, on = _DIAG_HOST.search(text), _DIAG_RANKS.search(text)
            fatal = "verification" in text or "uncorrect" in text or "inactive link" in text
            yield Trouble(
                "nccl", f"NCCL's diagnostics say: {text}"[:200], source,
                host[1] if host else None, fatal=fatal, whose="unknown",
                hits=ranks_of(on[1]) if on else (),
            )  # fmt: skip

    def settings(self) -> Iterator[Fact]:
        """Yields which ranks have another setting than most, or that some have."""
        for text, source in self._differ:
            if not any(name in text for name in self._settings):
                yield Trouble("setting", text[:200], source, whose="unknown")
        for name, values in self._settings.items():
            (most, many, _), *others = sorted(values, key=lambda value: -len(value[1]))
            for value, ranks, source in others:
                few = ranks if len(ranks) < len(many) else ()
                text = f"{name}={value}, and {ranks_text(many)} {name}={most}"
                yield Trouble("setting", text, source, whose="unknown", hits=few)

    def section(self, found: re.Match[str], _: Source) -> Iterator[Fact]:
        self._seen.section = "dead" if "dead" in found[0] else "silent"
        yield from ()

    def process(self, found: re.Match[str], source: Source) -> Iterator[Fact]:
        if self._seen.section:
            yield _lost(found, self._seen, source)

    def op(self, found: re.Match[str], _: Source) -> Iterator[Fact]:
        """Takes the line before the counts of one operation, or before other lists of ranks."""
        if self._block is not None:
            yield from _counts(self._block, self._seen)
            self._block.op = None if found[1] is None else op_name(found[1])
            self._block.levels = []

    def level(self, found: re.Match[str], _: Source) -> Iterator[Fact]:
        if self._block is not None:
            value = int((found[2] or "0")[:18])
            self._block.levels.append((int(found[1][:9]), value, []))
        yield from ()

    def reported(self, found: re.Match[str], _: Source) -> Iterator[Fact]:
        if self._block is not None:
            self._block.error = found[1].strip()
        yield from ()

    def missing(self, found: re.Match[str], _: Source) -> Iterator[Fact]:
        if self._block is not None:
            self._block.missing += [int(n[:9]) for n in re.findall(r"\d+", found[1])]
        yield from ()

    def rank(self, found: re.Match[str], source: Source) -> Iterator[Fact]:
        block, seen, rank, groups = self._block, self._seen, int(found[1][:9]), found.groupdict()
        if block is None:
            return
        if groups["pid"] and rank not in block.members:
            block.members[rank] = (groups["host"], int(groups["pid"][:18]))
            index = int((groups["nvml"] or groups["gpu"])[:4])
            yield Identity(_process(rank, block, seen), source, gpu_index=index)
        if block.kind == "INCOMPLETE":
            block.missing.append(rank)
        elif block.kind == "ERROR":
            host, pid = block.members.get(rank, (None, None))
            yield nccl_error(
                groups["error"] or block.error, source, Process(None, host, pid), groups["gpu"],
                seen.time,
            )  # fmt: skip
        elif groups["op"] or groups["none"]:
            block.levels.append((1, int((groups["op"] or "0")[:18]), [rank]))
        elif block.op is not None and block.levels and not groups["status"]:
            block.levels[-1][2].append(rank)


_Take = Callable[[_Reader, re.Match[str], Source], Iterator[Fact]]
_LINES: tuple[tuple[re.Pattern[str], _Take], ...] = (
    *((pattern, _Reader.date) for pattern, _ in _DATES),
    (_BEGIN, _Reader.begin),
    (_HEAD, _Reader.head),
    (_TABLE, _Reader.table),
    (_TOTAL, _Reader.total),
    (_PEER, _Reader.peer),
    (_DIAG, _Reader.diagnostic),
    (_SECTION, _Reader.section),
    (_PROCESS, _Reader.process),
    (_OP, _Reader.op),
    (_LEVEL, _Reader.level),
    (_REPORTED, _Reader.reported),
    (_MISSING, _Reader.missing),
    (_RANK, _Reader.rank),
)


def nccl_error(
    error: str, source: Source, process: Process, gpu: object, when: float | None
) -> Trouble:
    """Makes the fact of an error of a communicator. A remote error is another process's."""
    return Trouble(
        "nccl", f"NCCL reports: {error.lower()}", source, process.host, f"GPU {gpu}", time=when,
        last=when, pid=process.pid, pids=() if process.pid is None else (process.pid,),
        coarse=True, whose="cleanup" if "remote" in error.lower() else "unknown",
    )  # fmt: skip


def _date(line: str) -> float | None:
    for pattern, form in _DATES:
        if found := pattern.match(line):
            with suppress(ValueError):
                read = datetime.strptime(f"{found[1]} {found[2]}", form)
                return unix_time(read.replace(tzinfo=timezone.utc).timestamp())
    return None


def _lost(found: re.Match[str], seen: _Snapshot, source: Source) -> Fact:
    """Makes the fact of a process that RAS gets no answer from: stopped, dead, or cut off."""
    dead = seen.section == "dead"
    host, pid = found[2], int(found[1][:18])
    seen.lost.setdefault(seen.section, []).append((host, pid))
    text = "NCCL RAS calls its process dead" if dead else "its process does not answer NCCL RAS"
    return Trouble(
        "unreachable", text, source, host, f"GPU {found[3]}", fatal=dead, time=seen.time,
        last=seen.time, pid=pid, pids=(pid,), coarse=True,
    )  # fmt: skip


def _counts(block: _Block, seen: _Snapshot) -> Iterator[Fact]:
    """Yields the counts of one operation, of all ranks: those of one level may be unlisted."""
    if block.op is None or not block.levels:
        return
    counts = {rank: value for _, value, listed in block.levels for rank in listed}
    unlisted = [(value, ranks) for ranks, value, listed in block.levels if not listed]
    size = _size(block, seen)
    left = [rank for rank in range(size) if rank not in counts and rank not in block.missing]
    if len(unlisted) == 1 and len(left) == unlisted[0][1]:
        counts.update(dict.fromkeys(left, unlisted[0][0]))
        unlisted = []
    block_counts = tuple(sorted(counts.items()))
    yield Counts(
        block.communicator, block.op, block_counts, block.source, seen.time, size=size,
        whole=_whole(block, seen), members=_members(block, seen), unnamed=tuple(unlisted),
    )  # fmt: skip


def _size(block: _Block, seen: _Snapshot) -> int:
    counted = sum(ranks for ranks, _, _ in block.levels) + len(block.missing)
    return seen.sizes.get(block.group) or min(counted, _MOST_RANKS)


def _whole(block: _Block, seen: _Snapshot) -> bool:
    return seen.gpus is not None and seen.sizes.get(block.group) == seen.gpus


def _members(block: _Block, seen: _Snapshot) -> tuple[tuple[int, Process], ...]:
    return tuple((rank, _process(rank, block, seen)) for rank in sorted(block.members))


def _process(rank: int, block: _Block, seen: _Snapshot) -> Process:
    host, pid = block.members[rank]
    return Process(rank if _whole(block, seen) else None, host, pid)


# JSON.


_MOST_JSON = 256 << 20
_START = re.compile(r'\{\s*"(?:nccl_version|timestamp)"\s*:')
# 2.28.7 and 2.28.9 leave a comma out in missing_ranks[].
_NO_COMMA = re.compile(r'("nvml_dev"\s*:\s*-?\d+)(\s+"status")')
# ncclResult_t
ERRORS = {
    1: "unhandled CUDA error", 2: "system error", 3: "internal error", 4: "invalid argument",
    5: "invalid usage", 6: "remote process error",
}  # fmt: skip
_IN_PROGRESS = 7


def _sniff(item: Item) -> bool:
    return is_text(item) and (has_text(item) or has_json(item))


def _read(items: Sequence[Item], notes: Notes) -> Iterable[Fact]:
    facts: list[Fact] = []
    for item in items:
        if has_json(item):
            facts += _json_facts(item, notes)
        if has_text(item):
            facts += text_facts(item)
    return facts


def _json_facts(item: Item, notes: Notes) -> Iterator[Fact]:
    """Reads all documents of a file; other text may stand between them."""
    if item.size > _MOST_JSON:
        notes.add(item, f"RAS output in JSON over {_MOST_JSON >> 20} MiB is not read")
        return
    try:
        text = item.path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        notes.add(item, f"not readable: {error.strerror}")
        return
    text = _NO_COMMA.sub(r"\1,\2", text)
    decoder, position, line, counted = json.JSONDecoder(), 0, 1, 0
    while start := _START.search(text, position):
        line += text.count("\n", counted, start.start())
        counted = start.start()
        try:
            document, position = decoder.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            notes.add(item, f"line {line}: RAS output in JSON that is cut off or broken")
            position = start.end()
            continue
        source = Source(item.name, line)
        try:
            if "event" in document:
                yield from _event(document, source)
            else:
                yield from _document(document, source)
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
            notes.add(item, f"line {line}: RAS output in JSON with unexpected values")


def _document(document: dict[str, Any], source: Source) -> Iterator[Fact]:
    when = _time(document.get("timestamp"))
    communicators = [c for c in document["communicators"] if isinstance(c, dict)]
    everyone = {
        (str(rank["host"]), int(rank["pid"]), int(rank.get("nvml_dev", rank["cuda_dev"])))
        for communicator in communicators
        for rank in (*communicator["ranks"], *communicator.get("missing_ranks", ()))
    }
    for communicator in communicators:
        yield from _communicator(communicator, len(everyone), when, source)


def _communicator(
    communicator: dict[str, Any], job: int, when: float | None, source: Source
) -> Iterator[Fact]:
    size = int(communicator["size"])
    whole = size == job
    members: dict[int, Process] = {}
    for row in (*communicator["ranks"], *communicator.get("missing_ranks", ())):
        rank, known = int(row["rank"]), int(row["pid"]) > 0
        members[rank] = Process(
            rank if whole else None,
            str(row["host"]) if known else None,
            int(row["pid"]) if known else None,
        )
        if known:
            yield Identity(members[rank], source, gpu_index=int(row.get("nvml_dev", -1)))
    yield from _errors(communicator["ranks"], source, when)
    missing = [row for row in communicator.get("missing_ranks", ()) if row.get("status")]
    dead = tuple(int(r["rank"]) for r in missing if r["status"].get("considered_dead"))
    silent = tuple(
        int(r["rank"])
        for r in missing
        if r["status"].get("unresponsive") and int(r["rank"]) not in dead
    )
    rows, told = communicator["ranks"], []
    for op in dict.fromkeys(op for row in rows for op in row["collective_counts"]):
        each = sorted((int(r["rank"]), int(r["collective_counts"].get(op, 0))) for r in rows)
        if any(count for _, count in each):
            told.append((op_name(op), tuple(each)))
    for name, counts in told or [("", ())]:
        yield Counts(
            str(communicator["hash"]).removeprefix("0x"), name, counts, source, when,
            dead, silent, size, whole, tuple(sorted(members.items())),
        )  # fmt: skip


def _errors(rows: Sequence[dict[str, Any]], source: Source, when: float | None) -> Iterator[Fact]:
    for row in rows:
        for name in ("init_state", "async_error"):
            code = int(row.get("status", {}).get(name, 0))
            if code not in (0, _IN_PROGRESS):
                error = ERRORS.get(code, f"error {code}")
                process = Process(None, str(row["host"]), int(row["pid"]))
                yield nccl_error(error, source, process, int(row["cuda_dev"]), when)


def _event(document: dict[str, Any], source: Source) -> Iterator[Fact]:
    """Reads an event of the monitor. Only a death is a fact: the rest happens in healthy jobs."""
    if document["event"] in ("PEER_DEAD", "PEER_TIMEOUT_DEAD") and "peer" in document:
        peer, when = document["peer"], _time(document.get("timestamp"))
        gpus = ",".join(str(int(gpu)) for gpu in peer["cuda_devs"])
        yield Trouble(
            "unreachable", "NCCL RAS calls its process dead", source, str(peer["host"]),
            f"GPU {gpus}", fatal=True, time=when, last=when, pid=int(peer["pid"]),
            pids=(int(peer["pid"]),), coarse=True,
        )  # fmt: skip


def _time(text: object) -> float | None:
    """Returns Unix seconds of a local time without zone, taken as UTC."""
    try:
        read = datetime.fromisoformat(str(text))
        return unix_time(read.replace(tzinfo=timezone.utc).timestamp())
    except ValueError:
        return None


KIND = Kind("NCCL RAS", binary=False, sniff=_sniff, read=_read)
