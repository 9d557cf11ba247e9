"""One view of all facts: processes joined over their sources, groups by name and ranks."""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from oddrank.finding import grouped
from oddrank.triage import model_frames as kinds
from oddrank.triage.facts import (
    MOST_RANKS,
    Activity,
    Advice,
    Call,
    Child,
    Counts,
    Death,
    Fact,
    Group,
    Identity,
    Mismatch,
    Paused,
    Process,
    Progress,
    Source,
    Span,
    Stack,
    State,
    Stop,
    Trouble,
    Variant,
    World,
    ranks,
)
from oddrank.triage.judges.stands import Stand, stands
from oddrank.triage.timeline import ZONES

LEAVES = "leaves a group"  # be it one of the training or the last: its stack does not tell
_MOVED = 2.0  # seconds since the last event of a process that moves
_PARAMS = re.compile(r"[Rr]ank (\d+) has (?:inconsistent )?(\d+ params)")
_LONG = 2 * 3600.0  # seconds: ranks that end later do not end by the kernel's kill


@dataclass
class View:
    """All facts of a job. `progress`: group -> rank -> the most telling source of that rank.

    processes: every process that any source names. members: those that more than a state tells of.
    heard: ranks with evidence of their own.
    """

    progress: dict[Group, dict[int, Progress]]
    mismatches: list[Mismatch]
    forks: list[Mismatch]
    """Where ranks went different ways, be it in calls of several groups."""
    stacks: list[Stack]
    children: dict[Process, Child]
    states: dict[Process, State]
    activities: dict[Process, Activity]
    pauses: dict[Process, Paused]
    """Processes that wait on purpose, and could go on: not those that are stopped, or too late."""
    deaths: list[Death]
    finished: dict[Process, Death]
    """Processes that ended with exit code 0, or whose script did, with the end of both: that is a
    fault only if others wait for them."""
    stops: list[Stop]
    troubles: list[Trouble]
    counts: list[Counts]
    identities: list[Identity]
    facts: tuple[Fact, ...]
    began: dict[str, float]
    """Host -> when the job began there."""
    world: int | None
    processes: tuple[Process, ...]
    members: frozenset[Process]
    join: Callable[[Process], Process]
    """Joins what sources call one process."""

    def child(self, process: Process) -> Child | None:
        """Returns the facts on a process that a rank started; None if no rank is known to have.

        A source without a host can only mean the one process with that pid.
        """
        if process.rank is not None or process.pid is None:
            return None
        hosts = {process.host, None} if process.host else {""}
        same = [one for host in hosts for one in self._by_pid.get((host, process.pid), ())]
        return same[0] if len(same) == 1 else None

    @cached_property
    def _by_pid(self) -> dict[tuple[str | None, int | None], list[Child]]:
        """Host ("": any) and pid -> processes that ranks started."""
        return grouped(((host, known.pid), child) for known, child in self.children.items()
                       for host in (known.host or None, ""))  # fmt: skip

    @cached_property
    def of_rank(self) -> dict[int, dict[Group, Progress]]:
        """The progress of each rank in its groups."""
        found: dict[int, dict[Group, Progress]] = defaultdict(dict)
        for group, members in self.progress.items():
            for rank, progress in members.items():
                found[rank][group] = progress
        return dict(found)

    @property
    def all_progress(self) -> Iterator[Progress]:
        """The progress of all ranks in all groups."""
        return (progress for members in self.progress.values() for progress in members.values())

    @cached_property
    def timed_out(self) -> set[int]:
        """Ranks of which a call has timed out."""
        return {r for r, own in self.of_rank.items() if any(p.timed_out for p in own.values())}

    @cached_property
    def _by_rank(self) -> dict[int | None, Process]:
        return {process.rank: process for process in self.processes}

    def named(self, ranks: Iterable[int]) -> tuple[Process, ...]:
        """Returns the processes of ranks, with all that is known of them."""
        return tuple(self._by_rank.get(rank) or Process(rank) for rank in ranks)

    @cached_property
    def stands(self) -> tuple[list[Stand], list[tuple[str, Stand]]]:
        """Where each rank stands, and processes that are no ranks."""
        return stands(self.stacks, self.children)

    @cached_property
    def done(self) -> dict[Process, Death]:
        """Processes that make no more calls: they have finished, or leave their groups.
        A stack does not show why a process aborts its groups."""
        leave = (
            (s, s.leaf.frame.function)
            for s in self.stands[0]
            if s.kind == kinds.LEAVING and s.leaf.frame and s.process not in self.leaving
        )
        return {
            s.process: Death(
                s.process, "exit", s.thread.source, site=s.site,
                text=LEAVES if "destroy" in function else "",
            )
            for s, function in leave if "abort" not in function
        } | self.finished  # fmt: skip

    @cached_property
    def leaving(self) -> frozenset[Process]:
        """Processes that have raised an exception, and print it: they stand nowhere any more."""
        raised = (death for death in self.deaths if death.how == "exception")
        return frozenset(death.process for death in raised if not death.went_on)

    @cached_property
    def kills_of_others(self) -> frozenset[tuple[Source, float | None]]:
        """Source and time of the kernel's kills that are long before each end of this job: they hit
        processes of other jobs."""
        ends = [death for death in self.deaths if death.by != "kernel"]
        found = set()
        for kill in (death for death in self.deaths if death.by == "kernel"):
            whose = child.parent if (child := self.child(kill.process)) else kill.process
            gaps = [since(kill, end) for end in ends if whose.rank is None]
            if any(gap > _LONG for gap in gaps) and not any(gap <= _LONG for gap in gaps):
                found.add((kill.source, kill.time))
        return frozenset(found)

    @property
    def own_facts(self) -> list[Fact]:
        """The facts without kills_of_others."""
        return [
            fact for fact in self.facts
            if not isinstance(fact, (Death, Trouble))
            or ((fact.source, fact.time) not in self.kills_of_others
                and (not isinstance(fact, Trouble) or fact.kind != "oom" or fact.time is None
                     or fact.time >= self.began.get(fact.host or "", 0.0)))
        ]  # fmt: skip

    @cached_property
    def is_size_told(self) -> bool:
        """Whether a source says how many ranks the job has: those that spoke may be a part."""
        return any(isinstance(fact, World) and not fact.implied for fact in self.facts)

    @property
    def is_well(self) -> bool:
        """Whether a rank ended well, or its record shows that it moved."""
        moved = (a.rests is not None and a.rests < max(_MOVED, 2 * (a.pause or 0.0))
                 for a in self.activities.values())  # fmt: skip
        return bool(self.finished) or any(moved)

    @property
    def everyone(self) -> set[int]:
        """The ranks of the job, as far as its size is known."""
        return set(range(max(self.world or 0, max(self.heard, default=-1) + 1)))

    @property
    def heard(self) -> frozenset[int]:
        """Ranks with evidence of their own, not only named by others."""
        own = {rank for members in self.progress.values() for rank in members}
        seen = [thread.process for stack in self.stacks for thread in stack.threads]
        seen += [*self.states, *self.activities, *(death.process for death in self.deaths)]
        own.update(ranks(seen))
        return frozenset(own)


def view(facts: Iterable[Fact]) -> View:
    """Joins facts: a pid and a rank of one process become one, group names get their ranks."""
    facts = bounded(facts)[0]
    world = _world(facts)
    facts = tuple(_with_ranks(f, world) if isinstance(f, Counts) else f for f in facts)
    join, groups = Joiner(facts), _Groups(facts, world)
    own: dict[type, list[Any]] = defaultdict(list)
    for fact in facts:
        own[type(fact)].append(_joined(fact, join, groups))
    several: dict[tuple[Group, int], list[Progress]] = defaultdict(list)
    for each in own[Progress]:
        if each.process.rank is not None:
            several[each.group, each.process.rank].append(each)
    progress: dict[Group, dict[int, Progress]] = defaultdict(dict)
    for (group, rank), some in several.items():
        # A source that was cut off before the open calls does not show how far its rank has come.
        if (whole := merged(some)).open or not whole.cut:
            progress[group][rank] = whole
    children: dict[Process, Child] = {}
    for child in own[Child]:
        if child.process != child.parent and (child.what or child.process not in children):
            children[child.process] = child
    states: dict[Process, State] = {}
    for state in own[State]:
        states[state.process] = _newer(states.get(state.process), state)
    activities = {each.process: each for each in own[Activity]}
    well = sorted(filter(_is_well, own[Death]), key=lambda death: not death.went_on)
    finished = {death.process: death for death in well}
    ended = {death.process for death in well if not death.went_on}
    deaths = [
        death for death in own[Death]
        if not _is_well(death)
        and not _outlived(death, ended, states.get(death.process), activities.get(death.process))
    ]  # fmt: skip
    gone = {death.process for death in deaths}
    gone |= {process for process, state in states.items() if state.state == "stopped"}
    pauses = {each.process: each for each in own[Paused]}
    kinds = (Identity, Progress, Activity, Paused, Death)
    telling = {each.process for kind in kinds for each in own[kind]}
    return View(
        dict(progress), [*(each for each in own[Mismatch] if not each.is_fork), *_models(deaths)],
        [each for each in own[Mismatch] if each.is_fork], own[Stack], children, states, activities,
        pauses={
            process: one for process, one in pauses.items()
            if process not in gone and not one.pause.is_over(one.seen)
        },
        deaths=deaths, finished=finished, stops=own[Stop], troubles=own[Trouble],
        counts=own[Counts], identities=own[Identity], facts=facts, began=_began(facts),
        world=world, processes=join.all(), join=join,
        members=frozenset(telling | {t.process for stack in own[Stack] for t in stack.threads}),
    )  # fmt: skip


def _models(deaths: Iterable[Death]) -> Iterable[Mismatch]:
    """Yields the models that ranks gave to DDP(), as its errors tell: each compares two ranks'."""
    told = {int(rank): (size, death.source)
            for death in deaths for rank, size in _PARAMS.findall(death.text)}  # fmt: skip
    sides = grouped((size, rank) for rank, (size, _) in told.items())
    if len(sides) > 1:
        yield Mismatch(Group("0", (), "default_pg"), 0, "sizes", tuple(
            Variant(Call(None, "DDP()", sizes=size), tuple(sorted(some)), told[some[0]][1])
            for size, some in sides.items()
        ))  # fmt: skip


def _is_well(death: Death) -> bool:
    return death.how == "exit" and death.code == 0 and not death.text


def _joined(fact: Fact, join: "Joiner", groups: "_Groups") -> Fact:
    new: dict[str, Any] = {}
    if isinstance(fact, Mismatch):
        first = next((v.ranks[0] for v in fact.variants if v.ranks), None)
        new["group"] = groups.of(fact.group, first)
    elif isinstance(fact, Stack):
        new["threads"] = tuple(
            t if (process := join(t.process)) == t.process else replace(t, process=process)
            for t in fact.threads
        )
    elif isinstance(fact, Counts):
        new["members"] = tuple((rank, join(process)) for rank, process in fact.members)
    elif isinstance(fact, Child):
        new = {"process": join(fact.process), "parent": join(fact.parent)}
    elif not isinstance(fact, (World, Span, Stop, Trouble, Advice)):
        # Most are as they were, and replace() takes long for a large job.
        if (process := join(fact.process)) != fact.process:
            new["process"] = process
        if isinstance(fact, Progress):
            group = groups.of(fact.group, process.rank)
            if group is not fact.group:
                new["group"] = group
    return replace(fact, **new) if new else fact


def _with_ranks(counts: Counts, world: int | None) -> Counts:
    """Gives members of a communicator the job's ranks, if it has all of these."""
    whole = counts.whole if None in (world, counts.size) else counts.size == world
    members = ((n, replace(p, rank=n) if whole else p) for n, p in counts.members)
    return replace(counts, whole=whole, members=tuple(members))


def _outlived(
    death: Death, ended: Container[Process], state: State | None, active: Activity | None
) -> bool:
    """Returns whether a kernel's line is of an earlier process with the same pid.
    This one was seen alive after it, or ended by itself."""
    if death.by != "kernel":
        return False
    if death.process in ended:
        return True
    seen = state.time if state is not None and state.state != "dead" else None
    if seen is not None and (death.time is None or death.time < seen):
        return True
    last = active.last if active is not None else None
    return last is not None and death.time is not None and death.time + _error(death) < last


def since(one: Death, other: Death) -> float:
    """Returns the seconds from one end to another; not a number if no clock tells."""
    return (other.time or math.nan) - (one.time or math.nan) if one.wall == other.wall else math.nan


def _error(death: Death) -> float:
    """By how many seconds its time may be wrong."""
    return ZONES if death.wall else 1.0


def _began(facts: Iterable[Fact]) -> dict[str, float]:
    """Returns when the job began on each host, as far as a source says."""
    found: dict[str, float] = {}
    for fact in facts:
        if isinstance(fact, Span):
            found[fact.host] = min(fact.began, found.get(fact.host, fact.began))
    return found


def ours(facts: Sequence[Fact]) -> list[Fact]:
    """Leaves out lines of a whole host's log that are about processes of other jobs.

    Only if a source lists the job's processes. Keeps ends while the job ran: in a container the
    kernel's pids are not the job's.
    """
    began = _began(facts)
    if not began:
        return list(facts)
    join = Joiner(facts)
    known = {join(fact.process) for fact in facts if isinstance(fact, (Identity, Child))}

    def is_ours(fact: Fact) -> bool:
        if not isinstance(fact, (State, Death)):
            return True
        process = join(fact.process)
        by_kernel = isinstance(fact, Death) and fact.by == "kernel"  # its pids are used again
        is_known = process.rank is not None or process in known
        if process.host not in began or (is_known and not by_kernel):
            return True
        if isinstance(fact, State):
            return False
        return fact.time is None or fact.time + _error(fact) >= began[process.host]

    return [fact for fact in facts if is_ours(fact)]


def _newer(one: State | None, other: State) -> State:
    if one is None:
        return other
    if one.time is not None and other.time is not None and other.time < one.time:
        one, other = other, one
    # Sources say the same a moment apart, and one of them where.
    return (
        replace(other, where=one.where) if other.state == one.state and not other.where else other
    )


def _world(facts: Sequence[Fact]) -> int | None:
    """Returns the size that most sources say, the larger of two equally common ones."""
    sizes = [fact.size for fact in facts if isinstance(fact, World)]
    return max(sizes, key=lambda size: (sizes.count(size), size), default=None)


def merged(several: Sequence[Progress]) -> Progress:
    """Merges several sources' progress of one rank in one group.

    The source that shows most counts; the others fill its gaps. Numbers only grow, so the larger of
    two numbers is the later one.
    """
    if len(several) == 1:
        return several[0]
    best = max(several, key=lambda p: (p.whole, not p.no_messages, bool(p.open), p.time or 0.0))
    completed = _most(p.completed for p in several)
    calls = tuple(
        call for call in best.open if call.seq is None or completed is None or call.seq > completed
    )
    return replace(
        best, enqueued=_most(p.enqueued for p in several), completed=completed, open=calls,
        open_count=max(best.open_count - (len(best.open) - len(calls)), len(calls)),
        timed_out=any(p.timed_out for p in several), whole=any(p.whole for p in several),
        cut=all(p.cut for p in several),
    )  # fmt: skip


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


class _Groups:
    """Gives a group that a source knows by name only the ranks that another source knows."""

    def __init__(self, facts: Sequence[Fact], world: int | None) -> None:
        self._world = world
        self._known: dict[str, dict[tuple[int, ...], Group]] = defaultdict(dict)
        named = dict.fromkeys(f.group for f in facts if isinstance(f, (Progress, Mismatch)))
        for group in named:
            if group.ranks:
                for name in {group.name, group.text} - {""}:
                    self._known[name].setdefault(group.ranks, group)
        # A tuple of all ranks is hashed anew for each look-up, a group is not.
        self._same = {one: self._known[one.name].get(one.ranks, one) for one in named if one.ranks}

    def of(self, group: Group, rank: int | None) -> Group:
        if group.ranks:
            return self._same[group]
        for name in (group.name, group.text):
            fitting = [
                known
                for ranks, known in self._known.get(name, {}).items()
                if rank is None or rank in ranks
            ]
            if len(fitting) == 1:
                return fitting[0]
        if self._world and "default_pg" in (group.name, group.text):
            return replace(group, ranks=tuple(range(self._world)))
        return group


class Joiner:
    """Joins what sources call one process: by rank, or by a pid that one rank alone has.

    Where no host is said, one rank of all hosts.
    """

    def __init__(self, facts: Sequence[Fact]) -> None:
        # Facts about one process alone come first.
        ordered = sorted(
            facts, key=lambda fact: (isinstance(fact, Counts), isinstance(fact, Stack))
        )
        named = [process for fact in ordered for process in _processes(fact)]
        self._by_rank: dict[int, Process] = {}
        self._by_pid: dict[tuple[str | None, int], set[int]] = defaultdict(set)
        self._seen: dict[Process, None] = {}
        for process in named:
            if process.rank is not None:
                old = self._by_rank.get(process.rank, Process(process.rank))
                # An address only if no source says the host's name.
                keep = process.host is None or (old.host is not None and is_address(process.host))
                host = old.host if keep else process.host
                # A second life of a rank has another pid: the one seen last counts.
                self._by_rank[process.rank] = Process(process.rank, host, process.pid or old.pid)
        for process in named:
            if process.rank is not None and process.pid is not None:
                for host in {process.host, None}:
                    self._by_pid[host, process.pid].add(process.rank)
        for process in named:
            self._seen.setdefault(self(process))

    def __call__(self, process: Process) -> Process:
        if process.rank is None and process.pid is not None:
            # Containers and hosts may have the same pids.
            owners = self._by_pid.get((process.host, process.pid), set())
            if len(owners) == 1:
                process = Process(next(iter(owners)))
        return self._by_rank.get(process.rank, process) if process.rank is not None else process

    def all(self) -> tuple[Process, ...]:
        return tuple(self._seen)


def is_address(host: str) -> bool:
    """Returns whether a host is given by its IP address."""
    return ":" in host or host.replace(".", "").isdecimal()


def _processes(fact: Fact) -> list[Process]:
    if isinstance(fact, Stack):
        return [thread.process for thread in fact.threads]
    if isinstance(fact, Counts):
        return [process for _, process in fact.members]
    if isinstance(fact, (World, Span, Child, Mismatch, Stop, Trouble, Advice)):
        return []
    return [fact.process]


def bounded(facts: Iterable[Fact]) -> tuple[list[Fact], list[Fact]]:
    """Returns the facts that may be true, and those with a rank or size beyond MOST_RANKS."""
    fine: list[Fact] = []
    strange: list[Fact] = []
    groups: dict[Group, bool] = {}
    for fact in facts:
        if isinstance(fact, (Progress, Identity)):  # most facts of large jobs
            fits = 0 <= (fact.process.rank or 0) < MOST_RANKS
            fits &= not isinstance(fact, Identity) or fact.world < MOST_RANKS
        else:
            fits = all(0 <= number < MOST_RANKS for number in _own_numbers(fact))
        if fits and isinstance(fact, (Progress, Mismatch)):
            if fact.group not in groups:
                groups[fact.group] = all(0 <= rank < MOST_RANKS for rank in fact.group.ranks)
            fits = groups[fact.group]
        (fine if fits else strange).append(fact)
    return fine, strange


def _own_numbers(fact: Fact) -> Iterator[int]:
    """Yields the ranks and sizes in a fact, without its group's."""
    yield from ranks(_processes(fact))
    if isinstance(fact, World):
        yield fact.size
    elif isinstance(fact, Mismatch):
        for variant in fact.variants:
            yield from variant.ranks
    elif isinstance(fact, Counts):
        yield from (rank for rank, _ in fact.counts)
        yield from (*fact.dead, *fact.silent, fact.size or 0)
