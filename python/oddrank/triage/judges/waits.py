"""Finds the culprit of a wait: the rank that others wait for and that waits for none.

Progress decides, never a vote: the odd rank may be ahead.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from dataclasses import replace

from oddrank.finding import duration, grouped, ranks_text
from oddrank.triage import causes
from oddrank.triage.facts import ON_HOST, Call, Group, Mismatch, Progress, Source
from oddrank.triage.judges import circles
from oddrank.triage.judges.wait_graph import Graph, Place, oldest
from oddrank.triage.model_frames import PEERS
from oddrank.triage.suspects import Cause, Point, Suspect
from oddrank.triage.view import View
from oddrank.triage.words import call_of, group_text, issued

_MOST_NAMED = 64
# A wait is a stall once it has lasted so many times the rank's own longest pause, and so many
# seconds: before that, a source may show a healthy job.
_PAUSES = 10.0
_SOON = 2.0
_MOST_APART = 4  # ranks in other calls that points name
_MOST_DO = 2  # so many ranks that do as always make one odd that does not


def judge(view: View) -> list[Suspect]:
    """Returns the suspects that progress shows: mismatches first, then ranks that others await."""
    if found := _mismatches(view):
        return found
    found, young = _stall(Graph(view)), _young(view)
    if young is None:
        return found
    point = Point(f"the longest wait had lasted {duration(young, 1)}: it may be no stall")
    return [replace(s, certainty=0, against=(point, *s.against), young=True) for s in found]


def stall_after(pause: float) -> float:
    """Returns the seconds after which a wait is a stall. pause: the longest before, in seconds."""
    return max(_SOON, _PAUSES * pause)


def _young(view: View) -> float | None:
    """Returns the seconds of the longest wait if all waits are too short to be a stall.

    None if there is none, if one is long, if a watchdog gave one up, or if a source does not tell.
    """
    longest = None
    for progress in view.all_progress:
        if progress.timed_out:
            return None
        if progress.open:
            since = progress.open[0].since
            if since is None or progress.time is None:
                return None
            age = progress.time - since
            if age >= stall_after(progress.pause or 0.0):
                return None
            longest = max(longest or 0.0, age)
    return longest


def _stall(graph: Graph) -> list[Suspect]:
    # A rank that may wait for one without evidence is no culprit: it may wait, too.
    awaited = {rank for place in graph.places for rank in place.known}
    culprits = awaited - graph.waiting - graph.vague
    # Those in calls that no record shows, as new_group(), wait as well.
    waiting = {s.process.rank for s in graph.view.stands[0] if s.kind == PEERS}
    if culprits - waiting:
        return _culprits(graph, culprits)
    if not graph.inside:
        return _outside(graph.view)
    found = _culprits(graph, culprits) if culprits else circles.judge(graph)
    forked = (
        _mismatched(graph.view, fork) for fork in graph.view.forks
        if graph.inside | waiting >= {rank for v in fork.variants for rank in v.ranks}
    )  # fmt: skip
    return [*(forked if found else ())] or found or _unheard(graph)


def _culprits(graph: Graph, culprits: set[int]) -> list[Suspect]:
    """Returns a suspect for each kind of culprit."""
    view = graph.view
    kinds = grouped((_kind(view, rank), rank) for rank in sorted(culprits))
    silent = {rank for place in graph.places for rank in place.unheard} - view.heard
    found = []
    for cause, ranks in kinds.items():
        made = graph.suspect(cause, {*ranks}, "awaited-and-waits-for-nobody", 2, ())
        certainty, against = 1 if silent else 2, []
        if silent:
            text = f"no evidence of {ranks_text(silent)} that the others may wait for as well"
            against.append(Point(text))
        places = (place for rank in ranks for place in graph.of.get(rank, ()))
        if beside := {r for place in places for r in place.calls} - {*ranks}:
            against.append(Point(f"{ranks_text(beside)} did not get out of the same call, either"))
            certainty = 0
        if hidden := _hidden(view, ranks):
            doubt = _doubt(view, culprits, made.at)
            text = "not all that it issues was recorded: it may be inside a send or a receive"
            against.append(Point(text + doubt, hidden.source))
            certainty = 0 if doubt else min(certainty, 1)
        members = view.progress[made.group] if made.group is not None else {}
        calls = [oldest(members[rank]) if rank in members else None for rank in ranks]
        own = calls[0] if len({call and call.seq for call in calls}) == 1 else None
        found.append(replace(
            made, certainty=certainty, support=tuple(_points(view, ranks, made.group, made.at)),
            against=tuple(against), own=own,
        ))  # fmt: skip
    return sorted(found, key=lambda s: -len(s.waiting))


def _hidden(view: View, ranks: Iterable[int]) -> Progress | None:
    """Returns progress of one of the ranks that need not show all that it has open."""
    for rank in ranks:
        own = view.of_rank.get(rank, {}).values()
        hides = not any(p.whole and not p.no_messages and not p.unseen for p in own)
        if found := next((p for p in own if hides and not p.timed_out), None):
            return found
    return None


def _doubt(view: View, ranks: Collection[int], call: Call | None) -> str:
    """Returns why ranks that need not show all they have open can't be named; "" if they can.

    A rank alone that shows nothing open is behind: were it in a message, its peer would be in a
    call with it all the same. If there are several, some may only wait for another one in messages.
    """
    own = [p for rank in ranks for p in view.of_rank.get(rank, {}).values()]
    if any(progress.unseen for progress in own):
        return ", of which it issued some"
    if silent := view.everyone - view.heard:
        return f", and {ranks_text(silent)} left no evidence"
    if len(ranks) > 1 and any(progress.no_messages for progress in own):
        return ", and one of them may wait for another"
    if call is not None and call.usual is False:
        return ", and the others issued another call than they did before after the same ones"
    return ""


def _kind(view: View, rank: int) -> Cause:
    """Tells a GPU that completes nothing from a host that issues nothing."""
    own = view.of_rank.get(rank, {}).values()
    pending = sum(p.open_count or len(p.open) for p in own)
    if not pending:
        is_whole = all(progress.whole for progress in own)
        return causes.NOT_ENTERED if is_whole else causes.NOT_ENTERED_OR_INSIDE
    on_gpu = [p for p in own if p.open and p.backend not in ON_HOST]
    # Watchdogs' lines may show one call as open, and that the rank issued later ones.
    later = any((p.enqueued or 0) > (p.open[0].seq or math.inf) for p in on_gpu)
    return causes.GPU_STOPPED if on_gpu and (pending > 1 or later) else causes.INSIDE_CALL


def _points(
    view: View, ranks: Sequence[int], group: Group | None, call: Call | None
) -> Iterator[Point]:
    for rank in ranks[:_MOST_NAMED]:
        own = [*view.of_rank.get(rank, {}).values()]
        if group is not None and call is not None and rank in view.progress[group]:
            p = view.progress[group][rank]
            last = p.completed if p.completed is not None else p.enqueued
            if last is not None and call.seq is not None and call.peer is None:
                text = f"rank {rank} completed {last} of {call.seq} in {group_text(group)}"
                yield Point(text, p.source)
        if pending := [p for p in own if p.open]:
            count = sum(p.open_count or len(p.open) for p in pending)
            calls = "a call" if count == 1 else f"{count} calls"
            yield Point(f"rank {rank} has issued {calls} that did not complete", own[0].source)
        elif own:
            yield Point(f"rank {rank} has no open call in any group", own[0].source)


def _outside(view: View) -> list[Suspect]:
    """No call is open anywhere: the stall, if there is one, is in code that is no collective."""
    whole = [p for p in view.all_progress if p.whole]
    if not whole:
        return []
    ranks = sorted({p.process.rank for p in whole if p.process.rank is not None})
    point = Point("every rank that left evidence has completed all that it issued", whole[0].source)
    hidden = any(p.no_messages for p in whole)
    doubt = Point("sends and receives over gloo are not recorded: ranks may wait in these")
    return [Suspect(
        causes.OUTSIDE, (), rule="no-recorded-call" if hidden else "no-open-call", certainty=0,
        support=(point,), against=(doubt,) if hidden else (), waiting=view.named(ranks),
    )]  # fmt: skip


# Ranks that left no word of calls in which others wait: named only if no other can be it.


def _unheard(graph: Graph) -> list[Suspect]:
    """All that left evidence wait: for ranks without evidence, or for none that is known."""
    view, inside = graph.view, graph.inside
    calls = [(rank, place, call) for place in graph.places for rank, call in place.calls.items()]
    # Ranks in a call that they never issued after the same calls, and ranks that do as always.
    unusual = {rank: place for rank, place, call in calls if call.usual is False}
    usual = {rank for rank, _, call in calls if call.usual}
    if len(unusual) == 1 and len(usual) >= _MOST_DO:
        return [_odd(graph, *unusual.popitem())]
    # The silent ranks for whom ranks wait that wait for no other; else all silent ranks.
    waited: tuple[set[int], set[int]] = (set(), set())
    for own in {*graph.of.values()}:
        waited[any(p.known for p in own)].update(*(p.unheard for p in own))
    missing = waited[False] - inside or waited[True] - inside
    # The groups' members are unknown; all other ranks of the job are inside.
    others = set(range(view.world or 0)) - inside
    unknown = not missing and any(not group.ranks for group in view.progress)
    alone = others if unknown and len(others) == 1 < len(inside) else set()
    # A rank in an unusual call may be odd itself: the silent one may be in that call with it.
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
    # If the culprit is not sure, the ranks that stand in one call are named as waiting.
    waiting = view.named(sorted(inside)) if len(sure) == 1 else where["there"]
    return [graph.suspect(
        causes.NOT_ENTERED_OR_INSIDE, silent, "awaited-and-silent", int(len(sure) == 1),
        [Point(text, _first_source(graph, where.get("group")))],
        **{**where, "against": (Point(against),), "waiting": waiting},
    )]  # fmt: skip


def _odd(graph: Graph, rank: int, place: Place) -> Suspect:
    call = place.calls[rank]
    what = f"{call.op} {call.dtype} {call.sizes}".strip()
    text = f"rank {rank} stands in {what}, which it never issued after the same calls before"
    return graph.suspect(
        causes.MISMATCH, {rank}, "unusual-call", 1,
        [Point(text, graph.view.progress[place.group][rank].source),
         Point("all other ranks stand where they always came to")],
        against=(Point("the other side of the call left no evidence"),),
        at=call, group=place.group, there=(),
    )  # fmt: skip


def _nobody(graph: Graph) -> Suspect:
    view, inside = graph.view, graph.inside
    where = graph.where(place for place in graph.places if place.call.peer is None)
    group = where.get("group")
    there = {process.rank for process in where.get("there", ())}
    apart = [(rank, places[0]) for rank, places in sorted(graph.of.items()) if rank not in there]
    text, rule = "every rank of the group is inside the call, none is behind", "all-inside"
    if group is None and all(place.call.peer is None for place in graph.places):
        text, rule = "no line names a call that all of them issue", "group-unknown"
    elif group is None:
        text = "every rank is inside messages whose other ends were issued, none is behind"
    elif (
        group.ranks
        and {place.group for _, place in apart} == {group}
        and all(progress.backend in ON_HOST for progress in view.progress[group].values())
    ):
        text, rule = "some have left the call, and what they sent has not come", "sent-and-lost"
    elif not group.ranks or not set(group.ranks) <= there:
        text, rule = "the ranks of a group are not known, nor who is behind", "group-unknown"
    points = [Point(text, _first_source(graph, group))]
    for rank, place in apart[:_MOST_APART] if group is not None else ():
        source = view.progress[place.group][rank].source
        points.append(Point(f"rank {rank} waits in {call_of(place.call, place.group)}", source))
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
    """Returns the ranks that others wait for, and that surely wait for no other.

    If one rank's GPU stops in a call, the others leave the call. So one rank alone in a call with a
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
        # Ranks issue the calls of groups that they share in one order. A rank that waits for this
        # one in a call has been through all earlier calls, so this one is in none of these. That
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


# Ranks that issued another operation than the others as the same call of a group.


def _mismatches(view: View) -> list[Suspect]:
    """Returns the mismatches at calls that some rank has not completed, the earliest a group."""
    firsts: dict[Group, Mismatch] = {}
    for mismatch in sorted(view.mismatches, key=lambda mismatch: mismatch.seq):
        members = view.progress.get(mismatch.group, {})
        own = (members[r] for v in mismatch.variants for r in v.ranks if r in members)
        if not mismatch.seq or any((p.completed or 0) < mismatch.seq for p in own):
            firsts.setdefault(mismatch.group, mismatch)
    return [_mismatched(view, mismatch) for mismatch in firsts.values()]


def _mismatched(view: View, mismatch: Mismatch) -> Suspect:
    # First, of several that as many ranks issued, what always came after these calls.
    order = sorted(mismatch.variants, key=lambda v: (-len(v.ranks), v.usual is not True))
    usual, *others = order
    minority = [rank for variant in others for rank in variant.ranks]
    clear = len(usual.ranks) > len(minority)
    # If both sides have one size, the one that did what it never did before is odd.
    told = not clear and bool(usual.usual) and all(v.usual is False for v in others)
    points = tuple(
        Point(f"{ranks_text(v.ranks)}: {issued(v.call, mismatch.differs)}"
              + (", as always after these calls" if v.usual else ""), v.source)
        for v in order
    )  # fmt: skip
    if told:
        text = "as many ranks issued the one as the other: what came before tells"
    elif not clear:
        text = "nothing tells which of the two sides is the odd one"
    elif all(v.usual is None for v in order):
        text = "most ranks issued the other call, and nothing earlier tells which one is wrong"
    else:
        text = ""
    against = [Point(text)] if text else [
        Point(f"{ranks_text(v.ranks)} issued what always came after the same calls", v.source)
        for v in others if v.usual
    ]  # fmt: skip
    named = minority if clear or told else [*usual.ranks, *minority]
    return Suspect(
        causes.MISMATCH, view.named(sorted(named)),
        rule="different-ways" if mismatch.is_fork else "different-calls",
        certainty=2 if clear and not against else 1 if clear or told else 0,
        support=points, against=tuple(against),
        waiting=view.named(sorted(usual.ranks)) if clear or told else (),
        at=usual.call, group=None if mismatch.is_fork else mismatch.group,
        mismatch=replace(mismatch, variants=tuple(order)),
    )  # fmt: skip
