"""Ranks that left no word of calls in which others wait: named only if no other can be it."""

from collections import defaultdict
from collections.abc import Set

from oddrank.finding import ranks_text
from oddrank.triage import causes
from oddrank.triage.facts import Group, Source
from oddrank.triage.judges.wait_graph import Graph, Place
from oddrank.triage.suspects import Point, Suspect
from oddrank.triage.words import call_text

_MOST_APART = 4  # ranks in other calls that are told
# So many ranks that do as always make one odd that does not.
_MOST_DO = 2


def judge(graph: Graph) -> list[Suspect]:
    """All that left evidence wait: for ranks without evidence, or for nobody known."""
    view, inside = graph.view, graph.inside
    calls = [(rank, place, call) for place in graph.places for rank, call in place.calls.items()]
    # Who stands in a call that it never issued after the same calls, and who does as always.
    unusual = {rank: place for rank, place, call in calls if call.usual is False}
    usual = {rank for rank, _, call in calls if call.usual}
    if len(unusual) == 1 and len(usual) >= _MOST_DO:
        return [_odd(graph, *unusual.popitem())]
    # The silent ranks for whom others wait that wait for nobody else.
    ends = (own for own in {*graph.of.values()} if not any(place.known for place in own))
    missing = {rank for own in ends for place in own for rank in place.unheard} - inside
    # Who is in the groups is not known, but that all other ranks of the job are inside.
    others = set(range(view.world or 0)) - inside
    unknown = not missing and any(not group.ranks for group in graph.fronts)
    alone = others if unknown and len(others) == 1 < len(inside) else set()
    # Who did what it never did may be odd itself: the silent one may be in that call with it.
    sure = alone or (set() if unusual else _sure(graph, missing))
    silent = sure or missing
    if not silent:
        return [_nobody(graph)]
    counted = bool(silent & view.heard)
    how = "did not say to be in this call" if counted else "left no evidence"
    stay = "waits" if len(inside) == 1 else "wait"
    them = "it" if len(silent) == 1 else "them"
    text = f"{ranks_text(silent)} {how}; {ranks_text(inside)} {stay} in calls with {them}"
    against = "a missing dump means only that nobody wrote it"
    if counted:
        against = "only counters were read: a stack of the rank would tell more"
    elif not sure and len(silent) == 1:
        against = "it may itself wait for others that left no evidence"
    where = graph.where(p for p in graph.places if alone or not silent.isdisjoint(p.unheard))
    # Where it is not sure for whom they wait, those are told who stand in one call.
    waiting = view.named(sorted(inside)) if len(sure) == 1 else where["there"]
    return [
        graph.suspect(
            causes.NOT_ENTERED_OR_INSIDE, silent, "awaited-and-silent", int(len(sure) == 1),
            [Point(text, _first_source(graph, where.get("group")))],
            **{**where, "against": (Point(against),), "waiting": waiting},
        )
    ]  # fmt: skip


def _odd(graph: Graph, rank: int, place: Place) -> Suspect:
    call = place.calls[rank]
    what = f"{call.op} {call.dtype} {call.sizes}".strip()
    text = f"rank {rank} stands in {what}, which it never issued after the same calls before"
    return graph.suspect(
        causes.MISMATCH, {rank}, "unusual-call", 1,
        [
            Point(text, graph.view.progress[place.group][rank].source),
            Point("all other ranks stand where they always came to"),
        ],
        against=(Point("the other side of the call left no evidence"),),
        at=call, group=place.group, there=(),
    )  # fmt: skip


def _nobody(graph: Graph) -> Suspect:
    view, inside = graph.view, graph.inside
    where = graph.where(place for place in graph.places if place.call.peer is None)
    group = where.get("group")
    there = {process.rank for process in where.get("there", ())}
    text, rule = "every rank of the group is inside the call, none is behind", "all-inside"
    if group is None and all(place.call.peer is None for place in graph.places):
        text, rule = "no line names a call that all of them issue", "group-unknown"
    elif group is None:
        text = "every rank is inside messages whose other ends were issued, none is behind"
    elif not group.ranks or not set(group.ranks) <= there:
        text, rule = "the ranks of a group are not known, nor who is behind", "group-unknown"
    points = [Point(text, _first_source(graph, group))]
    apart = [(rank, places[0]) for rank, places in sorted(graph.of.items()) if rank not in there]
    for rank, place in apart[:_MOST_APART] if group is not None else ():
        source = view.progress[place.group][rank].source
        points.append(Point(f"rank {rank} waits in {call_text(place.call)}", source))
    members = view.progress[group].values() if group is not None else ()
    if members and all(p.completed == 0 and p.backend.endswith("ccl") for p in members):
        points.append(Point("no rank completed this first call of the group: the path between their"
                            " GPUs or hosts may not work at all"))  # fmt: skip
    return Suspect(
        causes.UNKNOWN, (), rule=rule, certainty=0, support=tuple(points),
        waiting=view.named(sorted(inside)), **where,
    )  # fmt: skip


def _first_source(graph: Graph, group: Group | None) -> Source | None:
    members = graph.view.progress.get(group, {}).values() if group is not None else ()
    first = min(members, key=lambda p: p.time or 0.0, default=None)
    return first.source if first else None


def _sure(graph: Graph, missing: Set[int]) -> set[int]:
    """Returns the ranks that others wait for, and that can't wait for anybody themselves.

    If the GPU of one rank stops in a call, the others get out: so one rank alone in a call with a
    silent one may itself be stuck, unless all other ranks of the job left evidence.
    """
    view = graph.view
    awaiting: dict[int, set[int]] = defaultdict(set)
    alone: set[int] = set()
    for place in graph.places:
        if len(place.unheard) == 1:
            awaiting[min(place.unheard)].update(place.calls)
        if len(place.calls) == 1:
            alone |= place.unheard
    groups: dict[int, list[Group]] = defaultdict(list)
    for group in view.progress:
        for rank in group.ranks if len(group.ranks) > 1 else ():
            groups[rank].append(group)
    without_word = (view.everyone | groups.keys()) - view.of_rank.keys()
    most = max((len(groups[rank]) for rank in view.of_rank), default=0)
    found = set()
    for rank, waiting in awaiting.items():
        known = without_word <= {rank} or (rank not in alone and len(groups[rank]) >= most)
        # Ranks issue the calls of groups that they share in one order: who waits for the rank in a
        # call has been through all calls before it, so that the rank is not in one of these. That
        # says nothing of messages, which are of two alone.
        could_wait_for = {
            member
            for group in groups[rank]
            if waiting.isdisjoint(group.ranks)
            or any(c.peer is not None for p in view.progress[group].values() for c in p.open)
            for member in group.ranks
        } - {rank}
        if rank in missing and known and graph.ends(could_wait_for) <= {rank}:
            found.add(rank)
    return found
