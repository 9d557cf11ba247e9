"""Reads the lines of NCCL_DEBUG=INFO: who is who, what each rank called, and failed connections.

With NCCL_DEBUG_SUBSYS=COLL each call prints its opCount. Calls that differ at the same opCount of a
communicator are a mismatch; the last opCounts are counts, as RAS has them: they blame nobody.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from oddrank.finding import duration
from oddrank.inputs import Item, Notes
from oddrank.machine.xid import pci_slot
from oddrank.triage.evidence import Kind
from oddrank.triage.evidence.lines import any_tells, matching, words
from oddrank.triage.evidence.nccl_ras import op_name
from oddrank.triage.facts import (
    Call,
    Counts,
    Fact,
    Group,
    Identity,
    Mismatch,
    Process,
    Source,
    Trouble,
    Variant,
    World,
)
from oddrank.triage.matching import Signature, first_difference

_WORDS = words(
    "opCount ", "- Init COMPLETE", "- Init START", "NCCL WARN NET", "Got completion from peer",
    "Call to ibv_", "async fatal event", "Got async event", "Bootstrap : Using",
    "NET/Socket : Using", "NET/IB: WQE ",
)  # fmt: skip
_WHO = re.compile(
    r"(?P<host>[\w.-]+):(?P<pid>\d{1,10}):\d+ (?:\[-?\d+\] )?(?:\S+:\d+ )?(?:\([^)]*\) )?"
    r"NCCL (?:INFO|WARN) (?P<text>.*)"
)
_INIT = re.compile(
    r"comm (?P<comm>0x[0-9a-f]+) rank (?P<rank>\d+) nranks (?P<size>\d+) cudaDev \d+"
    r"(?: nvmlDev (?P<nvml>\d+))?(?: busId (?P<bus>[0-9a-f]+))?(?P<rest>.*)"
    r"- Init (?P<stage>START|COMPLETE)"
)
_ID = re.compile(r"commId (0x[0-9a-f]+)")
_PARENT = re.compile(r"parent (0x[0-9a-f]+) (?:splitCount|childCount) (-?\d+) color (-?\d+)")
_COLL = re.compile(
    r"(?P<op>\w+): opCount (?P<count>[0-9a-f]+) sendbuff \S+ recvbuff \S+ count (?P<elements>\d+) "
    r"datatype (?P<dtype>\d+) op \d+ root (?P<root>-?\d+) comm (?P<comm>0x[0-9a-f]+) "
    r"\[nranks=(?P<size>\d+)\]"
)
_COMPLETION = re.compile(r"Got completion from peer (?P<peer>[^<\s]+)<\d+> with (?:status=|error )"
                         r"(?P<status>\d+)")  # fmt: skip
_ADDRESS = re.compile(r"(?:Bootstrap : Using|NET/Socket : Using|OOB) (?:\[\d+\])?[\w.@-]+:([\d.]+|"
                      r"[0-9a-f:]+)<\d+>")  # fmt: skip
_PORT = re.compile(r"(mlx5_\w+|\w+_\d+):\d+ (?:Got )?async (?:fatal )?event ?: (.*)")
_WQE = re.compile(
    r"NET/IB: WQE (?:stall|slow).*peer=([^<\s|]+).*local: .*dev=(\S+) port=(\d+)"
    r".*remote: qpn=(\d+)(?:.* age=(\d+)ns)?"
)
_QP = re.compile(r"Call to (ibv_\w+) failed with (?:error )?(?:(\d+) )?([\w ]+)")
# Values of ibv_wc_status. 5 follows another error.
_STATUS = {
    4: "memory protection (status 4)",
    10: "the remote side refused access (status 10)",
    12: "the other side did not acknowledge (status 12)",
    13: "the other side was not ready to receive (status 13)",
}
_FLUSHED = 5
_TYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
          "bfloat16", "float8_e4m3", "float8_e5m2")  # fmt: skip
_MOST_RANKS = 1 << 20
_PAIR = frozenset({"Send", "Recv"})
_Key = tuple[str, int, str]
"""Host, pid and address of a communicator: unique in the job."""


@dataclass
class _Rank:
    """One rank of a communicator: where it is, and what it called: opCount -> calls."""

    rank: int
    size: int
    communicator: str
    process: Process
    source: Source
    gpu: str = ""
    gpu_index: int | None = None
    calls: dict[int, list[tuple[Call, Source]]] = field(default_factory=dict)
    pairs: bool = False
    complete: bool = False
    """Its communicator was set up."""


@dataclass
class _Job:
    ranks: dict[_Key, _Rank] = field(default_factory=dict)
    calls: dict[_Key, list[tuple[int, int, Call, bool, Source]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    addresses: dict[str, str] = field(default_factory=dict)
    """Address -> host."""
    lost: dict[tuple[str, int], list[tuple[str, Source]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Peer's address and status -> who complained."""
    troubles: list[Trouble] = field(default_factory=list)


def _read(items: Sequence[Item], notes: Notes) -> Iterable[Fact]:
    job = _Job()
    for item in items:
        for number, line in matching(item, _WORDS, notes):
            if found := _WHO.search(line):
                _take(job, found, Source(item.name, number))
    yield from _facts(job)


def _take(job: _Job, found: re.Match[str], source: Source) -> None:
    host, pid, text = found["host"], int(found["pid"]), found["text"]
    if match := _COLL.search(text):
        pair, dtype = match["op"] in _PAIR, int(match["dtype"][:4])
        call = Call(
            None, op_name(match["op"]),
            root=int(match["root"]) if match["op"] in ("Broadcast", "Reduce") else None,
            dtype=_TYPES[dtype] if dtype < len(_TYPES) else f"type {dtype}",
            sizes=match["elements"], state="enqueued",
        )  # fmt: skip
        count = int(match["count"][:16], 16)
        key = (host, pid, match["comm"])
        job.calls[key].append((count, int(match["size"][:9]), call, pair, source))
    elif match := _INIT.search(text):
        bus, nvml = match["bus"], match["nvml"]
        job.ranks[host, pid, match["comm"]] = _Rank(
            int(match["rank"][:9]), int(match["size"][:9]), _communicator(match),
            Process(None, host, pid), source, pci_slot(bus) if bus else "",
            int(nvml[:4]) if nvml else None, complete=match["stage"] == "COMPLETE",
        )  # fmt: skip
    elif match := _COMPLETION.search(text):
        job.lost[match["peer"], int(match["status"][:6])].append((host, source))
    elif match := _PORT.search(text):
        told = f"NCCL got an event of its port: {match[2].strip()}"[:200]
        fatal = "fatal" in text or "error" in match[2]
        job.troubles.append(Trouble("ib-flap", told, source, host, match[1], fatal=fatal))
    elif match := _WQE.search(text):
        waits = f" for {duration(int(match[5][:18]) / 1e9)}" if match[5] else ""
        told = f"a work request to {match[1]} (qpn {match[4]}) waits{waits} for its completion"
        port = f"{match[2]} port {match[3]}"
        job.troubles.append(Trouble("network", told, source, host, port, whose="unknown"))
    elif match := _QP.search(text):
        told = f"NCCL could not use its network card: {match[1]}: {match[3].strip()}"[:200]
        job.troubles.append(Trouble("network", told, source, host, fatal=True, whose="unknown"))
    elif match := _ADDRESS.search(text):
        job.addresses[match[1]] = host


def _communicator(match: re.Match[str]) -> str:
    """Returns a name that all ranks of a communicator print."""
    if found := _ID.search(match["rest"]):
        return found[1]
    if found := _PARENT.search(match["rest"]):
        # The parent's address is each process's own, so a split's color tells it from others.
        return f"split {found[2]} color {found[3]} of {match['size']}"
    return f"of {match['size']} ranks"


def _facts(job: _Job) -> Iterator[Fact]:
    communicators = _communicators(job)
    everyone = {(rank.process, rank.gpu_index) for rank in job.ranks.values()}
    whole = next(
        (each for each in sorted(communicators.values(), key=len, reverse=True)
         if each[0].size >= len(everyone) and len({rank.rank for rank in each}) == len(each)),
        None,
    )  # fmt: skip
    known: dict[Process, int] = {}
    if whole:
        known = {rank.process: rank.rank for rank in whole}
        yield World(whole[0].size, whole[0].source)
    for member in whole or [rank for each in communicators.values() for rank in each]:
        process = _process(member, known)
        yield Identity(process, member.source, member.gpu, member.gpu_index)
    for name, members in communicators.items():
        own = sorted(members, key=lambda rank: rank.rank)
        if len({rank.rank for rank in own}) == len(own):  # else several have one name
            yield from _not_begun(name, own, whole is members)
            yield from _calls(name, own, known, whole is members)
    yield from _lost(job)
    yield from job.troubles


def _communicators(job: _Job) -> dict[str, list[_Rank]]:
    """Returns the ranks of each communicator, with what they called."""
    found: dict[str, list[_Rank]] = defaultdict(list)
    for key, rank in job.ranks.items():
        own = job.calls.get(key, ())
        uncounted = not any(call[0] for call in own)  # NCCL 2.10 prints opCount 0 in each line
        for index, (number, size, call, pair, source) in enumerate(own):
            if size == rank.size:
                count = index if uncounted else number
                rank.pairs |= pair
                rank.calls.setdefault(count, []).append((call, source))
        found[rank.communicator].append(rank)
    return found


def _not_begun(name: str, members: list[_Rank], whole: bool) -> Iterator[Counts]:
    """Yields who has begun to set the communicator up, if nobody has come to the end of that."""
    size = members[0].size
    if any(rank.complete for rank in members) or len(members) >= size or size > _MOST_RANKS:
        return
    begun = {rank.rank for rank in members}
    counts = tuple((rank, int(rank in begun)) for rank in range(size))
    processes = tuple(
        (rank.rank, Process(rank.rank if whole else None, rank.process.host, rank.process.pid))
        for rank in members
    )
    yield Counts(
        name, "init", counts, members[-1].source, size=size, whole=whole, members=processes
    )


def _process(rank: _Rank, known: Mapping[Process, int]) -> Process:
    return Process(known.get(rank.process), rank.process.host, rank.process.pid)


def _calls(
    name: str, members: list[_Rank], known: Mapping[Process, int], whole: bool
) -> Iterator[Fact]:
    """Yields the first call in which ranks differ; else how many calls each has made."""
    called = [rank for rank in members if rank.calls]
    if not called or any(rank.pairs for rank in called):
        return  # sends and receives count, too: counts of pairs differ in healthy jobs
    ranks = [known.get(rank.process) for rank in members]
    all_known = tuple(rank for rank in ranks if rank is not None)
    group = Group(name, all_known if len(all_known) == members[0].size else ())
    if mismatch := _mismatch(group, called, known):
        yield mismatch
        return
    counts = tuple((rank.rank, max(rank.calls) + 1) for rank in called)
    yield Counts(
        name, "", counts, called[0].source, size=members[0].size, whole=whole,
        members=tuple((rank.rank, _process(rank, known)) for rank in members),
    )  # fmt: skip


def _mismatch(group: Group, called: list[_Rank], known: Mapping[Process, int]) -> Mismatch | None:
    """Returns the first difference, if all who called are known: others can't be named."""
    places = sorted({(count, at) for rank in called for count in rank.calls
                     for at in range(len(rank.calls[count]))})  # fmt: skip
    issued: dict[int, dict[Signature, list[int]]] = {}
    for number, (count, at) in enumerate(places):
        signatures = issued.setdefault(number, defaultdict(list))
        for index, rank in enumerate(called):
            for call, _ in rank.calls.get(count, ())[at : at + 1]:
                size = int(call.sizes[:18])
                signature = Signature(call.op, call.dtype, size, size, call.root)
                signatures[signature].append(index)
    if (found := first_difference(issued)) is None:
        return None
    number, differs, several = found
    count, at = places[number]
    variants = []
    for _, indices in several:
        processes = [called[index].process for index in indices]
        if not known.keys() >= set(processes):
            return None
        call, source = called[indices[0]].calls[count][at]
        variants.append(Variant(call, tuple(sorted(map(known.__getitem__, processes))), source))
    return Mismatch(group, count + 1, differs, tuple(variants))


def _lost(job: _Job) -> Iterator[Trouble]:
    """Yields each peer with which connections failed: whoever complains is mostly a victim."""
    for (peer, status), complaints in job.lost.items():
        number, hosts = len(complaints), len({host for host, _ in complaints})
        what = f"{number} connection{'s' if number > 1 else ''}"
        of = f"{hosts} host{'s' if hosts > 1 else ''}"
        text = f"{what} of {of} to it failed: {_STATUS.get(status, f'status {status}')}"
        yield Trouble(
            "network", text, complaints[0][1], job.addresses.get(peer, peer), code=str(status),
            fatal=hosts > 1, count=number, whose="cleanup" if status == _FLUSHED else "unknown",
        )  # fmt: skip


KIND = Kind("NCCL debug log", False, lambda item: any_tells(item, _WORDS, _WHO.search), _read)
