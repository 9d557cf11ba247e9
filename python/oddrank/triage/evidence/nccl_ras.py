"""Reads what NCCL RAS says: output of ncclras, as text, and of its monitor (2.24 to 2.31).

RAS counts launches of five collectives, no send or recv. It lists the rarest count, which may be
ahead: the facts hold the counts of all ranks, and blame none.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from oddrank.finding import ranks_text
from oddrank.inputs import Item
from oddrank.triage.evidence import Kind, kernel, time_in
from oddrank.triage.evidence.lines import any_tells, lines, numbers, words
from oddrank.triage.facts import Counts, Fact, Identity, Process, Source, Trouble, World

# A line of RAS holds one of these. The first ones stand in no other file.
_OWN = words(
    "Communicators...", "launched up to operation", "not launched any operations", "NCCL DIAG [",
    ") MISMATCH", ") INCOMPLETE", ") ERROR", "] PEER_",
)  # fmt: skip
WORDS = words(
    *_OWN.each, ("Job summary", -6), "NCCL version", "Errors", "ranks have ",
    "The missing rank", "on node ", "ranks reported ", "Communicator ranks", "considered dead",
    "communicator data", "RUNNING  ", "INIT  ", "FINALIZE  ", "ABORT  ", "NOCOMM  ",
    *(f"Rank {digit}" for digit in range(10)),
)  # fmt: skip
_SURE = re.compile(
    r"Communicators\.\.\.|anks? .*launched (?:up to operation|any operations)|NCCL DIAG \[|"
    r"#\d+-\d+ \([0-9a-f]+\) (?:MISMATCH|INCOMPLETE|ERROR)|\] PEER_[A-Z_]+: "
)
_MOST_LISTED = 4096
_BEGINS = {i for i, (word, _) in enumerate(WORDS.each) if word in ("NCCL version", "Job summary")}
_PROCESS = r"Process (\d+) on node (\S+) managing GPUs? ([\d,]+)"
# Method of _Reader -> the lines that it takes. The first that fits takes a line.
_LINES = tuple((take, re.compile(pattern)) for take, pattern in (
    ("date",
     r"^\W*\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\W*$"
     r"|^\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d(?: \w+)? \d{4}$"),
    ("begin", r"Job summary|Communicators\.\.\.|^\s*Errors\s*$"),
    ("head", r"#(\d+)-\d+ \(([0-9a-f]+)\) (MISMATCH|INCOMPLETE|ERROR)"),
    ("table",
     r"^\s*(\d+)\s+\d+\s+\d+\s+[\d-]+\s+(\d+)\s+\d+\s+"
     r"(RUNNING|INIT|FINALIZE|ABORT|NOCOMM)\s+([A-Z,+]+)\s*$"),
    ("total", r"^\s+\d+\s+\d+\s+(?:\d+\s+\d+\s+)?(\d+)\s*$"),
    ("peer", r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\] (PEER_\w+): (.*)"),
    ("diagnostic", r"NCCL DIAG \[(\w+)\] *(.*)"),
    ("section", r"Missing communicator data from \d+ job process|considered dead"),
    ("process", _PROCESS),
    ("of_block",
     r"(?P<different>Communicator ranks have different (?:(?P<op>\w+) operation counts|status)"
     r"|\d+ ranks have status)|\d+ ranks reported (?P<reported>[\w ]+)"
     r"|(?P<level>\d+) ranks have (?:launched up to operation (?P<up_to>\d+)|not launched any)"
     r"|The missing ranks?: (?P<missing>[\d, ]+)"),
    ("rank",
     r"Rank (\d+)(?: has launched up to operation (?P<op>\d+)| (?P<none>has not launched any "
     r"operations)| has status (?P<status>\w+)| reported (?P<error>[\w ]+?))? -- "
     r"(?:GPU (?P<gpu>\d+)(?: \(NVML (?P<nvml>\d+)\))? managed by process (?P<pid>\d+) on node "
     r"(?P<host>\S+))?"),
))  # fmt: skip
_DEATHS = ("PEER_DEAD", "PEER_TIMEOUT_DEAD")
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
_MOST_RANKS = 1 << 20
# Names in NCCL -> as users call them; "": any collective.
_OPS = {
    "AllGather": "all_gather", "AllReduce": "all_reduce", "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast", "Reduce": "reduce", "collective": "",
}  # fmt: skip


@dataclass
class _Block:
    """One communicator: the lines below a line #0-0 (hash)."""

    group: int
    communicator: str
    kind: str
    source: Source
    seen: "_Snapshot"
    op: str | None = None
    levels: list[tuple[int, int, list[int]]] = field(default_factory=list)
    """Number of ranks, operations launched, and the ranks that are listed."""
    missing: list[int] = field(default_factory=list)
    members: dict[int, tuple[str, int]] = field(default_factory=dict)
    error: str = ""

    @property
    def size(self) -> int:
        counted = sum(ranks for ranks, _, _ in self.levels) + len(self.missing)
        return self.seen.sizes.get(self.group) or min(counted, _MOST_RANKS)

    @property
    def whole(self) -> bool:
        """Whether it has all ranks of the job."""
        return self.seen.gpus is not None and self.seen.sizes.get(self.group) == self.seen.gpus

    def process(self, rank: int) -> Process:
        host, pid = self.members[rank]
        return Process(rank if self.whole else None, host, pid)

    def counts(self, counts: dict[int, int], **more: Any) -> Counts:
        return Counts(
            self.communicator, counts=tuple(sorted(counts.items())), source=self.source,
            time=self.seen.time, size=self.size, whole=self.whole,
            members=tuple((rank, self.process(rank)) for rank in sorted(self.members)),
            **{"op": "", **more},
        )  # fmt: skip


@dataclass
class _Snapshot:
    """One answer of RAS. lost: silent or dead -> hosts and pids. summary: its table comes now."""

    time: float | None = None
    summary: bool = False
    sizes: dict[int, int] = field(default_factory=dict)
    gpus: int | None = None
    section: str = ""
    lost: dict[str, list[tuple[str, int]]] = field(default_factory=dict)


def _facts(item: Item) -> list[Fact]:
    """Returns the facts of a file, in which other lines may stand and answers may repeat."""
    reader = _Reader()
    found = numbers(item, WORDS) or []
    # Users print the date before each answer.
    dates = {number - 1 for number, index in found if index in _BEGINS and number > 1}
    for number, line in lines(item, dates | {number for number, _ in found}):
        for take, pattern in _LINES:
            if match := pattern.search(line):
                getattr(reader, take)(match, Source(item.name, number))
                break
    reader.end()
    reader.settings()
    return reader.facts


def ranks_of(text: str) -> tuple[int, ...]:
    """Returns the ranks of a list such as 0-2,5."""
    found: list[int] = []
    for low, high in re.findall(r"(\d{1,7})(?:-(\d{1,7}))?", text):
        found += range(int(low), min(int(high or low), int(low) + _MOST_LISTED) + 1)
    return tuple(found[:_MOST_LISTED])


def _xid(told: re.Match[str], source: Source) -> Iterator[Trouble]:
    """Yields the Xids of a GPU, or the SXids of an NVSwitch, that diagnostics found on a host."""
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
        self.facts: list[Fact] = []
        self._seen = _Snapshot()
        self._block: _Block | None = None
        self._differ: list[tuple[str, Source]] = []
        self._settings: dict[str, list[tuple[str, tuple[int, ...], Source]]] = defaultdict(list)

    def end(self) -> None:
        """Adds the counts of a block that has ended, and its missing ranks."""
        block, seen, self._block = self._block, self._seen, None
        if block is None:
            return
        self._counts(block)
        if block.missing:
            lost = [process for several in seen.lost.values() for process in several]
            if len(block.missing) == 1 == len(lost):
                block.members.setdefault(block.missing[0], lost[0])
            died = set(seen.lost.get("dead", ()))
            only_dead = bool(died) and "silent" not in seen.lost
            dead = [r for r in block.missing if only_dead or block.members.get(r) in died]
            silent = tuple(r for r in block.missing if r not in dead)
            self.facts.append(block.counts({}, dead=tuple(dead), silent=silent))

    def _counts(self, block: _Block) -> None:
        """Adds all ranks' counts of one operation: the ranks of one level may be unlisted."""
        if block.op is None or not block.levels:
            return
        counts = {rank: value for _, value, listed in block.levels for rank in listed}
        unlisted = [(value, ranks) for ranks, value, listed in block.levels if not listed]
        ranks = range(block.size)
        left = [rank for rank in ranks if rank not in counts and rank not in block.missing]
        if len(unlisted) == 1 and len(left) == unlisted[0][1]:
            counts.update(dict.fromkeys(left, unlisted[0][0]))
            unlisted = []
        self.facts.append(block.counts(counts, op=block.op, unnamed=tuple(unlisted)))

    def date(self, found: re.Match[str], _: Source) -> None:
        self.end()
        self._seen = _Snapshot(time_in(found[0])[0])

    def begin(self, found: re.Match[str], _: Source) -> None:
        """Takes the first lines of an answer, and of its parts."""
        self.end()
        if found[0] == "Job summary":
            self._seen = _Snapshot(None if self._seen.sizes else self._seen.time)
        self._seen.summary = found[0] == "Job summary"
        if "Errors" not in found[0]:
            self._seen.sizes = {}
        self._seen.section, self._seen.lost = "", {}

    def head(self, found: re.Match[str], source: Source) -> None:
        self.end()
        self._block = _Block(int(found[1][:9]), found[2], found[3], source, self._seen)

    def table(self, found: re.Match[str], _: Source) -> None:
        self._seen.sizes[int(found[1][:9])] = min(int(found[2][:9]), _MOST_RANKS)

    def total(self, found: re.Match[str], source: Source) -> None:
        if self._seen.summary:
            self._seen.gpus = int(found[1][:9])
            self.facts.append(World(self._seen.gpus, source))

    def peer(self, found: re.Match[str], source: Source) -> None:
        """Takes an event of the monitor. Only a death is a fact: the rest is everyday life."""
        process = re.search(_PROCESS, found[3])
        if found[2] in _DEATHS and process:
            when = time_in(found[1])[0]
            self.facts.append(_lost(process[2], int(process[1][:18]), process[3], source, when))

    def diagnostic(self, found: re.Match[str], source: Source) -> None:
        """Takes a line of NCCL's diagnostics. [INFO] tags what failed, and what was not asked."""
        text = found[2].strip()
        if found[1] == "OK" or "unavailable" in text:
            return
        if told := _DIAG_XID.search(text):
            self.facts += _xid(told, source)
        elif told := _DIAG_SETTING.search(text):
            self._settings[told[1]].append((told[2], ranks_of(told[3]), source))
        elif text.startswith("NCCL environment: mismatch"):
            self._differ.append((text, source))
        elif _DIAG_BAD.search(text) and not text.startswith("NCCL environment"):
            host, on = _DIAG_HOST.search(text), _DIAG_RANKS.search(text)
            fatal = "verification" in text or "uncorrect" in text or "inactive link" in text
            self.facts.append(Trouble(
                "nccl", f"NCCL's diagnostics say: {text}"[:200], source,
                host[1] if host else None, fatal=fatal, whose="unknown",
                hits=ranks_of(on[1]) if on else (),
            ))  # fmt: skip

    def settings(self) -> None:
        """Adds which ranks have another setting than most, or that some have."""
        for text, source in self._differ:
            if not any(name in text for name in self._settings):
                self.facts.append(Trouble("setting", text[:200], source, whose="unknown"))
        for name, values in self._settings.items():
            (most, many, _), *others = sorted(values, key=lambda value: -len(value[1]))
            for value, ranks, source in others:
                few = ranks if len(ranks) < len(many) else ()
                text = f"{name}={value}, and {ranks_text(many)} {name}={most}"
                self.facts.append(Trouble("setting", text, source, whose="unknown", hits=few))

    def section(self, found: re.Match[str], _: Source) -> None:
        self._seen.section = "dead" if "dead" in found[0] else "silent"

    def process(self, found: re.Match[str], source: Source) -> None:
        seen, host, pid = self._seen, found[2], int(found[1][:18])
        if seen.section:
            seen.lost.setdefault(seen.section, []).append((host, pid))
            dead = seen.section == "dead"
            self.facts.append(_lost(host, pid, found[3], source, seen.time, dead=dead))

    def of_block(self, found: re.Match[str], source: Source) -> None:
        """Takes what stands below the head of a communicator."""
        block, told = self._block, found.groupdict()
        if block is None:
            return
        if told["different"]:  # the line before the counts of one operation, or before other lists
            self._counts(block)
            block.op = _OPS.get(told["op"], told["op"])
            block.levels = []
        elif told["level"]:
            block.levels.append((int(told["level"][:9]), int((told["up_to"] or "0")[:18]), []))
        elif told["reported"]:
            block.error = told["reported"].strip()
        else:
            block.missing += [int(n[:9]) for n in re.findall(r"\d+", told["missing"])]

    def rank(self, found: re.Match[str], source: Source) -> None:
        block, seen, rank, groups = self._block, self._seen, int(found[1][:9]), found.groupdict()
        if block is None:
            return
        if groups["pid"] and rank not in block.members:
            block.members[rank] = (groups["host"], int(groups["pid"][:18]))
            index = int((groups["nvml"] or groups["gpu"])[:4])
            self.facts.append(Identity(block.process(rank), source, gpu_index=index))
        if block.kind == "INCOMPLETE":
            block.missing.append(rank)
        elif block.kind == "ERROR":
            host, pid = block.members.get(rank, (None, None))
            error = (groups["error"] or block.error).lower()
            self.facts.append(Trouble(
                "nccl", f"NCCL reports: {error}", source, host, f"GPU {groups['gpu']}",
                time=seen.time, last=seen.time, pids=() if pid is None else (pid,), coarse=True,
                whose="cleanup" if "remote" in error else "unknown",
            ))  # fmt: skip
        elif groups["op"] or groups["none"]:
            block.levels.append((1, int((groups["op"] or "0")[:18]), [rank]))
        elif block.op is not None and block.levels and not groups["status"]:
            block.levels[-1][2].append(rank)


def _lost(
    host: str, pid: int, gpus: str, source: Source, when: float | None, *, dead: bool = True
) -> Trouble:
    """Makes the fact of a process that RAS gets no answer from: stopped, dead, or cut off."""
    text = "NCCL RAS calls its process dead" if dead else "its process does not answer NCCL RAS"
    return Trouble(
        "unreachable", text, source, host, f"GPU {gpus}", fatal=dead, time=when, last=when,
        pids=(pid,), coarse=True,
    )  # fmt: skip


KIND = Kind(
    "NCCL RAS", binary=False, sniff=lambda item: any_tells(item, _OWN, _SURE.search),
    read=lambda items, _: [fact for item in items for fact in _facts(item)],
)  # fmt: skip
