"""Lines of torch's watchdogs, 1.13 to 2.15: which call timed out on which rank, in which group.

And those in which Horovod, JAX, engines and torch's fr_trace name ranks that did not come.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from oddrank.finding import grouped
from oddrank.inputs import Item, Notes, unix_time
from oddrank.triage.evidence import Kind, lines, log_lines
from oddrank.triage.evidence.log_lines import Line, Log
from oddrank.triage.evidence.nccl_ras import ranks_of
from oddrank.triage.facts import (
    MOST_RANKS,
    Advice,
    Call,
    Fact,
    Group,
    Mismatch,
    Process,
    Progress,
    Source,
    Trouble,
    Variant,
    World,
)

# OpType= -> the name as users call it. The others become lower case.
_OPS = {
    "ALLREDUCE": "all_reduce", "ALLREDUCE_COALESCED": "all_reduce_coalesced",
    "_ALLREDUCE_SPARSE": "all_reduce_sparse", "ALLGATHER": "all_gather",
    "_ALLGATHER_BASE": "all_gather_into_tensor", "ALLGATHER_COALESCED": "all_gather_coalesced",
    "_REDUCE_SCATTER_BASE": "reduce_scatter_tensor", "ALLTOALL": "all_to_all",
    "ALLTOALL_BASE": "all_to_all_single", "RECVANYSOURCE": "recv", "UNKNOWN": "",
}  # fmt: skip
# Their numbers differ between members: a batch of sends and receives counts as one call.
_OF_PAIRS = frozenset({"SEND", "RECV", "RECVANYSOURCE", "COALESCED"})
# Calls in which every rank must give as many elements.
_SAME_SIZES = frozenset({"ALLREDUCE", "BROADCAST", "REDUCE", "_ALLGATHER_BASE",
                         "_REDUCE_SCATTER_BASE"})  # fmt: skip
_CLOSE = 64  # numbers of the calls in which ranks of one group stand are close to each other
# A gap among the ranks of a group that spoke is a member; of a few that spoke, nothing is known.
_MOST_SILENT = 2 / 3

_WORK = re.compile(r"Work([A-Z]*CCL)\((?:SeqNum=(\d+), )?OpType=(\w+)")
_NUMEL = re.compile(r"NumelIn=(\d+), NumelOut=(\d+)")
_RAN = re.compile(r"ran for (\d+) milliseconds")
_GROUP = re.compile(r"\[PG (?:ID )?(\d+)(?: PG GUID ([^\s(\]]+))?\s?(?:\(([^)]*)\))? Rank (\d+)\]")
_RANK = re.compile(r"\[Rank (\d+)\]")
# torch 2.15's back end nccl2 says no more of a call.
_NCCL2 = re.compile(r"\[TC\]\[rank=(\d+)\]\[name=([^\]]*)\]")
_GAVE_UP = re.compile(r"Watchdog caught collective operation timeout|timed out after|to timeout - ")
_AT_WORK = re.compile(r"at (?:\w+ )?work(?: sequence id)?: (-?\d+)")
_LAST = re.compile(r"[Ll]ast (enqueued|completed)(?: \w+)? work: (-?\d+)")
_DUMP_FROM = re.compile(r"collective timeout from\s+rank (\d+)")
_BARRIER = re.compile(r"Ranks? ([\d, ]+?) failed to pass monitoredBarrier")
_NOT_JOINED = re.compile(r"\[([\d, ]+)\] finished collective #(\d+), but didn't join collective")
_NOT_FINISHED = re.compile(r"\[([\d, ]+)\] joined but didn't finish collective #(\d+)")
_FINGERPRINT = re.compile(
    r"Rank (\d+) is running (?:inconsistent )?collective: CollectiveFingerPrint\("
    r"(?:SequenceNumber=(\d+)[, ]*)?OpType=(\w+?)(?:, TensorShape=\[([^\]]*)\])?"
    r"(?:, TensorDtypes=(\w+))?[,)]"
)
_LIST = r"[\[{(]?([\d, -]*)"
_MISSING = re.compile(
    rf"(?:([\w./-]+) \[)?(?:[Mm]issing ranks:|imed out task names:"
    rf"|did not respond: ranks?) ?{_LIST}"
)
# Below these lines Horovod and JAX list the ranks, and fr_trace lists a group's members.
_HEADS = ("issing ranks:", "task names:")
_LISTED = re.compile(
    r"(?:^|[\s>\]:|])(?:(\d{1,7}): \[([\w./-]+)|/job:jax_worker/\S*/task:(\d{1,7})\s*$)"
)
_EXPECTED = re.compile(rf"expected ranks: {_LIST}")
_MOST_BELOW, _MOST_NEAR = 256, 16_384
_LOST_BY_JAX = re.compile(
    r"/job:jax_worker/\S*/task:(\d+)\b.{0,80}"
    r"(?:heartbeat timeout|set to ERROR|is unhealthy|disconnected)"
)
_SIZE = re.compile(r"world_size=(\d+), worker_count=|/(\d+) clients joined")
_DUMP_FILE = re.compile(r"Flight Recorder debug info to (\S+)")
_DEFAULT = "default_pg"
_WORLD = Group("0", (), _DEFAULT)
_STOOD = ("Heartbeat monitor timed out", "watchdog got stuck for", "watchdog hang")
_ADVICE = {
    "Stack trace of the failed collective not found": "flight-recorder",
    "Could not acquire GIL": "stacks", "watchdog got stuck for": "stacks",
    "watchdog hang": "stacks", "Detected mismatch between": "compared",
}  # fmt: skip


@dataclass
class _Seen:
    """One rank's lines on one group, which the lines name by number and text."""

    process: Process
    name: str  # "": the lines name no group
    text: str
    member: int  # the rank in the group
    source: Source
    seq: int | None = None
    op: str = ""
    numel: tuple[str, ...] = ()
    enqueued: int | None = None
    completed: int | None = None
    time: float | None = None
    since: float | None = None
    timed_out: bool = False
    stood: bool = False
    """Its watchdog made no progress: the process stood in the driver or in NCCL."""
    backend: str = "nccl"


@dataclass
class _Lines:
    """Collects the lines of all files. Keys: the writer's rank or the writer, then the group."""

    seen: dict[tuple[object, str, int], _Seen] = field(default_factory=dict)
    victims: dict[int, Source] = field(default_factory=dict)
    others: list[Fact] = field(default_factory=list)
    issued: dict[int, dict[Call, dict[int, Source]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )
    """Number -> call -> the ranks that were about to issue it, as torch compares them."""

    def add(self, log: Log, line: Line) -> None:
        source = log.source(line)
        if advice := _ADVICE.get(line.word):
            self.others.append(Advice(advice, source))
        if line.word == "Detected mismatch between":
            self._fingerprints(line, source)
        elif line.word == "monitoredBarrier":
            self._barrier(line, source)
        elif line.word == " collective #":
            self._desync(line, source)
        elif line.word == "Flight Recorder debug info to":
            if found := _DUMP_FILE.search(line.text):
                self.others.append(Advice(f"flight-recorder-dump:{found[1]}", source))
        elif not advice or line.word in _STOOD:
            if found := _DUMP_FROM.search(line.text):
                # That rank timed out first and signalled the others: it waited, too.
                self.victims.setdefault(int(found[1]), source)
            self._counters(line, source)

    def _counters(self, line: Line, source: Source) -> None:
        """Reads "Watchdog caught ..." and "... last enqueued work: ..."."""
        group, plain = _GROUP.search(line.text), _RANK.search(line.text)
        if nccl2 := _NCCL2.search(line.text):
            member, name, text = int(nccl2[1]), nccl2[2], ""
        elif group:
            member, name, text = int(group[4]), group[2] or group[1], group[3] or ""
        elif plain:
            member, name, text = int(plain[1]), "", ""
        else:
            return
        if name == "0" and (nccl2 or (group and group[1] == "0")):
            text = text or _DEFAULT
        work = _WORK.search(line.text)
        at = _AT_WORK.search(line.text)
        seq = int(work[2]) if work and work[2] else int(at[1]) if at else None
        seen = self._seen(line, source, (name, text, member), seq)
        if work:
            seen.op, seen.backend = work[3], work[1].lower()
            if numel := _NUMEL.search(line.text):
                seen.numel = (numel[1], numel[2])
        if seq is not None and (seen.seq is None or seq < seen.seq):
            seen.seq = seq
        gave_up = work or at or _GAVE_UP.search(line.text)
        seen.timed_out |= gave_up is not None
        seen.stood |= line.word in _STOOD
        for name, number in _LAST.findall(line.text):
            setattr(seen, name, max(int(number), 0))
        if line.time is not None:
            seen.time = line.time if seen.time is None else min(seen.time, line.time)
            if ran := _RAN.search(line.text):
                seen.since = unix_time(line.time - float(ran[1]) / 1000)

    def _seen(
        self, line: Line, source: Source, where: tuple[str, str, int], seq: int | None
    ) -> _Seen:
        name, text, member = where
        process = line.process
        if text == _DEFAULT or (process.rank is None and not name):
            # Ranks of the default group are the job's; a launcher's prefix may be a local one.
            process = replace(process, rank=member, label="")
        who: object = process.rank if process.rank is not None else (line.writer, member)
        if name:
            key = (who, name, member)
            unnamed = self.seen.get((who, "", member))
            # "Watchdog caught" names no group; the line after it does, with the same number.
            if key not in self.seen and unnamed and seq is not None and unnamed.seq == seq:
                del self.seen[(who, "", member)]
                unnamed.name, unnamed.text = name, text
                self.seen[key] = unnamed
        else:
            key = (who, "", member)
            for (other, _, its), seen in self.seen.items():
                if other == who and its == member and seq is not None and seen.seq == seq:
                    return seen
            if key in self.seen and seq is not None and self.seen[key].seq not in (None, seq):
                key = (who, "", member + (len(self.seen) << 32))  # another group, or a later call
        if key not in self.seen:
            self.seen[key] = _Seen(process, name, text, member, source)
        return self.seen[key]

    def _stand(
        self, ranks: Iterable[int], group: Group, line: Line, source: Source, *counts: Any,
        **more: Any,
    ) -> None:  # fmt: skip
        self.others += [
            Progress(Process(rank), group, source, *counts, time=line.time, **more)  # type: ignore[misc]
            for rank in ranks
        ]

    def _barrier(self, line: Line, source: Source) -> None:
        """monitored_barrier(): rank 0 names the ranks that did not come."""
        if not (found := _BARRIER.search(line.text)):
            return
        group = Group("monitored_barrier", (), "the gloo group of monitored_barrier")
        own = line.process.rank if line.process.rank is not None else 0
        plain = _RANK.search(line.text)
        call = Call(1, "monitored_barrier")
        # Else these are ranks of a part of the job. It asks one after another: those between came.
        missing = ranks_of(found[1]) if not plain or int(plain[1]) == own else ()
        came = {own, *ranks_of(f"0-{missing[-1]}" if missing else "")} - {*missing}
        self._stand(sorted(came), group, line, source, "gloo", 1, completed=0, open=(call,),
                    open_count=1, timed_out=True)  # fmt: skip
        self._stand(missing, group, line, source, "gloo", 0, completed=0)

    def _desync(self, line: Line, source: Source) -> None:
        """The desync report: TORCH_NCCL_DESYNC_DEBUG=1."""
        if found := _NOT_JOINED.search(line.text):
            seq = int(found[2])
            self._stand(ranks_of(found[1]), _WORLD, line, source, "nccl", seq, completed=seq)
        if found := _NOT_FINISHED.search(line.text):
            seq = int(found[2])
            call = Call(seq, "", state="started")
            self._stand(ranks_of(found[1]), _WORLD, line, source, "nccl", seq, seq - 1, (call,), 1)

    def _fingerprints(self, line: Line, source: Source) -> None:
        """TORCH_DISTRIBUTED_DEBUG=DETAIL: two ranks about to issue different calls."""
        both = list(_FINGERPRINT.finditer(line.text))[:2]
        if len(both) < 2:
            return
        seq = max(int(found[2] or 0) for found in both)
        for found in both:
            dtype = (found[5] or "").lower()
            call = Call(seq or None, _op(found[3]), sizes=found[4] or "", dtype=dtype)
            self.issued[seq][call].setdefault(int(found[1]), source)
            # Without a number: unknown.
            self._stand([int(found[1])], _WORLD, line, source, enqueued=seq or None, open=(call,),
                        completed=seq - 1 if seq else None, open_count=1)  # fmt: skip

    def add_awaited(self, log: Log) -> None:
        told = list(log.of("awaited"))
        heads = [line.number for line in told if line.word in _HEADS][:_MOST_NEAR]
        near = {number for head in heads for number in range(head + 1, head + _MOST_BELOW)}
        below = dict(lines.lines(log.item, near))
        for line in told:
            source = log.source(line)
            if found := _LOST_BY_JAX.search(line.text):
                self.others.append(Trouble("unreachable", line.text.strip()[:300], source,
                                           time=line.time, hits=(int(found[1]),)))  # fmt: skip
            elif found := _SIZE.search(line.text):
                self.others.append(World(int(found[1] or found[2]), source))
            elif len(lists := _MISSING.findall(line.text)) == 1:  # else of several calls
                numbers = range(line.number + 1, line.number + _MOST_BELOW)
                self._missing(line, source, lists[0], [below.get(n, "") for n in numbers])

    def _missing(
        self, line: Line, source: Source, told: tuple[str, str], below: Sequence[str]
    ) -> None:
        """Adds those that did not come to a call, and that at least one rank waits for them."""
        op, missing = told[0], [*ranks_of(told[1])]
        for text in below:
            if (found := _LISTED.search(text)) is None:
                break
            missing.append(int(found[1] or found[3]))
            op = op or found[2] or ""
        if not missing:
            return
        expected = _EXPECTED.search("\n".join(below[:5]))
        here = [rank for rank in ranks_of(expected[1]) if rank not in missing] if expected else []
        here = here or [next(rank for rank in range(len(missing) + 1) if rank not in missing)]
        group, call = Group(op, (), "all ranks"), Call(1, op or "a collective")
        self._stand(here, group, line, source, "gloo", 1, completed=0, open=(call,), open_count=1,
                    timed_out=True)  # fmt: skip
        self._stand(missing, group, line, source, "gloo", 0, completed=0, whole=True)


def _mismatch(group: Group, seq: int, ranks: Mapping[Call, Iterable[int]], source: Source) -> Fact:
    """Makes the fact of calls that differ: the commonest comes first."""
    variants = [Variant(call, tuple(sorted(of)), source) for call, of in ranks.items()]
    differs = next((name for name in ("op", "sizes") if len({getattr(c, name) for c in ranks}) > 1),
                   "dtype")  # fmt: skip
    variants.sort(key=lambda variant: -len(variant.ranks))
    return Mismatch(group, seq, differs, tuple(variants))  # type: ignore[arg-type]


def _op(name: str) -> str:
    return _OPS.get(name, name.lower().strip("_"))


def _read(items: Sequence[Item], notes: Notes) -> Iterable[Fact]:
    lines = _Lines()
    logs = list(log_lines.read(items, notes))
    for log in logs:
        yield from log_lines.identities(log)
        for line in log.of("watchdog"):
            lines.add(log, line)
        lines.add_awaited(log)
    yield from log_lines.clocked(logs, _facts(lines))


def _facts(lines: _Lines) -> Iterator[Fact]:
    yield from lines.others
    for seq, calls in lines.issued.items():
        source = next(iter(next(iter(calls.values())).values()))
        yield _mismatch(_WORLD, seq, calls, source)
    ranked = {(s.name, s.member) for s in lines.seen.values() if s.process.rank is not None}
    # A process without a prefix may repeat the line of one with a rank: it is the same process.
    seen = [
        each for each in lines.seen.values()
        if each.process.rank is not None or (each.name, each.member) not in ranked
    ]  # fmt: skip
    stood = [each for each in seen if each.stood]
    if len({each.process.key or each.member for each in stood}) > 1:
        # Several stood still: they wait for something, and the first to speak is not the culprit.
        for each in stood:
            each.timed_out = True
    _name(seen)
    ops = {(each.name, each.seq): each.op for each in seen if each.op}
    groups = _groups(seen)
    for each, group in zip(seen, groups, strict=True):
        yield _progress(each, group, ops)
    yield from _mismatches(seen, groups)
    told = {each.process.rank for each in seen}
    for rank, source in lines.victims.items():
        if rank not in told:
            group = Group("", (), f"an unnamed group of rank {rank}")
            yield Progress(Process(rank), group, source, "nccl", timed_out=True)


def _name(seen: Sequence[_Seen]) -> None:
    """Gives a line without a group the group in which another rank waits in the same call."""
    names: dict[object, set[tuple[str, str]]] = defaultdict(set)
    for each in seen:
        if each.name and each.op:
            names[each.seq, each.op, each.numel].add((each.name, each.text))
    for each in seen:
        same = names.get((each.seq, each.op, each.numel), ())
        if not each.name and len(same) == 1:
            ((each.name, each.text),) = same


def _progress(seen: _Seen, group: Group, ops: Mapping[tuple[str, int | None], str]) -> Progress:
    pending = int(seen.stood or (seen.timed_out and seen.seq is not None))
    if seen.enqueued is not None and seen.completed is not None:
        pending = max(pending, seen.enqueued - seen.completed)
    calls: tuple[Call, ...] = ()
    counts = seen.enqueued, seen.completed
    seq = seen.seq if seen.timed_out else None
    if seq is None and pending and seen.completed is not None:
        seq = seen.completed + 1  # a signal made it dump: the oldest call that is open
    if seen.op in _OF_PAIRS:
        counts = None, None
    elif seq is not None:
        sizes = " -> ".join(dict.fromkeys(seen.numel))
        op = seen.op or ops.get((seen.name, seq), "")
        calls = (Call(seq, _op(op), sizes=sizes, since=seen.since),)
    return Progress(seen.process, group, seen.source, seen.backend, *counts, calls, pending,
                    time=seen.time, timed_out=seen.timed_out)  # fmt: skip


def _groups(seen: Sequence[_Seen]) -> list[Group]:
    """Returns each one's group. A group gets its ranks where the lines imply them.

    Members are numbered in the order of their global ranks. If rank 7 of the group is global
    rank 7, ranks 0 to 7 are all members. There may be more, so a few ranks' lines imply nothing.
    """
    unnamed = _one_group([each for each in seen if not each.name])
    by_name = grouped((each.name, each) for each in seen)
    found = []
    for each in seen:
        rank = each.process.rank
        alone = Group("", (), f"an unnamed group of rank {rank}")
        if not each.name:
            found.append(_WORLD if unnamed else alone)
            continue
        members = {(one.member, one.process.rank) for one in by_name[each.name]}
        if len({member for member, _ in members}) < len(members):
            # Several groups of the same name: nothing says which ranks belong together.
            found.append(Group(each.name, (), f"{each.text or each.name}, of rank {rank}"))
            continue
        highest = max((member for member, of in members if member == of), default=-1)
        first_ones = highest < MOST_RANKS and all(m == of for m, of in members)
        known = first_ones and _MOST_SILENT * (highest + 1) < len(members)
        ranks = tuple(range(highest + 1)) if known else ()
        found.append(Group(each.name, () if each.text == _DEFAULT else ranks, each.text))
    return found


def _one_group(unnamed: Sequence[_Seen]) -> bool:
    """Returns whether lines that name no group can all be of the default one.

    Then each rank stands in one call, and the numbers of these are close.
    """
    ranks = [each.process.rank for each in unnamed]
    numbers = [each.seq for each in unnamed if each.seq is not None]
    return len(set(ranks)) == len(ranks) and bool(numbers) and max(numbers) - min(numbers) <= _CLOSE


def _mismatches(seen: Sequence[_Seen], groups: Sequence[Group]) -> Iterator[Fact]:
    """Yields the calls at which members of a group wait in different operations."""
    calls = grouped(
        ((group, each.seq), each) for each, group in zip(seen, groups, strict=True)
        if each.seq is not None and each.op and each.op not in _OF_PAIRS and group.name
    )  # fmt: skip
    for (group, seq), several in calls.items():
        variants: dict[Call, list[int]] = defaultdict(list)
        told = {each.op: each.numel for each in several if each.numel}
        for each in several:
            numel = each.numel or told.get(each.op, ())  # a line that was cut tells none
            sizes = " -> ".join(dict.fromkeys(numel)) if each.op in _SAME_SIZES else ""
            if each.process.rank is not None:
                variants[Call(seq, _op(each.op), sizes=sizes)].append(each.process.rank)
        if len(variants) > 1:
            yield _mismatch(group, seq, variants, several[0].source)


KIND = Kind("watchdog", binary=False,
            sniff=lambda item: log_lines.has(item, "watchdog", "awaited"), read=_read)  # fmt: skip
