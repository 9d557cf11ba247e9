"""Judges faults of GPUs, links, hosts and file systems: which rank do they explain, and how surely.

A fault that nothing ties to a rank names a device, never a rank. Errors that a program's own crash
leaves behind (Xid 13, 31, 43, 45) are consequences: they are suspects only where nothing else is.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from itertools import islice

from oddrank.finding import duration, grouped, ranks_text
from oddrank.triage import causes
from oddrank.triage.facts import Identity, Process, Source, State, Trouble, ranks
from oddrank.triage.suspects import HIGH, LOW, MEDIUM, Point, Suspect
from oddrank.triage.view import View, is_address

_MOST = 16
_JUST_AFTER = 60.0  # seconds
# Kinds that other judges take: what died, stands in the kernel, or does not answer.
_OF_OTHERS = frozenset({"oom", "hung-task", "unreachable"})
_OF_A_GPU = frozenset({"xid", "gpu", "nvlink", "nccl"})
# A file system or disk stops all its users: the ranks of its host are victims of one cause.
_SHARED = frozenset({"file-system", "disk"})
_MANY_FLAPS = 3
# NCCL's diagnostics number ranks within a communicator: global only if it holds all ranks.
_OF_COMM = re.compile(r"across (\d+) ranks in comm")
# A fault counts for a stall so many seconds before or after it; one whose time zone is not known
# may be half a day off. After a day it is another story.
_NEAR, _ZONES, OLD = 2 * 3600.0, 14 * 3600.0, 24 * 3600.0


class _Ties:
    """Maps devices and hosts to processes of the job."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._by_host: dict[str, set[Process]] = defaultdict(set)
        self._by_gpu: dict[object, set[Process]] = defaultdict(set)
        for known in view.identities:
            if known.process.rank is not None:
                for key in (known.gpu, (known.process.host, str(known.gpu_index))):
                    self._by_gpu[key].add(known.process)
        for process in view.processes:
            if process.rank is not None and process.host:
                self._by_host[process.host].add(process)

    def host(self, trouble: Trouble) -> str | None:
        """Returns the host as the job calls it: said, in the file's name, or the only one."""
        if trouble.host is not None:
            short = _short(trouble.host)
            return next((h for h in self._by_host if _short(h) == short), trouble.host)
        named = self._by_file(trouble) or [*self._by_host] * (trouble.kind != "node")
        return named[0] if len(named) == 1 else None

    def _by_file(self, trouble: Trouble) -> list[str]:
        """Returns the hosts that the name of a fault's file names: node7/dmesg, dmesg-node7.txt."""
        file = trouble.source.file.lower()
        return [
            host for host in self._by_host if (short := _short(host)) in file
            and re.search(rf"(?:^|[/:_-]){re.escape(short)}(?:$|[/:._-])", file)
        ]  # fmt: skip

    def processes(self, trouble: Trouble) -> tuple[Process, ...]:
        """Returns the processes whose device it is, or that it hit; empty if nothing ties it."""
        of = _OF_COMM.search(trouble.text)
        world = self._view.world
        told = trouble.hits or trouble.kind == "setting"
        if told and not (of and world and int(of[1]) != world):
            return self._view.named(trouble.hits)
        host = self.host(trouble)
        if _of_a_gpu(trouble) and trouble.device:
            device = trouble.device.removeprefix("GPU ")
            own = {p for p in self._by_gpu.get(device, ()) if _may_be(p.host, host)}
            own = own or self._by_gpu.get((host or "", device), set())
            if len(own) == 1:
                return tuple(own)
        join = self._view.join
        named = (join(Process(None, at, pid)) for pid in trouble.pids for at in (host, None))
        hit = {p for p in named if p.rank is not None and _may_be(p.host, host)}
        if len(hit) == 1:
            return tuple(hit)
        if trouble.host is None and not self._by_file(trouble):
            return ()  # a log that names no host may be of any
        of_host = self._by_host.get(host or "", set())
        if len(of_host) == 1 or not (_of_a_gpu(trouble) or trouble.kind in _SHARED):
            return tuple(sorted(of_host, key=lambda p: (p.rank is None, p.rank or 0)))
        return ()


def judge(view: View) -> list[Suspect]:
    """Returns a suspect for each process or device with faults, the surest first.

    Errors of programs that GPUs report count where nothing else was read.
    """
    ties, stall = _Ties(view), _when(view)
    of_program = {t for t in view.troubles if _is_of_program(t, view)}
    faults = [
        t for t in view.troubles
        if t.kind not in _OF_OTHERS and t.whose in ("hardware", "unknown") and t not in of_program
    ]  # fmt: skip
    if not faults and not (view.deaths or view.progress or view.stacks or view.counts):
        faults = [t for t in view.troubles if t.kind == "xid" and t in of_program]
    several: dict[object, list[Trouble]] = defaultdict(list)
    gpus = [t for t in view.troubles if t.kind == "pcie" and (t.device or "").startswith("GPU ")]
    hosts = Counter(t.host for t in gpus)
    for trouble in faults:
        device = trouble.device
        if trouble.kind == "pcie" and hosts[trouble.host] == 1:  # both ends of one link
            device = next(gpu.device for gpu in gpus if gpu.host == trouble.host)
        key = frozenset(ties.processes(trouble)) or (ties.host(trouble), device, trouble.kind)
        several[key].append(trouble)
    found = [_suspect(group, ties, stall, of_program) for group in several.values()]
    return sorted(found, key=lambda s: (-s.certainty, not s.processes, ranks(s.processes)))[:_MOST]


def started_apart(view: View) -> list[Suspect]:
    """Returns the ranks that were started twice, or with another WORLD_SIZE than most."""
    by_rank: dict[int, dict[Process, int]] = defaultdict(dict)
    for fact in view.facts:
        if isinstance(fact, Identity) and fact.process.rank is not None and fact.world > 1:
            by_rank[fact.process.rank][fact.process] = fact.world
    by_size = grouped((size, rank) for rank, own in by_rank.items() for size in {*own.values()})
    (usual, most), *others = sorted(by_size.items(), key=lambda each: -len(each[1])) or [(0, [])]
    told: list[tuple[Sequence[int], str]] = []
    for size, odd in others:
        clear = 2 * len(most) > len(by_rank)
        name = "" if clear else f"{ranks_text(odd)} "
        text = f"{name}WORLD_SIZE={size}, and {ranks_text(most)} WORLD_SIZE={usual}"
        told.append((odd if clear else (), text))
    absent = [*islice((rank for rank in range(usual) if rank not in by_rank), 2)]
    gone = {fact.process for fact in view.facts if isinstance(fact, State) and fact.state == "dead"}
    for rank, own in by_rank.items():
        if len(living := own.keys() - gone) > 1:
            pids = " and ".join(sorted(f"pid {each.pid} on {each.host}" for each in living))
            none = f", and none has RANK {absent[0]}" if len(absent) == 1 else ""
            told.append(([rank], f"{len(living)} processes: {pids}{none}"))
    return [
        Suspect(causes.SETTINGS, view.named(odd), "other-start", HIGH if odd else LOW,
                (Point(text),), trouble=(Trouble("setting", text, Source("")),))
        for odd, text in told
    ]  # fmt: skip


def _is_of_program(trouble: Trouble, view: View) -> bool:
    """Returns whether a program made a fault: it says so, or one just before on its GPU does."""
    if trouble.whose != "unknown":
        return trouble.whose in ("application", "cleanup")
    return trouble.time is not None and any(
        (o.kind, o.whose, o.host, o.device) == ("xid", "application", trouble.host, trouble.device)
        and trouble.kind == "xid" and o.time is not None
        and 0 <= trouble.time - o.time <= _JUST_AFTER
        for o in view.troubles
    )  # fmt: skip


def _suspect(
    group: Sequence[Trouble], ties: _Ties, stall: float | None, of_program: Collection[Trouble]
) -> Suspect:
    """Makes one suspect of all faults of the same processes or device: the worst one first."""
    processes = ties.processes(group[0])
    sure = {id(t): _certainty(t, stall, tied=bool(processes)) for t in group}
    group = sorted(
        group, key=lambda t: (-sure[id(t)], not t.fatal, not _of_a_gpu(t), t.time or 0.0)
    )  # fmt: skip
    worst = group[0]
    cause, certainty = causes.DEVICE, sure[id(worst)]
    rule = "fault-of-its-host" if processes else "fault-of-no-known-rank"
    if processes and (worst.hits or _of_a_gpu(worst)):
        rule = "fault-of-its-gpu"
    if all(t.kind == "setting" for t in group):
        cause, rule, certainty = causes.SETTINGS, "other-settings", int(bool(processes))
        rule = "one-gpu" if "Duplicate GPU" in worst.text else rule
    if worst in of_program:
        group = sorted(group, key=lambda t: (t.whose != "application", t.time or 0.0))
        worst, cause, rule = group[0], causes.APPLICATION, "error-of-its-program"
        if not processes and len(worst.pids) == 1:
            processes = (Process(None, ties.host(worst), worst.pids[0]),)
        certainty = int(worst.whose == "application" and len(processes) == 1)
    distance, against = _distance(worst, stall) or 0.0, []
    if distance > OLD:
        against = [Point(f"it was logged {duration(distance)} away from the stall", worst.source)]
    return Suspect(
        cause, processes, rule, certainty, tuple(Point(_text(t, ties), t.source) for t in group),
        tuple(against), trouble=tuple(group), time=worst.time,
    )  # fmt: skip


def _certainty(trouble: Trouble, stall: float | None, *, tied: bool) -> int:
    """Returns how surely a fault has to do with the stall. tied: it is known whose device it is."""
    distance = _distance(trouble, stall)
    near = distance is not None and distance <= (_ZONES if trouble.coarse else _NEAR)
    if distance is not None and distance > OLD:
        return LOW
    if trouble.kind == "boot":  # every long log has some
        return MEDIUM if near else LOW
    if trouble.fatal and trouble.whose == "hardware" and tied and near:
        return HIGH if trouble.hits or _of_a_gpu(trouble) else MEDIUM
    lasts = "did not come back" in trouble.text
    flaps = trouble.kind == "ib-flap" and trouble.count >= _MANY_FLAPS
    return MEDIUM if trouble.fatal or lasts or flaps else LOW


def _text(trouble: Trouble, ties: _Ties) -> str:
    host, device = ties.host(trouble), trouble.device
    where = " of ".join(part for part in (device, host) if part)
    text = f"{where}: {trouble.text}" if where else trouble.text
    if trouble.count > 1:
        text += f", {trouble.count} times"
        if trouble.time is not None and trouble.last is not None:
            text += f" in {duration(trouble.last - trouble.time)}"
    return text


def _distance(trouble: Trouble, stall: float | None) -> float | None:
    """Returns the seconds between the stall and the nearest time of the fault."""
    if stall is None or trouble.time is None:
        return None
    last = trouble.last if trouble.last is not None else trouble.time
    if trouble.time <= stall <= last:
        return 0.0
    return min(abs(stall - trouble.time), abs(stall - last))


def _when(view: View) -> float | None:
    """Returns when the job was stuck or ended: the earliest time that its evidence tells."""
    times = [death.time for death in view.deaths] + [p.time for p in view.all_progress]
    times += [counts.time for counts in view.counts]
    times += [t.time for stack in view.stacks for t in stack.threads]
    return min((time for time in times if time is not None), default=None)


def _of_a_gpu(trouble: Trouble) -> bool:
    return trouble.kind in _OF_A_GPU or (trouble.device or "").startswith("GPU ")


def _may_be(one: str | None, other: str | None) -> bool:
    """Returns whether two hosts may be one: a name and an address may."""
    if one is None or other is None:
        return True
    return _short(one) == _short(other) or is_address(one) != is_address(other)


def _short(host: str) -> str:
    """Returns a host's name without its domain; an address as it is."""
    return host if is_address(host) else host.lower().partition(".")[0]
