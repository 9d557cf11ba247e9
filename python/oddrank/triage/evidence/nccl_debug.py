"""Reads the lines of NCCL_DEBUG=INFO: identities, calls, and failed connections.

With NCCL_DEBUG_SUBSYS=COLL each call prints its opCount. The last ones are counts, as RAS has them:
they blame no rank.
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
from oddrank.triage.facts import Counts, Fact, Identity, Process, Source, Trouble, World

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
    r"(?P<op>\w+): opCount (?P<count>[0-9a-f]+) .* comm (?P<comm>0x[0-9a-f]+) "
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
_MOST_RANKS = 1 << 20
_PAIR = frozenset({"Send", "Recv"})
_Key = tuple[str, int, str]
"""Host, pid and address of a communicator: unique in the job."""


@dataclass
class _Rank:
    """One rank of a communicator: where it is, and how many calls it has made."""

    rank: int
    size: int
    communicator: str
    process: Process
    source: Source
    gpu: str = ""
    gpu_index: int | None = None
    calls: int = 0
    pairs: bool = False
    """Sends and receives are among them: counts of these differ in healthy jobs."""
    complete: bool = False
    """Its communicator was set up."""


@dataclass
class _Job:
    ranks: dict[_Key, _Rank] = field(default_factory=dict)
    calls: dict[tuple[_Key, int], tuple[int, int]] = field(default_factory=dict)
    """The highest opCount of a communicator of a size, and the number of lines with one."""
    pairs: set[tuple[_Key, int]] = field(default_factory=set)
    addresses: dict[str, str] = field(default_factory=dict)
    """Address -> host."""
    lost: dict[tuple[str, int], list[tuple[str, Source]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Peer's address and status -> host and source of each complaint."""
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
        key = (host, pid, match["comm"]), int(match["size"][:9])
        highest, number = job.calls.get(key, (0, 0))
        job.calls[key] = max(highest, int(match["count"][:16], 16)), number + 1
        if match["op"] in _PAIR:
            job.pairs.add(key)
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
    communicators: dict[str, list[_Rank]] = defaultdict(list)
    for key, rank in job.ranks.items():
        communicators[rank.communicator].append(rank)
        highest, number = job.calls.get((key, rank.size), (0, 0))
        # NCCL 2.10 prints opCount 0 in each line.
        rank.calls = highest + 1 if highest else number
        rank.pairs = (key, rank.size) in job.pairs
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
            yield from _counts(name, own, known, whole=whole is members)
    yield from _lost(job)
    yield from job.troubles


def _counts(
    name: str, members: list[_Rank], known: Mapping[Process, int], *, whole: bool
) -> Iterator[Counts]:
    """Yields the ranks that began to set a communicator up, if none finished; and calls of each."""
    size = members[0].size
    processes = tuple((rank.rank, _process(rank, known)) for rank in members)
    if not any(rank.complete for rank in members) and len(members) < size <= _MOST_RANKS:
        begun = {rank.rank for rank in members}
        counts = tuple((rank, int(rank in begun)) for rank in range(size))
        yield Counts(
            name, "init", counts, members[-1].source, size=size, whole=whole, members=processes
        )
    called = [rank for rank in members if rank.calls]
    if called and not any(rank.pairs for rank in called):
        counts = tuple((rank.rank, rank.calls) for rank in called)
        yield Counts(name, "", counts, called[0].source, size=size, whole=whole, members=processes)


def _process(rank: _Rank, known: Mapping[Process, int]) -> Process:
    return Process(known.get(rank.process), rank.process.host, rank.process.pid)


def _lost(job: _Job) -> Iterator[Trouble]:
    """Yields each peer with which connections failed: the complaining rank is mostly a victim."""
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
