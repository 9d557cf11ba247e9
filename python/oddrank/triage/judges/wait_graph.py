"""One graph of which rank waits for which: the calls in which ranks stand, and the missing ranks.

A rank inside a call waits for each member of the group that has come less far; one inside a send
or a recv, for its peer. A host issues calls long before its GPU comes to them, and a GPU runs them
in order. So a rank is not in all calls that it has open: it stands in the oldest one, if its source
tells which that is.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import Any

from oddrank.finding import grouped
from oddrank.triage.facts import ON_HOST, Call, Group, Progress
from oddrank.triage.suspects import Cause, Point, Suspect
from oddrank.triage.view import View

TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""No rank leaves these before all members are in: how their names begin."""
_BATCH = 0.0005  # messages that were issued within so many seconds are a batch: they run at once
# How far a rank has come in a group: the call in which it is or which it has not entered, and
# whether it is inside. A rank inside waits for all members with a smaller front.
Front = tuple[int, bool]
_NOWHERE: Front = (-1, False)


@dataclass(eq=False)
class Place:
    """A call in which ranks stand, and for whom they wait there. A message is of one rank alone.

    calls: the call as each of the ranks issued it. missing: ranks that have not issued it.
    elsewhere: ranks that have issued it, but whose GPUs stand in an older call. unheard: members
    that left no word of the group and may lack as well.
    """

    group: Group
    call: Call
    calls: dict[int, Call] = field(default_factory=dict)
    missing: frozenset[int] = frozenset()
    elsewhere: frozenset[int] = frozenset()
    unheard: frozenset[int] = frozenset()

    @cached_property
    def known(self) -> frozenset[int]:
        return self.missing | self.elsewhere

    @cached_property
    def awaited(self) -> frozenset[int]:
        return self.known | self.unheard


class Graph:
    """Which rank waits for which. Keeps edges of groups by place: n ranks may have n * n.

    fronts: how far each rank has come in each group. unmet: (rank, peer) -> the first open message
    between them without a counterpart. of: rank -> where it stands. ordered: ranks of which only
    the oldest call counts.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        self.fronts = {
            group: {rank: f for rank, p in members.items() if (f := _front(p)) is not None}
            for group, members in view.progress.items()
        }
        self.unmet = _unmet(view)
        self.ordered: set[int] = set()
        self.of = self._standing()
        self.places = list(dict.fromkeys(place for own in self.of.values() for place in own))
        for place in self.places:
            if place.call.peer is not None:
                self._await_peer(place, place.call.peer)
            elif place.call.seq is not None:
                self._await_members(place, place.call.seq)

    @cached_property
    def vague(self) -> set[int]:
        """Ranks in calls without details or of unknown groups; and ranks inside a call on the host
        that others have left: the others' messages may be on their way."""
        late = {(rank, place.group) for place in self.places for rank in place.known}
        return {
            rank for rank, own in self.view.of_rank.items()
            if any((not g.ranks or (p.backend in ON_HOST and (rank, g) in late)) if p.open
                   else p.timed_out for g, p in own.items())
        }  # fmt: skip

    @cached_property
    def inside(self) -> set[int]:
        """The ranks that are inside calls."""
        return self.vague | self.of.keys()

    @cached_property
    def waiting(self) -> set[int]:
        """The ranks that wait for others."""
        return {r for r, own in self.of.items() if any(place.awaited for place in own)}

    def ends(self, ranks: Set[int]) -> set[int]:
        """Returns the last ranks on the ways of waits from `ranks`: those that wait for none."""
        seen, work = set(ranks), list(ranks)
        while work:
            for place in self.of.get(work.pop(), ()):
                new = place.awaited - seen
                seen |= new
                work += new
        return seen - self.waiting

    def suspect(
        self, cause: Cause, ranks: Set[int], rule: str, certainty: int, support: Sequence[Point],
        **more: Any,
    ) -> Suspect:  # fmt: skip
        """Makes a suspect of ranks, with all ranks that wait for them, directly or not.
        Adds the call in which most ranks wait for them directly."""
        awaiting = grouped((rank, place) for place in self.places for rank in place.awaited)
        direct = {place for rank in ranks for place in awaiting.get(rank, ())}
        waiting, seen, work = set(ranks), set[Place](), list(ranks)
        while work:
            for place in awaiting.get(work.pop(), ()):
                if place not in seen:
                    seen.add(place)
                    work += place.calls.keys() - waiting
                    waiting |= place.calls.keys()
        where = self.where(p for p in self.places if p in direct and p.calls.keys() - ranks)
        told = {"waiting": self.view.named(sorted(waiting - {*ranks})), **where, **more}
        named = self.view.named(sorted(ranks))
        return Suspect(cause, named, rule, certainty, tuple(support), **told)

    def where(self, places: Iterable[Place]) -> dict[str, Any]:
        """Returns the call in which most ranks of places stand, and these ranks, for a suspect."""
        alike = grouped(((place.group, place.call.seq, place.call.op), place) for place in places)

        def weight(some: list[Place]) -> tuple[int, int, int]:
            group, call = some[0].group, some[0].call
            return sum(len(p.calls) for p in some), len(group.ranks), -(call.seq or 0)

        best = max(alike.values(), key=weight, default=None)
        if best is None:
            return {}
        there = sorted({rank for place in best for rank in place.calls})
        return {"at": best[0].call, "group": best[0].group, "there": self.view.named(there)}

    def _standing(self) -> dict[int, tuple[Place, ...]]:
        """Puts each rank that has a call open to the places where it stands."""
        places: dict[object, Place] = {}
        found = {}
        for rank, own in sorted(self.view.of_rank.items()):
            calls = [(group, call) for group, p in own.items() for call in p.open]
            if not calls:
                continue
            gpu = all(p.backend not in ON_HOST for p in own.values() if p.open)
            stands = []
            if is_ordered := gpu and all(call.since is not None for _, call in calls):
                self.ordered.add(rank)
            for group, call in _oldest_of(calls) if is_ordered else _all_of(calls):
                message = None if call.peer is None else (rank, call.peer, call.op)
                place = places.setdefault((group, call.seq, message), Place(group, call))
                place.calls[rank] = call
                stands.append(place)
            found[rank] = tuple(stands)
        return found

    def _await_members(self, place: Place, seq: int) -> None:
        group, here = place.group, (seq, True)
        fronts, members = self.fronts[group], self.view.progress[group]
        gpu = all(p.backend not in ON_HOST for p in members.values())
        if gpu and place.call.op.startswith(TOGETHER) and any(f > here for f in fronts.values()):
            return  # somebody got out: all members had come
        absent = frozenset(group.ranks) - fronts.keys()
        place.missing = frozenset(rank for rank, front in fronts.items() if front < here)
        # A dump that was cut off does not tell of this call, but of the one before.
        place.elsewhere = (absent & self.ordered) | {
            rank for rank, front in fronts.items()
            if front == here and rank in self.ordered and rank not in place.calls
            and ((call := oldest(members[rank])) is None or call.state != "started")
        }  # fmt: skip
        place.unheard = absent - self.ordered

    def _await_peer(self, place: Place, peer: int) -> None:
        (rank,) = place.calls
        if peer not in self.view.of_rank:
            place.unheard = frozenset({peer})
        elif (rank, peer) in self.unmet:
            place.missing = frozenset({peer})
            place.group, place.call = self.unmet[rank, peer]
        elif peer in self.ordered and all(p.call.peer != rank for p in self.of[peer]):
            place.elsewhere = frozenset({peer})


# How far ranks have come.


def _front(progress: Progress) -> Front | None:
    """Returns how far a rank has come among the calls of all members; None: the source is mute."""
    call = oldest(progress)
    if call is not None and call.seq is not None:
        return call.seq, True
    numbers = [n for n in (progress.enqueued, progress.completed) if n is not None]
    if numbers:
        # Counters can't tell a call that was not entered from one that is being entered.
        return max(numbers) + 1, False
    return _NOWHERE if progress.whole and not progress.open else None


def oldest(progress: Progress) -> Call | None:
    """Returns the oldest open call of all members: not a send or recv."""
    return next((call for call in progress.open if call.peer is None), None)


# Messages whose other side is not open.


def _unmet(view: View) -> dict[tuple[int, int], tuple[Group, Call]]:
    """Returns the first open message of each rank to a peer that waits for the peer.

    Sends meet receives in the order in which they were issued. A message is met if the peer is in
    its other end, or in a later message of the same way: numbers tell, if all have them.
    """
    opened: dict[tuple[int, int], list[tuple[Group, Call]]] = defaultdict(list)
    for rank, groups in view.of_rank.items():
        for group, progress in groups.items():
            for call in progress.open:
                if call.peer is not None and call.peer != rank:
                    opened[rank, call.peer].append((group, call))
    found: dict[tuple[int, int], tuple[Group, Call]] = {}
    for (rank, peer), own in opened.items():
        back = [call for _, call in opened.get((peer, rank), [])]
        every = [*back, *(call for _, call in own)]
        numbered = all(call.nth is not None for call in every)
        # The other side has completed messages that are open on one side only, before this number.
        start = 0
        if back and not numbered and all(call.seq is not None for call in every):
            start = max(min(c.seq or 0 for c in back), min(c.seq or 0 for _, c in own))
        met: Counter[bool] = Counter()
        for group, call in own:
            others = [c for c in back if is_send(c) != is_send(call) and (c.seq or 0) >= start]
            number, last = call.nth or 0, max((c.nth or 0 for c in others), default=0)
            if not numbered:
                met[is_send(call)] += (call.seq or 0) >= start
                number, last = met[is_send(call)], len(others)
            if number > last and (call.seq or 0) >= start:
                found[rank, peer] = (group, call)
                break
    return found


def is_send(call: Call) -> bool:
    return "send" in call.op


# Where ranks stand.


def _oldest_of(calls: Iterable[tuple[Group, Call]]) -> list[tuple[Group, Call]]:
    """Returns the call in which a GPU is, or the messages of a batch."""
    first, *others = sorted(calls, key=lambda each: each[1].since or 0.0)
    if first[1].peer is None:
        return [first]
    end = (first[1].since or 0.0) + _BATCH
    return [first, *takewhile(lambda o: o[1].peer is not None and (o[1].since or 0) <= end, others)]


def _all_of(calls: Iterable[tuple[Group, Call]]) -> list[tuple[Group, Call]]:
    """Returns the oldest call of each group, and the oldest message a peer and way."""
    firsts: dict[tuple[Group, int | None, bool], tuple[Group, Call]] = {}
    for group, call in calls:
        key = (group, call.peer, call.peer is not None and is_send(call))
        firsts.setdefault(key, (group, call))
    return list(firsts.values())
