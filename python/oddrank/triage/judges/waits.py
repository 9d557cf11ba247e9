"""Finds who is waited for, from the progress of ranks in their groups.

A rank inside a call waits for each member of the group that has come less far. Whoever is waited
for and waits for nobody is the culprit. Progress decides, never a vote: the odd rank may be ahead.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from oddrank.finding import ranks_text
from oddrank.triage.facts import (
    Call,
    Cause,
    Group,
    Mismatch,
    Point,
    Process,
    Progress,
    Source,
    Suspect,
)
from oddrank.triage.view import View

# How far a rank has come in a group: the call in which it is or which it has not entered, and
# whether it is inside. A rank inside waits for all members with a smaller front.
Front = tuple[int, bool]
_NOWHERE: Front = (-1, False)
_MOST_NAMED = 64
# A wait is no stall yet if it has lasted less than so many of the rank's own longest pauses, and
# less than so many seconds: a source may look at a healthy job.
_PAUSES = 10.0
_SOON = 2.0


@dataclass
class _Waits:
    """Who waits for whom. Edges of groups are kept by group: a group of n ranks may have n * n."""

    view: View
    fronts: dict[Group, dict[int, Front]] = field(default_factory=dict)
    absent: dict[Group, frozenset[int]] = field(default_factory=dict)
    pairs: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Open sends and receives without a counterpart: rank -> peers."""
    calls: dict[tuple[int, int], tuple[Group, Call]] = field(default_factory=dict)

    def waits(self) -> dict[int, set[Group]]:
        """Returns the ranks that wait for a known rank in a group, and these groups."""
        found: dict[int, set[Group]] = defaultdict(set)
        for group, fronts in self.fronts.items():
            least = min(fronts.values(), default=None)
            for rank, front in fronts.items():
                if least is not None and front[1] and least < front:
                    found[rank].add(group)
        return found

    def awaited(self) -> set[int]:
        """Returns the ranks that some rank waits for."""
        found = {peer for peers in self.pairs.values() for peer in peers}
        for fronts in self.fronts.values():
            most = max((front for front in fronts.values() if front[1]), default=None)
            if most is not None:
                found |= {rank for rank, front in fronts.items() if front < most}
        return found

    def inside(self) -> set[int]:
        """Returns the ranks that are inside a call of a group, or wait for a peer."""
        inside = {rank for fronts in self.fronts.values() for rank, f in fronts.items() if f[1]}
        return inside | set(self.pairs)

    def maybe(self) -> dict[int, set[int]]:
        """Returns the ranks inside a call whose group has members without evidence, and these."""
        found: dict[int, set[int]] = defaultdict(set)
        for group, absent in self.absent.items():
            for rank, front in self.fronts[group].items():
                if front[1] and absent:
                    found[rank] |= absent
        return found

    def of(self, rank: int) -> set[int]:
        """Returns the known ranks that a rank waits for."""
        found = set(self.pairs.get(rank, ()))
        for fronts in self.fronts.values():
            own = fronts.get(rank)
            if own is not None and own[1]:
                found |= {other for other, front in fronts.items() if front < own}
        return found

    def waiting_for(self, culprits: Collection[int]) -> tuple[set[int], Group | None, Call | None]:
        """Returns who waits directly for any of the culprits, and in which call most of them."""
        waiting: set[int] = set()
        where: Counter[tuple[Group, str, int | None]] = Counter()
        calls: dict[tuple[Group, str, int | None], Call] = {}
        for group, fronts in self.fronts.items():
            least = min((fronts[rank] for rank in culprits if rank in fronts), default=None)
            if least is None:
                continue
            for rank, front in fronts.items():
                if rank not in culprits and front[1] and least < front:
                    waiting.add(rank)
                    call = _oldest(self.view.progress[group][rank])
                    if call is not None:
                        key = (group, call.op, call.seq)
                        where[key] += 1
                        calls.setdefault(key, call)
        for rank, peers in self.pairs.items():
            for peer in peers & set(culprits):
                if rank not in culprits:
                    waiting.add(rank)
                    group, call = self.calls[(rank, peer)]
                    key = (group, call.op, call.seq)
                    where[key] += 1
                    calls.setdefault(key, call)
        if not where:
            return waiting, None, None
        best = max(where, key=lambda key: (where[key], len(key[0].ranks), -(key[2] or 0)))
        return waiting, best[0], calls[best]


def judge(view: View) -> list[Suspect]:
    """Returns the suspects that progress shows: mismatches first, then who is waited for."""
    found = _judge(view)
    young = _young(view)
    if young is None:
        return found
    text = f"the longest wait had lasted {young:.1f} s: it may be no stall"
    against = Point(text)
    return [replace(suspect, certainty=0, against=(*suspect.against, against)) for suspect in found]


def _young(view: View) -> float | None:
    """Returns the seconds of the longest wait if all waits are too short to be a stall.

    None if one is long, if a watchdog gave one up, or if a source does not tell.
    """
    longest = 0.0
    for members in view.progress.values():
        for progress in members.values():
            if progress.timed_out:
                return None
            for call in progress.open[:1]:
                if progress.time is None or call.since is None:
                    return None
                age = progress.time - call.since
                if age >= max(_SOON, _PAUSES * (progress.pause or 0.0)):
                    return None
                longest = max(longest, age)
    return longest


def _judge(view: View) -> list[Suspect]:
    waits = _waits(view)
    found = _mismatches(view)
    if found:
        return found
    waiting, awaited = waits.waits(), waits.awaited()
    maybe = waits.maybe()
    ends = {rank for rank in awaited if rank not in waiting and rank not in waits.pairs}
    culprits = {rank for rank in ends if not maybe.get(rank)}
    # A host may have issued a call long before its GPU comes to it.
    culprits = {rank for rank in culprits if not _held_up(view, waits, rank)}
    if culprits:
        return _culprits(view, waits, culprits)
    circle = _circle(waits)
    if circle:
        return [_cycle(view, waits, circle)]
    if not waits.inside():
        return _outside(view)
    return _unheard(view, waits, maybe)


def _stand(view: View, rank: int) -> tuple[Group, Call] | None:
    """Returns a rank's oldest open call over all groups: a GPU comes to the others after it."""
    found: list[tuple[float, Group, Call]] = []
    for group, members in view.progress.items():
        for call in members[rank].open if rank in members else ():
            if call.since is None:
                return None
            found.append((call.since, group, call))
    if not found:
        return None
    _, group, call = min(found, key=lambda each: each[0])
    return group, call


def _held_up(view: View, waits: _Waits, rank: int) -> bool:
    """Returns whether a rank stands in a call that another member is not in yet: that one stands
    in another call, and has issued this one ahead, or not at all."""
    own = _stand(view, rank)
    if own is None:
        return False
    group, call = own
    if call.peer is not None:
        other = _stand(view, call.peer)
        return other is not None and other[1].peer != rank
    if call.seq is None:
        return False
    for member, front in waits.fronts.get(group, {}).items():
        if member == rank or front > (call.seq, True):
            continue
        stand = _stand(view, member)
        if stand is not None and (stand[0], stand[1].seq, stand[1].peer) != (group, call.seq, None):
            return True
    return False


def _waits(view: View) -> _Waits:
    found = _Waits(view)
    for group, members in view.progress.items():
        fronts = {rank: front for rank, p in members.items() if (front := _front(p)) is not None}
        if not fronts:
            continue
        found.fronts[group] = fronts
        found.absent[group] = frozenset(group.ranks) - set(fronts)
    _pair(view, found)
    return found


def _front(progress: Progress) -> Front | None:
    """Returns how far a rank has come among the calls of all members; None: the source is mute."""
    call = _oldest(progress)
    if call is not None and call.seq is not None:
        return call.seq, True
    last = progress.completed if progress.completed is not None else progress.enqueued
    if progress.enqueued is not None and progress.completed is not None:
        last = max(progress.enqueued, progress.completed)
    if last is not None:
        # Counters can't tell a call that was not entered from one that is being entered.
        return last + 1, False
    if progress.whole and not progress.open:
        return _NOWHERE
    return None


def _oldest(progress: Progress) -> Call | None:
    """Returns the oldest open call of all members: not a send or recv."""
    return next((call for call in progress.open if call.peer is None), None)


def _pair(view: View, found: _Waits) -> None:
    """Finds open sends and receives whose peer has no open counterpart."""
    open_calls: dict[tuple[int, int], list[tuple[Group, Call]]] = defaultdict(list)
    for group, members in view.progress.items():
        for rank, progress in members.items():
            for call in progress.open:
                if call.peer is not None and call.peer != rank:
                    open_calls[(rank, call.peer)].append((group, call))
    for (rank, peer), calls in open_calls.items():
        group, oldest = calls[0]
        if _waits_for_peer(oldest, [call for _, call in open_calls.get((peer, rank), ())]):
            found.pairs[rank].add(peer)
            found.calls[(rank, peer)] = group, oldest


def _waits_for_peer(call: Call, back: Sequence[Call]) -> bool:
    """Returns whether a send or recv waits for its peer. back: the peer's open calls with us."""
    if not back:
        return True
    other = back[0]
    same_way = ("send" in call.op) == ("send" in other.op)
    if call.seq is None or other.seq is None:
        return all(("send" in call.op) == ("send" in each.op) for each in back)
    # A peer that is further has completed its side of this message.
    return other.seq < call.seq or (other.seq == call.seq and same_way)


def _culprits(view: View, waits: _Waits, culprits: set[int]) -> list[Suspect]:
    """Returns a suspect for each kind of culprit."""
    kinds: dict[Cause, list[int]] = defaultdict(list)
    for rank in sorted(culprits):
        kinds[_kind(view, waits, rank)].append(rank)
    silent = _silent(view, waits)
    unheard = set(range(max(view.world or 0, max(view.heard, default=-1) + 1))) - view.heard
    found = []
    for cause, ranks in kinds.items():
        waiting, group, call = waits.waiting_for(ranks)
        support = [*_points(view, waits, ranks, group, call)]
        against = []
        if silent:
            text = f"no evidence of {ranks_text(silent)} that the others may wait for as well"
            against.append(Point(text))
        hidden = _hidden(view, ranks)
        if hidden:
            text = "not all that it issues was recorded: it may be inside a send or a receive"
            if unheard:
                text = f"{text}, and {ranks_text(unheard)} left no evidence"
            against.append(Point(text, hidden.source))
        unsure = hidden is not None and (hidden.unseen or bool(unheard))
        certainty = 0 if unsure else 1 if hidden or silent else 2
        found.append(
            Suspect(
                cause,
                _processes(view, ranks),
                rule="awaited-and-waits-for-nobody",
                certainty=certainty,
                support=tuple(support),
                against=tuple(against),
                waiting=_processes(view, sorted(waiting)),
                at=call,
                group=group,
            )
        )
    return sorted(found, key=lambda s: -len(s.waiting))


def _hidden(view: View, ranks: Sequence[int]) -> Progress | None:
    """Returns progress of one of the ranks that need not show all that it has open.

    Gloo records no send and recv, and takes a call that failed for one that ended.
    """
    for members in view.progress.values():
        for rank in ranks:
            progress = members.get(rank)
            if progress is None or progress.timed_out:
                continue
            if progress.unseen or not progress.whole:
                return progress
            if progress.backend == "gloo" and not progress.open:
                return progress
    return None


def _kind(view: View, waits: _Waits, rank: int) -> Cause:
    """Tells a GPU that completes nothing from a host that issues nothing."""
    own = {g: members[rank] for g, members in view.progress.items() if rank in members}
    pending = sum(p.open_count or len(p.open) for p in own.values())
    if not pending:
        unsure = any(p.timed_out or not p.whole for p in own.values())
        return "not-entered-or-inside" if unsure else "not-entered"
    on_gpu = [p for p in own.values() if p.open and p.backend not in ("gloo", "mpi", "ucc")]
    later = any(
        p.enqueued is not None and call.seq is not None and p.enqueued > call.seq
        for p in on_gpu
        if (call := _oldest(p)) is not None
    )
    if on_gpu and (pending > 1 or later):
        return "gpu-stopped"
    return "inside-call"


def _points(
    view: View, waits: _Waits, ranks: Sequence[int], group: Group | None, call: Call | None
) -> Iterable[Point]:
    for rank in ranks[:_MOST_NAMED]:
        own = [members[rank] for members in view.progress.values() if rank in members]
        pending = [p for p in own if p.open]
        if group is not None and call is not None and rank in view.progress[group]:
            p = view.progress[group][rank]
            last = p.completed if p.completed is not None else p.enqueued
            if last is not None and call.seq is not None and call.peer is None:
                text = f"rank {rank} completed {last} of {call.seq} in group {group.name}"
                yield Point(text, p.source)
        if pending:
            count = sum(p.open_count or len(p.open) for p in pending)
            yield Point(
                f"rank {rank} has issued {count} calls that did not complete", own[0].source
            )
        elif own:
            yield Point(f"rank {rank} has no open call in any group", own[0].source)


def _silent(view: View, waits: _Waits) -> set[int]:
    """Returns members of groups in which somebody waits, without evidence of any kind."""
    heard = view.heard
    return {
        rank
        for group, absent in waits.absent.items()
        if any(front[1] for front in waits.fronts[group].values())
        for rank in absent
        if rank not in heard
    }


def _outside(view: View) -> list[Suspect]:
    """No call is open anywhere: the stall, if there is one, is in code that is no collective."""
    whole = [p for members in view.progress.values() for p in members.values() if p.whole]
    if not whole or any(p.timed_out for p in whole):
        return []
    ranks = sorted({p.process.rank for p in whole if p.process.rank is not None})
    point = Point("every rank that left evidence has completed all that it issued", whole[0].source)
    return [
        Suspect(
            "outside", (), rule="no-open-call", certainty=0, support=(point,),
            waiting=_processes(view, ranks),
        )
    ]  # fmt: skip


def _unheard(view: View, waits: _Waits, maybe: Mapping[int, set[int]]) -> list[Suspect]:
    """All that left evidence wait: for ranks without evidence, or for nobody known."""
    inside = waits.inside()
    missing = set().union(*(maybe.get(rank, set()) for rank in inside)) - inside
    missing |= {peer for peers in waits.pairs.values() for peer in peers} - view.heard
    if not missing and any(not group.ranks for group in waits.fronts):
        missing = _only_other(view, inside)
    waiting, group, call = waits.waiting_for(missing)
    front = [rank for rank in inside if missing & maybe.get(rank, set())]
    if not group:
        group, call = _common(view, front or sorted(inside))
    first = min((p for p in _of_group(view, group)), key=lambda p: p.time or 0.0, default=None)
    source = first.source if first else None
    if missing:
        silent = not missing & view.heard
        how = "left no evidence" if silent else "did not say to be in this call"
        text = f"{ranks_text(missing)} {how}; {ranks_text(inside)} wait in calls with them"
        against = "a missing dump means only that nobody wrote it"
        if not silent:
            against = "only counters were read: a stack of the rank would tell more"
        return [
            Suspect(
                "not-entered-or-inside",
                _processes(view, sorted(missing)),
                rule="awaited-and-silent",
                certainty=1 if len(missing) == 1 else 0,
                support=(Point(text, source),),
                against=(Point(against),),
                waiting=_processes(view, sorted(waiting or inside)),
                at=call,
                group=group,
            )
        ]
    text, rule = "every rank of the group is inside the call, none is behind", "all-inside"
    if not group or not group.ranks:
        text, rule = "the ranks of the group are not known, nor who is behind", "group-unknown"
    return [
        Suspect(
            "unknown", (), rule=rule, certainty=0, support=(Point(text, source),),
            waiting=_processes(view, sorted(inside)), at=call, group=group,
        )
    ]  # fmt: skip


def _only_other(view: View, inside: Collection[int]) -> set[int]:
    """Returns the one rank of the job that is inside no call, though who is in the groups is not
    known; else nothing. The job has at least as many ranks as the largest rank says."""
    world = max(view.world or 0, max(view.heard) + 1)
    others = set(range(world)) - set(inside)
    return others if len(others) == 1 and len(inside) > 1 else set()


def _of_group(view: View, group: Group | None) -> Collection[Progress]:
    return view.progress.get(group, {}).values() if group is not None else ()


def _common(view: View, ranks: Collection[int]) -> tuple[Group | None, Call | None]:
    """Returns the call in which most of the ranks are."""
    where: Counter[tuple[Group, Call]] = Counter()
    for group, members in view.progress.items():
        for rank in ranks:
            call = _oldest(members[rank]) if rank in members else None
            if call is not None:
                plain = Call(call.seq, call.op)
                where[(group, plain)] += 1
    if not where:
        return None, None
    return max(where, key=lambda key: where[key])


def _mismatches(view: View) -> list[Suspect]:
    """Returns the mismatches at calls that some rank has not completed, the earliest a group."""
    firsts: dict[Group, Mismatch] = {}
    for mismatch in view.mismatches:
        members = view.progress.get(mismatch.group, {})
        stuck = [
            rank
            for variant in mismatch.variants
            for rank in variant.ranks
            if rank in members and not _done(members[rank], mismatch.seq)
        ]
        old = firsts.get(mismatch.group)
        if stuck and (old is None or mismatch.seq < old.seq):
            firsts[mismatch.group] = mismatch
    found = []
    for group, mismatch in firsts.items():
        usual, *others = mismatch.variants
        minority = [rank for variant in others for rank in variant.ranks]
        clear = len(usual.ranks) > len(minority)
        named = minority if clear else [*usual.ranks, *minority]
        points = tuple(
            Point(f"{ranks_text(v.ranks)}: {_signature(v.call, mismatch)}", v.source)
            for v in mismatch.variants
        )
        found.append(
            Suspect(
                "mismatch", _processes(view, sorted(named)), rule="different-calls",
                certainty=2 if clear else 1, support=points,
                waiting=_processes(view, sorted(usual.ranks)) if clear else (),
                at=usual.call, group=group, mismatch=mismatch,
            )
        )  # fmt: skip
    return found


def _done(progress: Progress, seq: int) -> bool:
    return progress.completed is not None and progress.completed >= seq


def _signature(call: Call, mismatch: Mismatch) -> str:
    parts = [call.op]
    if mismatch.differs in ("sizes", "op"):
        parts.append(call.sizes)
    if mismatch.differs == "dtype":
        parts.append(call.dtype)
    if mismatch.differs == "root":
        parts.append(f"root {call.root}")
    if mismatch.differs == "peer":
        parts.append(f"peer {call.peer}")
    return " ".join(part for part in parts if part)


def _circle(waits: _Waits) -> list[set[int]]:
    """Returns sets of ranks that wait in a circle, each set for the next; empty if none do."""
    ranks = sorted(waits.inside())
    if len(ranks) > 4096:
        ranks = ranks[:4096]
    edges = {rank: waits.of(rank) for rank in ranks}
    # Ranks with the same edges are one node: the members of a group that wait together.
    sets: dict[frozenset[int], set[int]] = defaultdict(set)
    for rank in ranks:
        sets[frozenset(edges[rank])].add(rank)
    nodes = [(members, targets) for targets, members in sets.items() if targets]
    for start in range(len(nodes)):
        path, at = [start], start
        while True:
            following = next(
                (i for i, (members, _) in enumerate(nodes) if members & nodes[at][1]), None
            )
            if following is None:
                break
            if following in path:
                loop = path[path.index(following) :]
                return [nodes[i][0] for i in loop] if len(loop) > 1 else []
            path.append(following)
            at = following
    return []


def _cycle(view: View, waits: _Waits, circle: list[set[int]]) -> Suspect:
    points = []
    for members, following in zip(circle, [*circle[1:], circle[0]], strict=True):
        rank = min(members)
        at = _where(view, waits, rank, following)
        if at is not None:
            group, call, source = at
            one, other = ranks_text(members), ranks_text(following)
            text = f"{one} waits for {other} in {call.op} of group {group.name}"
            if len(members) > 1:
                text = text.replace(" waits ", " wait ", 1)
            points.append(Point(text, source))
    everyone = sorted(set().union(*circle))
    return Suspect(
        "cycle", _processes(view, everyone), rule="circle", certainty=2, support=tuple(points),
        cycle=tuple(_processes(view, sorted(members)) for members in circle),
    )  # fmt: skip


def _where(
    view: View, waits: _Waits, rank: int, following: set[int]
) -> tuple[Group, Call, Source] | None:
    for group, fronts in waits.fronts.items():
        own = fronts.get(rank)
        if own and own[1] and any(fronts[q] < own for q in following if q in fronts):
            progress = view.progress[group][rank]
            call = _oldest(progress)
            if call is not None:
                return group, call, progress.source
    for peer in waits.pairs.get(rank, set()) & following:
        group, call = waits.calls[(rank, peer)]
        return group, call, view.progress[group][rank].source
    return None


def _processes(view: View, ranks: Iterable[int]) -> tuple[Process, ...]:
    known = {p.rank: p for p in view.processes}
    return tuple(known.get(rank, Process(rank)) for rank in ranks)
