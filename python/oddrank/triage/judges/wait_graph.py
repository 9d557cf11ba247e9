"""Who waits for whom, from the progress of ranks in their groups.

A rank inside a call waits for each member of the group that has come less far; one inside a send
or a recv, for its peer.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from oddrank.triage.facts import Call, Group, Process, Progress
from oddrank.triage.view import View

# How far a rank has come in a group: the call in which it is or which it has not entered, and
# whether it is inside. A rank inside waits for all members with a smaller front.
Front = tuple[int, bool]
_NOWHERE: Front = (-1, False)


@dataclass
class Waits:
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
        return inside | set(self.pairs) | self.gave_up()

    def gave_up(self) -> set[int]:
        """Returns the ranks that waited in vain in a call of which no more is known."""
        return {
            rank
            for members in self.view.progress.values()
            for rank, progress in members.items()
            if progress.timed_out and not progress.open
        }

    def among_unknown(self) -> set[int]:
        """Returns ranks inside calls of groups whose ranks are not known."""
        return {
            rank
            for group, fronts in self.fronts.items()
            if not group.ranks
            for rank, front in fronts.items()
            if front[1]
        }

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
                    call = oldest(self.view.progress[group][rank])
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


def waits(view: View) -> Waits:
    found = Waits(view)
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
    call = oldest(progress)
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


def oldest(progress: Progress) -> Call | None:
    """Returns the oldest open call of all members: not a send or recv."""
    return next((call for call in progress.open if call.peer is None), None)


def _pair(view: View, found: Waits) -> None:
    """Finds open sends and receives whose peer has no open counterpart."""
    open_calls: dict[tuple[int, int], list[tuple[Group, Call]]] = defaultdict(list)
    for group, members in view.progress.items():
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


def stand(view: View, rank: int) -> tuple[Group, Call] | None:
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


def held_up(view: View, waits: Waits, rank: int) -> bool:
    """Returns whether a rank stands in a call that another member is not in yet: that one stands
    in another call, and has issued this one ahead, or not at all."""
    own = stand(view, rank)
    if own is None:
        return False
    group, call = own
    if call.peer is not None:
        other = stand(view, call.peer)
        return other is not None and other[1].peer != rank
    if call.seq is None:
        return False
    for member, front in waits.fronts.get(group, {}).items():
        if member == rank or front > (call.seq, True):
            continue
        other = stand(view, member)
        if other is not None and (other[0], other[1].seq, other[1].peer) != (group, call.seq, None):
            return True
    return False


def processes(view: View, ranks: Iterable[int]) -> tuple[Process, ...]:
    known = {p.rank: p for p in view.processes}
    return tuple(known.get(rank, Process(rank)) for rank in ranks)
