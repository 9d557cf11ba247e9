"""Ranks that wait for each other: the two sides of messages, or ranks in a circle."""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias

from oddrank.finding import ranks_text
from oddrank.triage import causes
from oddrank.triage.judges.wait_graph import Graph, Place, is_send
from oddrank.triage.suspects import Point, Suspect
from oddrank.triage.words import call_of, call_text, group_text, own_place

_MOST_PAIRS = 16
# At most so many places are starts of a search for a shorter circle, and so many ranks are tried
# as members of every circle.
_MOST_TRIED = 64
_Edges: TypeAlias = Mapping[Place, Sequence[Place]]


def judge(graph: Graph) -> list[Suspect]:
    """Returns the circle that ranks wait in, if they do: the shortest one.

    The rank that would break every circle by coming is to blame. If there are several, their usual
    calls may tell; else all of them are named.
    """
    unmet = graph.unmet
    pairs = sorted((one, two) for one, two in unmet if one < two and (two, one) in unmet)
    # A circle of ranks that have not come is surer than one through calls that wait for a GPU.
    sure = bool(around := _shortest(_edges(graph, sure=True)))
    around = around or _shortest(_edges(graph))
    if not around:
        return []
    if len(pairs) > 1:  # no rank breaks both
        return [_opposed(graph, pairs)]
    circle = _ranks(around)
    breakers = _breakers(graph, circle, sure=sure)
    odd = _odd(graph, breakers, ordered=graph.ordered.issuperset(circle))
    if odd is not None:
        return [_one(graph, circle, odd, sure=len(breakers) == 1)]
    if pairs:
        return [_opposed(graph, pairs)]
    sets = [{rank} for rank in breakers] if len(breakers) > 1 else [{*p.calls} for p in around]
    return [Suspect(
        causes.CYCLE, graph.view.named(sorted(set().union(*sets))), rule="circle",
        certainty=2 if sure else 1, support=_points(graph, sets),
        cycle=tuple(graph.view.named(sorted(members)) for members in sets),
    )]  # fmt: skip


# Places wait for places: for those in which the awaited ranks stand.


def _edges(graph: Graph, without: int | None = None, *, sure: bool = False) -> _Edges:
    return {
        place: list(dict.fromkeys(
            to for rank in sorted(place.missing if sure else place.known) if rank != without
            for to in graph.of.get(rank, ())
        ))
        for place in graph.places
    }  # fmt: skip


def _circle(edges: _Edges) -> list[Place]:
    """Returns the places of a circle, each of which waits for the next; empty: there is none."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return list(error.args[1][:0:-1])
    return []


def _shortest(edges: _Edges) -> list[Place]:
    """Returns the shortest circle through a place of the first that is found."""
    starts = sorted(_circle(edges), key=lambda place: min(place.calls))[:_MOST_TRIED]
    return min((_back_to(place, edges) for place in starts), key=len, default=[])


def _back_to(start: Place, edges: _Edges) -> list[Place]:
    before: dict[Place, Place] = {}
    work = deque([start])
    while work:
        place = work.popleft()
        for to in edges[place]:
            if to not in before:
                before[to] = place
                work.append(to)
        if start in before:
            path = [before[start]]
            while path[-1] is not start:
                path.append(before[path[-1]])
            return path[::-1]
    return []


def _ranks(around: Sequence[Place], without: int | None = None) -> list[int]:
    """Returns a rank of each place of a circle: it waits for the next."""
    before = [around[-1], *around[:-1]]
    return [
        min((b.known & place.calls.keys()) - {without})
        for b, place in zip(before, around, strict=True)
    ]


def _breakers(graph: Graph, circle: Sequence[int], *, sure: bool) -> list[int]:
    """Returns the ranks of a circle that are part of every circle.

    Empty, too, if there are too many ranks to try.
    """
    found: list[int] = []
    left = [*circle]
    for _ in range(_MOST_TRIED):
        if not left:
            return found
        tried, *left = left
        if other := _circle(_edges(graph, tried, sure=sure)):
            around = _ranks(other, without=tried)
            left = [rank for rank in left if rank in around]
        else:
            found.append(tried)
    return found if not left else []


# Which rank is named, and why.


def _odd(graph: Graph, breakers: Collection[int], *, ordered: bool) -> int | None:
    """Returns the one rank to blame: no other breaks all circles, or did what it never did.

    ordered: it is known where each of them stands. If not, one rank against many may be the only
    one that is right.
    """
    if len(breakers) == 1 and ordered:
        return next(iter(breakers))
    unusual = [
        rank
        for rank in breakers
        if any(call.usual is False for p in graph.view.of_rank[rank].values() for call in p.open)
    ]
    return unusual[0] if len(unusual) == 1 else None


def _one(graph: Graph, circle: list[int], odd: int, *, sure: bool) -> Suspect:
    at = circle.index(odd)
    why = (
        f"every circle of ranks that wait for each other passes through rank {odd}" if sure
        else f"rank {odd} issued what it never issued after the same calls before"
    )  # fmt: skip
    return graph.suspect(
        causes.NOT_ENTERED, {odd}, "in-every-circle", 1,
        (*_points(graph, [{rank} for rank in (*circle[at:], *circle[:at])]), Point(why)),
        against=(Point("it waits for others, too: the order of its calls makes it odd"),),
    )  # fmt: skip


def _opposed(graph: Graph, pairs: list[tuple[int, int]]) -> Suspect:
    """Two ranks that both send to each other, or both receive: the others wait for them."""
    view, points = graph.view, []
    for one, other in pairs[:_MOST_PAIRS]:
        group, call = graph.unmet[one, other]
        back = graph.unmet[other, one][1]
        place = f" in {group_text(group)}"
        text = f"rank {one} is in {call_text(call)} and rank {other} in {call_text(back)}{place}"
        if is_send(call) == is_send(back):
            does, lacks = ("send to", "receives") if is_send(call) else ("receive from", "sends")
            text = f"ranks {one} and {other} both {does} each other{place}, and neither {lacks}"
        points.append(Point(text, view.progress[group][one].source))
    return graph.suspect(
        causes.CYCLE, {rank for pair in pairs for rank in pair}, "opposed-messages", 2, points,
        cycle=tuple(map(view.named, pairs[:_MOST_PAIRS])),
    )  # fmt: skip


def _points(graph: Graph, circle: Sequence[Collection[int]]) -> tuple[Point, ...]:
    points = []
    for members, following in zip(circle, [*circle[1:], circle[0]], strict=True):
        rank, verb = min(members), "wait" if len(members) > 1 else "waits"
        there = (place for place in graph.of[rank] if not place.known.isdisjoint(following))
        if place := next(there, None):
            where = call_of(place.call, place.group)
            at = f" at {own}" if (own := own_place(place.call.site)) else ""
            text = f"{ranks_text(members)} {verb} for {ranks_text(following)} in {where}{at}"
            points.append(Point(text, graph.view.progress[place.group][rank].source))
    return tuple(points)
