"""One graph of who waits for whom: the calls in which ranks stand, and who is missing in each.

A rank inside a call waits for each member of the group that has come less far; one inside a send
or a recv, for its peer. A host issues calls long before its GPU comes to them, and a GPU runs them
in order. So a rank is not in all calls that it has open: it stands in the oldest one, if its source
tells which that is.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from oddrank.triage.facts import ON_HOST, Call, Group, Progress
from oddrank.triage.view import View

TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Nobody gets out of these before all members are in: how their names begin."""
# Messages that were issued within so many seconds are a batch: they run at once.
_BATCH = 0.0005
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


@dataclass
class Graph:
    """Who waits for whom. Edges of groups are kept by place: a group of n ranks may have n * n.

    of: rank -> where it stands. ordered: ranks of which only the oldest call counts.
    """

    view: View
    fronts: dict[Group, dict[int, Front]] = field(default_factory=dict)
    absent: dict[Group, frozenset[int]] = field(default_factory=dict)
    pairs: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Open sends and receives without a counterpart: rank -> peers."""
    calls: dict[tuple[int, int], tuple[Group, Call]] = field(default_factory=dict)
    of: dict[int, tuple[Place, ...]] = field(default_factory=dict)
    ordered: set[int] = field(default_factory=set)

    @cached_property
    def places(self) -> list[Place]:
        return list(dict.fromkeys(place for places in self.of.values() for place in places))

    def inside(self) -> set[int]:
        """Returns the ranks that are inside a call of a group, or wait for a peer."""
        inside = {rank for fronts in self.fronts.values() for rank, f in fronts.items() if f[1]}
        return inside | set(self.pairs) | self.gave_up()

    def gave_up(self) -> set[int]:
        """Returns the ranks that waited in vain in a call of which no more is known."""
        of_rank = self.view.of_rank.items()
        return {r for r, own in of_rank if any(p.timed_out and not p.open for p in own.values())}

    def among_unknown(self) -> set[int]:
        """Returns ranks inside calls of groups whose ranks are not known."""
        unknown = (fronts for group, fronts in self.fronts.items() if not group.ranks)
        return {rank for fronts in unknown for rank, (_, is_inside) in fronts.items() if is_inside}

    def waiting_for(self, culprits: Collection[int]) -> tuple[set[int], Group | None, Call | None]:
        """Returns who waits directly for any of the culprits, and in which call most of them."""
        waiting: set[int] = set()
        where: Counter[tuple[Group, str, int | None]] = Counter()
        calls: dict[tuple[Group, str, int | None], Call] = {}

        def add(rank: int, group: Group, call: Call | None) -> None:
            waiting.add(rank)
            if call is not None:
                key = (group, call.op, call.seq)
                where[key] += 1
                calls.setdefault(key, call)

        for group, fronts in self.fronts.items():
            here = [fronts[rank] for rank in culprits if rank in fronts]
            if not here:
                continue
            least = min(here)
            for rank, front in fronts.items():
                if rank not in culprits and front[1] and least < front:
                    add(rank, group, oldest(self.view.progress[group][rank]))
        for rank, peers in self.pairs.items():
            for peer in peers & set(culprits) if rank not in culprits else ():
                add(rank, *self.calls[(rank, peer)])
        if not where:
            return waiting, None, None
        best = max(where, key=lambda key: (where[key], len(key[0].ranks), -(key[2] or 0)))
        return waiting, best[0], calls[best]

    def in_call(self, ranks: Iterable[int], group: Group | None, call: Call | None) -> list[int]:
        """Returns which of the ranks stand in a call."""
        if call is None:
            return []
        same = (group, call.seq, call.op)
        return [
            rank
            for rank in ranks
            if any((p.group, p.call.seq, p.call.op) == same for p in self.of.get(rank, ()))
        ]

    def beside(self, ranks: Collection[int]) -> set[int]:
        """Returns which other ranks stand in the call in which one of these stands."""
        places = (place for rank in ranks for place in self.of.get(rank, ()))
        return {rank for p in places if p.call.peer is None for rank in p.calls} - set(ranks)


def graph(view: View) -> Graph:
    found = Graph(view)
    for group, members in view.progress.items():
        fronts = {rank: front for rank, p in members.items() if (front := _front(p)) is not None}
        if fronts:
            found.fronts[group] = fronts
            found.absent[group] = frozenset(group.ranks) - set(fronts)
    _pair(found)
    _stand(found)
    for place in found.places:
        if place.call.peer is not None:
            _await_peer(found, place, place.call.peer)
        elif place.call.seq is not None:
            _await_members(found, place, place.call.seq)
    return found


# How far ranks have come.


def _front(progress: Progress) -> Front | None:
    """Returns how far a rank has come among the calls of all members; None: the source is mute."""
    call = oldest(progress)
    if call is not None and call.seq is not None:
        return call.seq, True
    if progress.cut:
        return None
    last = progress.completed if progress.completed is not None else progress.enqueued
    if progress.enqueued is not None and progress.completed is not None:
        last = max(progress.enqueued, progress.completed)
    if last is not None:
        # Counters can't tell a call that was not entered from one that is being entered.
        return last + 1, False
    if progress.whole and not progress.open:
        return _NOWHERE
    return None


def oldest(progress: Progress) -> Call | None:
    """Returns the oldest open call of all members: not a send or recv."""
    return next((call for call in progress.open if call.peer is None), None)


# Messages whose other side is not open.


def _pair(found: Graph) -> None:
    """Finds open sends and receives whose peer has no open counterpart."""
    open_calls: dict[tuple[int, int], list[tuple[Group, Call]]] = defaultdict(list)
    for group, members in found.view.progress.items():
        for rank, progress in members.items():
            for call in progress.open:
                if call.peer is not None and call.peer != rank:
                    open_calls[(rank, call.peer)].append((group, call))
    for (rank, peer), calls in open_calls.items():
        own = [call for _, call in calls]
        alone = _without_counterpart(own, [call for _, call in open_calls.get((peer, rank), ())])
        if alone is not None:
            found.pairs[rank].add(peer)
            found.calls[(rank, peer)] = calls[alone]


def _without_counterpart(own: Sequence[Call], back: Sequence[Call]) -> int | None:
    """Returns which of a rank's open calls with a peer is the first that waits for the peer.

    back: the peer's open calls with this rank. Sends meet receives in the order in which they were
    issued; a batch may mix both in another order on each side, and both sides number them alike.
    """
    if all(call.nth is not None for call in (*own, *back)):
        # A call is met if the peer is in the other end of the message, or in a later one that way.
        last = {
            sends: max((each.nth or 0 for each in back if is_send(each) != sends), default=0)
            for sends in (True, False)
        }
        return next((at for at, c in enumerate(own) if last[is_send(c)] < (c.nth or 0)), None)
    numbers = [[call.seq for call in calls if call.seq is not None] for calls in (own, back)]
    numbered = all(numbers) and len(numbers[0]) == len(own) and len(numbers[1]) == len(back)
    # What is open on one side only from before this number on, the other side has completed.
    start = max(min(numbers[0]), min(numbers[1])) if numbered else 0
    met: Counter[bool] = Counter()
    for index, call in enumerate(own):
        if numbered and (call.seq or 0) < start:
            continue
        met[is_send(call)] += 1
        others = [
            each for each in back
            if is_send(each) != is_send(call) and (not numbered or (each.seq or 0) >= start)
        ]  # fmt: skip
        if met[is_send(call)] > len(others):
            return index
    return None


def is_send(call: Call) -> bool:
    return "send" in call.op


# Where ranks stand.


def _stand(found: Graph) -> None:
    """Puts each rank that has a call open to the places where it stands."""
    places: dict[object, Place] = {}
    for rank, own in sorted(found.view.of_rank.items()):
        calls = [(group, call) for group, p in own.items() for call in p.open]
        if not calls:
            continue
        gpu = all(p.backend not in ON_HOST for p in own.values() if p.open)
        if gpu and all(call.since is not None for _, call in calls):
            found.ordered.add(rank)
            calls = _oldest_of(calls)
        else:
            calls = _all_of(calls)
        stands = []
        for group, call in calls:
            message = None if call.peer is None else (rank, call.peer, call.op)
            place = places.setdefault((group, call.seq, message), Place(group, call))
            place.calls[rank] = call
            stands.append(place)
        found.of[rank] = tuple(stands)


def _oldest_of(calls: Iterable[tuple[Group, Call]]) -> list[tuple[Group, Call]]:
    """Returns the call in which a GPU is, or the messages of a batch."""
    first, *others = sorted(calls, key=lambda each: each[1].since or 0.0)
    batch = [first]
    for group, call in others if first[1].peer is not None else ():
        if call.peer is None or (call.since or 0.0) - (first[1].since or 0.0) > _BATCH:
            break
        batch.append((group, call))
    return batch


def _all_of(calls: Iterable[tuple[Group, Call]]) -> list[tuple[Group, Call]]:
    """Returns the oldest call of each group, and the oldest message a peer and way."""
    firsts: dict[tuple[Group, int | None, bool], tuple[Group, Call]] = {}
    for group, call in calls:
        key = (group, call.peer, call.peer is not None and is_send(call))
        firsts.setdefault(key, (group, call))
    return list(firsts.values())


# Whom they wait for there.


def _await_members(found: Graph, place: Place, seq: int) -> None:
    group, here = place.group, (seq, True)
    fronts, members = found.fronts[group], found.view.progress[group]
    gpu = all(p.backend not in ON_HOST for p in members.values())
    if gpu and place.call.op.startswith(TOGETHER) and any(f > here for f in fronts.values()):
        return  # somebody got out: all members had come
    elsewhere = {
        rank for rank, front in fronts.items()
        if front == here and rank in found.ordered and rank not in place.calls
        and ((call := oldest(members[rank])) is None or call.state != "started")
    }  # fmt: skip
    # A dump that was cut off does not tell of this call, but of the one before.
    before = found.absent[group] & found.ordered
    place.missing = frozenset(rank for rank, front in fronts.items() if front < here)
    place.elsewhere = frozenset(elsewhere | before)
    place.unheard = found.absent[group] - before


def _await_peer(found: Graph, place: Place, peer: int) -> None:
    (rank,) = place.calls
    own = found.view.of_rank.get(peer, {}).values()
    if all(progress.cut and not progress.open for progress in own):
        place.unheard = frozenset({peer})
    elif peer in found.pairs.get(rank, ()):
        place.missing = frozenset({peer})
    elif peer in found.ordered and all(p.call.peer != rank for p in found.of[peer]):
        place.elsewhere = frozenset({peer})
