"""Whom each rank waits for where it stands: in the oldest call that it has not completed.

A host issues calls long before its GPU comes to them, and a GPU runs them in order. So a rank is
not in all calls that it has open: it stands in the oldest one, if its source tells which that is.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property

from oddrank.triage.facts import ON_HOST, Call, Group
from oddrank.triage.judges.wait_graph import Waits, is_send, oldest
from oddrank.triage.view import View

TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Nobody gets out of these before all members are in: how their names begin."""
# Messages that were issued within so many seconds are a batch: they run at once.
_BATCH = 0.0005


@dataclass(frozen=True, slots=True)
class Post:
    """A call in which ranks stand. peer: of a send or recv, which is of one rank alone."""

    group: Group
    call: Call


@dataclass(frozen=True)
class Lacks:
    """Whom those who stand in a call wait for.

    missing: ranks that have not issued it. elsewhere: ranks that have issued it, but whose GPUs
    stand in an older call. unheard: members that left no word of the group and may lack as well.
    """

    missing: frozenset[int] = frozenset()
    elsewhere: frozenset[int] = frozenset()
    unheard: frozenset[int] = frozenset()

    def __or__(self, other: "Lacks") -> "Lacks":
        return Lacks(
            self.missing | other.missing,
            self.elsewhere | other.elsewhere,
            self.unheard | other.unheard,
        )

    @cached_property
    def known(self) -> frozenset[int]:
        return self.missing | self.elsewhere


@dataclass
class Posts:
    """Where ranks stand. ordered: ranks of which only the oldest call counts."""

    view: View
    waits: Waits
    of: dict[int, tuple[Post, ...]] = field(default_factory=dict)
    ordered: set[int] = field(default_factory=set)
    _found: dict[tuple[Group, int], Lacks] = field(default_factory=dict)

    def lacks(self, rank: int) -> Lacks:
        """Returns whom a rank waits for in all calls in which it stands."""
        posts = self.of.get(rank, ())
        if len(posts) == 1:
            return self.of_post(rank, posts[0])
        found = Lacks()
        for post in posts:
            found |= self.of_post(rank, post)
        return found

    def in_call(
        self, ranks: Collection[int], group: Group | None, call: Call | None
    ) -> Collection[int]:
        """Returns which of the ranks stand in a call."""
        if call is None:
            return ()
        same = [(group, call.seq, call.op)]
        return [
            rank
            for rank in ranks
            if any((p.group, p.call.seq, p.call.op) in same for p in self.of.get(rank, ()))
        ]

    def beside(self, ranks: Collection[int]) -> set[int]:
        """Returns which other ranks stand in the call in which one of these stands."""
        places = {
            (post.group, post.call.seq)
            for rank in ranks
            for post in self.of.get(rank, ())
            if post.call.peer is None
        }
        return {
            rank
            for rank, own in self.of.items()
            if rank not in ranks and any((p.group, p.call.seq) in places for p in own)
        }

    def of_post(self, rank: int, post: Post) -> Lacks:
        call = post.call
        if call.peer is not None:
            return self._of_message(rank, post)
        if call.seq is None:
            return Lacks()
        key = (post.group, call.seq)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._of_call(post.group, call.seq, call.op)
        return found

    def _of_call(self, group: Group, seq: int, op: str) -> Lacks:
        fronts, members = self.waits.fronts[group], self.view.progress[group]
        here = (seq, True)
        gpu = all(p.backend not in ON_HOST for p in members.values())
        if gpu and op.startswith(TOGETHER) and any(f > here for f in fronts.values()):
            return Lacks()  # somebody got out: all members had come
        elsewhere = {
            rank for rank, front in fronts.items()
            if front == here and rank in self.ordered and not self._stands(rank, group, seq)
        }  # fmt: skip
        # A dump that was cut off does not tell of this call, but of the one before.
        before = self.waits.absent[group] & self.ordered
        return Lacks(
            frozenset(rank for rank, front in fronts.items() if front < here),
            frozenset(elsewhere | before),
            self.waits.absent[group] - before,
        )

    def _stands(self, rank: int, group: Group, seq: int) -> bool:
        call = oldest(self.view.progress[group][rank])
        if call is not None and call.state == "started":
            return True
        return any(p.group == group and p.call.seq == seq for p in self.of[rank])

    def _of_message(self, rank: int, post: Post) -> Lacks:
        peer = post.call.peer
        assert peer is not None
        own = [m[peer] for m in self.view.progress.values() if peer in m]
        if all(progress.cut and not progress.open for progress in own):
            return Lacks(unheard=frozenset({peer}))
        if peer in self.waits.pairs.get(rank, ()):
            return Lacks(missing=frozenset({peer}))
        other = self.of.get(peer, ())
        if peer not in self.ordered or any(p.call.peer == rank for p in other):
            return Lacks()
        return Lacks(elsewhere=frozenset({peer}))


def posts(view: View, waits: Waits) -> Posts:
    """Returns where each rank stands that has a call open."""
    found = Posts(view, waits)
    own: dict[int, list[tuple[Group, Call, bool]]] = {}
    for group, members in view.progress.items():
        for rank, progress in members.items():
            gpu = progress.backend not in ON_HOST
            for call in progress.open:
                own.setdefault(rank, []).append((group, call, gpu))
    for rank, calls in own.items():
        if all(gpu and call.since is not None for _, call, gpu in calls):
            found.ordered.add(rank)
            found.of[rank] = _oldest_of(calls)
        else:
            found.of[rank] = _all_of(calls)
    return found


def _oldest_of(calls: Iterable[tuple[Group, Call, bool]]) -> tuple[Post, ...]:
    (group, first, _), *others = sorted(calls, key=lambda each: each[1].since or 0.0)
    if first.peer is None:
        return (Post(group, first),)
    batch = [Post(group, first)]
    for group, call, _ in others:
        if call.peer is None or (call.since or 0.0) - (first.since or 0.0) > _BATCH:
            break
        batch.append(Post(group, call))
    return tuple(batch)


def _all_of(calls: Iterable[tuple[Group, Call, bool]]) -> tuple[Post, ...]:
    """Returns the oldest call of each group, and the oldest message a peer and way."""
    firsts: dict[tuple[Group, int | None, bool], Post] = {}
    for group, call, _ in calls:
        key = (group, call.peer, call.peer is not None and is_send(call))
        firsts.setdefault(key, Post(group, call))
    return tuple(firsts.values())
