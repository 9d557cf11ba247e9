"""Ranks that left no word of calls in which others wait: named only if no other can be it."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Set

from oddrank.finding import ranks_text
from oddrank.triage import causes
from oddrank.triage.facts import Call, Group, Progress, Source
from oddrank.triage.judges.wait_graph import Graph, Place, oldest
from oddrank.triage.suspects import Point, Suspect
from oddrank.triage.view import View
from oddrank.triage.words import call_text

_MOST_APART = 4  # ranks in other calls that are told
# So many ranks that do as always make one odd that does not.
_MOST_DO = 2


def judge(graph: Graph) -> list[Suspect]:
    """All that left evidence wait: for ranks without evidence, or for nobody known."""
    view, inside = graph.view, graph.inside()
    calls = [(rank, place, call) for place in graph.places for rank, call in place.calls.items()]
    # Who stands in a call that it never issued after the same calls, and who does as always.
    unusual = {rank: place for rank, place, call in calls if call.usual is False}
    usual = {rank for rank, _, call in calls if call.usual}
    if len(unusual) == 1 and len(usual) >= _MOST_DO:
        return [_odd(graph, unusual)]
    missing = _ends_of_chains(graph, inside)
    # Who is in the groups is not known, but that all other ranks of the job are inside.
    others = set(range(view.world or 0)) - inside
    unknown = not missing and any(not group.ranks for group in graph.fronts)
    alone = others if unknown and len(others) == 1 < len(inside) else set()
    # Who did what it never did may be odd itself: the silent one may be in that call with it.
    sure = alone or (set() if unusual else _sure(graph, missing))
    silent = sure or missing
    if not silent:
        return [_nobody(graph, inside)]
    waiting, group, call = graph.waiting_for(silent)
    front = [
        rank for rank in inside
        if any(not silent.isdisjoint(place.unheard) for place in graph.of.get(rank, ()))
    ]  # fmt: skip
    if not group:
        group, call = _common(view, front or sorted(inside))
    counted = view.heard - cut(view)
    how = "left no evidence" if not silent & counted else "did not say to be in this call"
    stay = "waits" if len(inside) == 1 else "wait"
    them = "it" if len(silent) == 1 else "them"
    text = f"{ranks_text(silent)} {how}; {ranks_text(inside)} {stay} in calls with {them}"
    against = "a missing dump means only that nobody wrote it"
    if silent & counted:
        against = "only counters were read: a stack of the rank would tell more"
    elif not sure and len(silent) == 1:
        against = "it may itself wait for others that left no evidence"
    return [
        Suspect(
            causes.NOT_ENTERED_OR_INSIDE,
            view.named(sorted(silent)),
            rule="awaited-and-silent",
            # Of a job of unknown size, others may be silent, too.
            certainty=int(len(sure) == 1 and not (alone and view.world is None)),
            support=(Point(text, _first_source(view, group)),),
            against=(Point(against),),
            waiting=view.named(sorted(waiting or inside)),
            at=call,
            group=group,
            there=view.named(sorted(graph.in_call(waiting or inside, group, call))),
        )
    ]


def _ends_of_chains(graph: Graph, inside: Set[int]) -> set[int]:
    """Returns the silent ranks for whom others wait that wait for nobody else; else all of them."""
    found: tuple[set[int], set[int]] = (set(), set())
    for places in set(graph.of.values()):
        found[any(place.known for place in places)].update(*(place.unheard for place in places))
    ends, others = found
    return ends - inside or others - inside


def _odd(graph: Graph, unusual: Mapping[int, Place]) -> Suspect:
    ((rank, place),) = unusual.items()
    view, call = graph.view, place.calls[rank]
    waiting, _, _ = graph.waiting_for([rank])
    what = f"{call.op} {call.dtype} {call.sizes}".strip()
    text = f"rank {rank} stands in {what}, which it never issued after the same calls before"
    return Suspect(
        causes.MISMATCH, view.named([rank]), rule="unusual-call", certainty=1,
        support=(
            Point(text, view.progress[place.group][rank].source),
            Point("all other ranks stand where they always came to"),
        ),
        against=(Point("the other side of the call left no evidence"),),
        waiting=view.named(sorted(waiting)), at=call, group=place.group,
    )  # fmt: skip


def _nobody(graph: Graph, inside: Collection[int]) -> Suspect:
    view, inside = graph.view, inside or graph.of.keys()
    group, call = _common(view, sorted(inside))
    there = graph.in_call(inside, group, call)
    text, rule = "every rank of the group is inside the call, none is behind", "all-inside"
    if group is None and all(place.call.peer is None for place in graph.places):
        text, rule = "no line names a call that all of them issue", "group-unknown"
    elif group is None:
        text = "every rank is inside messages whose other ends were issued, none is behind"
    elif not group.ranks or not set(group.ranks) <= set(there):
        text, rule = "the ranks of a group are not known, nor who is behind", "group-unknown"
    points = [Point(text, _first_source(view, group))]
    apart = [(rank, places[0]) for rank, places in sorted(graph.of.items()) if rank not in there]
    for rank, place in apart[:_MOST_APART] if group is not None else ():
        if progress := view.progress[place.group].get(rank):
            points.append(Point(f"rank {rank} waits in {call_text(place.call)}", progress.source))
    if (
        call
        and call.seq == 1
        and all(p.completed == 0 and p.backend.endswith("ccl") for p in _of_group(view, group))
    ):
        points.append(Point("no rank completed this first call of the group: the path between their"
                            " GPUs or hosts may not work at all"))  # fmt: skip
    return Suspect(
        causes.UNKNOWN, (), rule=rule, certainty=0, support=tuple(points),
        waiting=view.named(sorted(inside)), at=call, group=group,
        there=view.named(sorted(there)) if group is not None else None,
    )  # fmt: skip


def _of_group(view: View, group: Group | None) -> Collection[Progress]:
    return view.progress.get(group, {}).values() if group is not None else ()


def _first_source(view: View, group: Group | None) -> Source | None:
    first = min(_of_group(view, group), key=lambda p: p.time or 0.0, default=None)
    return first.source if first else None


def _sure(graph: Graph, missing: Collection[int]) -> set[int]:
    """Returns the ranks that others wait for, and that can't wait for anybody themselves.

    If the GPU of one rank stops in a call, the others get out: so one rank alone in a call with a
    silent one may itself be stuck, unless all other ranks of the job left evidence.
    """
    awaiting: dict[int, set[int]] = defaultdict(set)
    alone: set[int] = set()
    for place in graph.places:
        if len(place.unheard) == 1 and not place.known:
            awaiting[next(iter(place.unheard))].update(place.calls)
        if len(place.calls) == 1:
            alone |= place.unheard
    groups: dict[int, list[Group]] = defaultdict(list)
    for group in graph.view.progress:
        for rank in group.ranks if len(group.ranks) > 1 else ():
            groups[rank].append(group)
    others = _without_word(graph.view)
    most = max((len(groups[rank]) for rank in graph.view.of_rank), default=0)
    return {
        rank
        for rank, waiting in awaiting.items()
        if rank in missing
        and (others <= {rank} or (rank not in alone and len(groups[rank]) >= most))
        and _is_end(graph, groups[rank], rank, waiting)
    }


def _without_word(view: View) -> set[int]:
    """Returns the ranks of the job of which nothing is known to be whole."""
    members = {rank for group in view.progress for rank in group.ranks}
    return (view.everyone | members) - (view.of_rank.keys() - cut(view))


def cut(view: View) -> set[int]:
    """Returns the ranks whose dumps were cut off before any call that is open."""
    return {
        rank
        for rank, own in view.of_rank.items()
        if all(progress.cut and not progress.open for progress in own.values())
    }


def _is_end(graph: Graph, groups: Iterable[Group], rank: int, waiting: Set[int]) -> bool:
    """Returns whether everybody that a rank without evidence could wait for waits for that rank.

    Ranks issue the calls of groups that they share in one order: who waits for the rank in a call
    has been through all calls before it, so that the rank is not in one of these. That says
    nothing of messages, which are of two alone.
    """
    work = {
        member
        for group in groups
        if waiting.isdisjoint(group.ranks)
        or any(
            call.peer is not None for p in graph.view.progress[group].values() for call in p.open
        )
        for member in group.ranks
    } - {rank}
    seen = set(work)
    while work:
        places = graph.of.get(work.pop(), ())
        awaited = {other for p in places for other in (*p.known, *p.unheard)}
        if not awaited:
            return False
        following = awaited - {rank} - seen
        seen |= following
        work |= following
    return True


def _common(view: View, ranks: Collection[int]) -> tuple[Group | None, Call | None]:
    """Returns the call in which most of the ranks are."""
    where = Counter(
        (group, Call(call.seq, call.op))
        for group, members in view.progress.items()
        for rank in ranks
        if rank in members and (call := oldest(members[rank])) is not None
    )
    return max(where, key=lambda key: where[key], default=(None, None))
