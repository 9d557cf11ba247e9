"""The wait graph with its calls and groups: csrc/triage/wait_graph.hpp says who waits for whom."""

import math
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from oddrank import _native
from oddrank.finding import grouped
from oddrank.triage.facts import ON_HOST, Call, Group, Progress
from oddrank.triage.suspects import Cause, Point, Suspect
from oddrank.triage.view import View

TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""No rank leaves these before all members are in: how their names begin."""
_FAR = 1 << 60  # numbers beyond it are not true


@dataclass(eq=False)
class Place:
    """A call in which ranks stand, and for whom they wait there. A message is of one rank alone.

    calls: the call as each of the ranks issued it. missing: ranks that have not issued it.
    elsewhere: ranks that have issued it, but whose GPUs stand in an older call. unheard: members
    that left no word of the group and may lack as well.
    """

    group: Group
    call: Call
    calls: dict[int, Call]
    missing: frozenset[int]
    elsewhere: frozenset[int]
    unheard: frozenset[int]

    @cached_property
    def known(self) -> frozenset[int]:
        return self.missing | self.elsewhere

    @cached_property
    def awaited(self) -> frozenset[int]:
        return self.known | self.unheard


class Graph:
    """Which rank waits for which. Keeps edges of groups by place: n ranks may have n * n.

    unmet: (rank, peer) -> the first open message between them without a counterpart. of: rank ->
    where it stands. ordered: ranks of which only the oldest call counts.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        number = {group: i for i, group in enumerate(view.progress)}
        every = [(rank, *own) for rank, of in sorted(view.of_rank.items()) for own in of.items()]
        calls = [(group, call) for _, group, progress in every for call in progress.open]
        found = _native.core().wait_graph(
            [(rank, number[group], *_numbers(progress)) for rank, group, progress in every],
            [sorted({*group.ranks}) for group in number],
        )
        self.places: list[Place] = []
        for at, there, missing, elsewhere, unheard in found.pop("places"):
            (group, call), own = calls[at], {rank: calls[i][1] for rank, i in there.items()}
            absent = frozenset(missing), frozenset(elsewhere), frozenset(unheard)
            self.places.append(Place(group, call, own, *absent))
        self.of = {rank: tuple(self.places[i] for i in of) for rank, of in found["of"].items()}
        self.unmet = {pair: calls[at] for pair, at in found["unmet"].items()}
        self.ordered: set[int] = found["ordered"]

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


def _numbers(progress: Progress) -> tuple[object, ...]:
    return (
        progress.backend in ON_HOST, progress.whole, _number(progress.enqueued),
        _number(progress.completed),
        [(_number(call.seq), _number(call.peer), _number(call.nth),
          call.since if math.isfinite(call.since or 0.0) else None,
          call.peer is not None and is_send(call), call.op.startswith(TOGETHER),
          call.state == "started") for call in progress.open],
    )  # fmt: skip


def _number(value: int | None) -> int | None:
    if value is None or -_FAR < value < _FAR:
        return value
    return _FAR if value > 0 else -_FAR


def oldest(progress: Progress) -> Call | None:
    """Returns the oldest open call of all members: not a send or recv."""
    return next((call for call in progress.open if call.peer is None), None)


def is_send(call: Call) -> bool:
    return "send" in call.op
