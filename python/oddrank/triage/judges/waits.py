"""Finds who is waited for: whoever is awaited and waits for nobody is the culprit.

Progress decides, never a vote: the odd rank may be ahead.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from oddrank.finding import group_name, ranks_text
from oddrank.triage import causes
from oddrank.triage.facts import ON_HOST, Call, Group, Mismatch, Progress
from oddrank.triage.judges import circles, unheard, wait_graph
from oddrank.triage.judges.wait_graph import Graph, oldest
from oddrank.triage.suspects import Cause, Point, Suspect
from oddrank.triage.view import View

_MOST_NAMED = 64
# A wait is no stall yet if it has lasted less than so many of the rank's own longest pauses, and
# less than so many seconds: a source may look at a healthy job.
_PAUSES = 10.0
_SOON = 2.0


def judge(view: View) -> list[Suspect]:
    """Returns the suspects that progress shows: mismatches first, then who is waited for."""
    found = _judge(view)
    young = _young(view)
    if young is None:
        return found
    text = f"the longest wait had lasted {young:.1f} s: it may be no stall"
    against = Point(text)
    return [
        replace(suspect, certainty=0, against=(against, *suspect.against), young=True)
        for suspect in found
    ]


def _young(view: View) -> float | None:
    """Returns the seconds of the longest wait if all waits are too short to be a stall.

    None if there is none, if one is long, if a watchdog gave one up, or if a source does not tell.
    """
    longest = None
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
                longest = max(longest or 0.0, age)
    return longest


def _judge(view: View) -> list[Suspect]:
    found = _mismatches(view)
    if found:
        return found
    graph = wait_graph.graph(view)
    culprits = _ends(graph) - graph.among_unknown() - graph.gave_up()
    if culprits:
        return _culprits(graph, culprits)
    circle = circles.judge(graph)
    if circle:
        return circle
    if not graph.inside() and not graph.of:
        return _outside(view)
    return unheard.judge(graph)


def _ends(graph: Graph) -> set[int]:
    """Returns the ranks that others wait for, and that wait for nobody where they stand.

    Who may wait for a rank that left no evidence is not known to be an end.
    """
    awaited = {rank for place in graph.places for rank in place.known}
    return {
        rank
        for rank in awaited
        if not any(place.known or place.unheard for place in graph.of.get(rank, ()))
    }


def _culprits(graph: Graph, culprits: set[int]) -> list[Suspect]:
    """Returns a suspect for each kind of culprit."""
    view = graph.view
    kinds: dict[Cause, list[int]] = defaultdict(list)
    for rank in sorted(culprits):
        kinds[_kind(view, rank)].append(rank)
    silent = _silent(graph)
    found = []
    for cause, ranks in kinds.items():
        waiting, group, call = graph.waiting_for(ranks)
        against = []
        if silent:
            text = f"no evidence of {ranks_text(silent)} that the others may wait for as well"
            against.append(Point(text))
        hidden = _hidden(view, ranks)
        doubt = _doubt(view, sorted(culprits), call) if hidden else ""
        beside = graph.beside(ranks)
        if beside:
            text = f"{ranks_text(beside)} did not get out of the same call, either"
            against.append(Point(text))
        if hidden:
            text = "not all that it issues was recorded: it may be inside a send or a receive"
            against.append(Point(text + (f", {doubt}" if doubt else ""), hidden.source))
        found.append(
            Suspect(
                cause,
                view.named(ranks),
                rule="awaited-and-waits-for-nobody",
                certainty=0 if doubt or beside else 1 if hidden or silent else 2,
                support=tuple(_points(view, ranks, group, call)),
                against=tuple(against),
                waiting=view.named(sorted(waiting)),
                at=call,
                group=group,
                there=view.named(sorted(graph.in_call(waiting, group, call))),
                own=_own_call(view, ranks, group),
            )
        )
    return sorted(found, key=lambda s: -len(s.waiting))


def _own_call(view: View, ranks: Sequence[int], group: Group | None) -> Call | None:
    """Returns the call of a group in which all of the ranks are."""
    members = view.progress[group] if group is not None else {}
    calls = [oldest(members[rank]) if rank in members else None for rank in ranks]
    return calls[0] if len({call and call.seq for call in calls}) == 1 else None


def _hidden(view: View, ranks: Sequence[int]) -> Progress | None:
    """Returns progress of one of the ranks that need not show all that it has open."""
    for rank in ranks:
        own = view.of_rank.get(rank, {}).values()
        hides = not any(p.whole and not p.no_messages and not p.unseen for p in own)
        if found := next((p for p in own if hides and not p.timed_out), None):
            return found
    return None


def _doubt(view: View, ranks: Sequence[int], call: Call | None) -> str:
    """Returns why ranks that need not show all they have open can't be named; "" if they can.

    A rank alone that shows nothing open is behind: were it in a message, its peer would be in a
    call with it all the same. Of several, some may only wait for another one in messages.
    """
    unheard = view.everyone - view.heard
    own = [p for rank in ranks for p in view.of_rank.get(rank, {}).values()]
    if any(progress.unseen for progress in own):
        return "of which it issued some"
    if unheard:
        return f"and {ranks_text(unheard)} left no evidence"
    if len(ranks) > 1 and any(progress.no_messages for progress in own):
        return "and one of them may wait for another"
    if call is not None and call.usual is False:
        return "and the others issued another call than they did before after the same ones"
    return ""


def _kind(view: View, rank: int) -> Cause:
    """Tells a GPU that completes nothing from a host that issues nothing."""
    own = view.of_rank.get(rank, {}).values()
    pending = sum(p.open_count or len(p.open) for p in own)
    if not pending:
        unsure = any(p.timed_out or not p.whole for p in own)
        return causes.NOT_ENTERED_OR_INSIDE if unsure else causes.NOT_ENTERED
    on_gpu = [p for p in own if p.open and p.backend not in ON_HOST]
    later = any(
        p.enqueued is not None and call.seq is not None and p.enqueued > call.seq
        for p in on_gpu
        if (call := oldest(p)) is not None
    )
    if on_gpu and (pending > 1 or later):
        return causes.GPU_STOPPED
    return causes.INSIDE_CALL


def _points(
    view: View, ranks: Sequence[int], group: Group | None, call: Call | None
) -> Iterable[Point]:
    for rank in ranks[:_MOST_NAMED]:
        own = [*view.of_rank.get(rank, {}).values()]
        pending = [p for p in own if p.open]
        if group is not None and call is not None and rank in view.progress[group]:
            p = view.progress[group][rank]
            last = p.completed if p.completed is not None else p.enqueued
            if last is not None and call.seq is not None and call.peer is None:
                text = f"rank {rank} completed {last} of {call.seq} in {group_name(group.title)}"
                yield Point(text, p.source)
        if pending:
            count = sum(p.open_count or len(p.open) for p in pending)
            calls = "call" if count == 1 else f"{count} calls"
            text = f"rank {rank} has issued {'a ' * (count == 1)}{calls} that did not complete"
            yield Point(text, own[0].source)
        elif own:
            yield Point(f"rank {rank} has no open call in any group", own[0].source)


def _silent(graph: Graph) -> set[int]:
    """Returns members of groups in which somebody waits, without evidence of any kind."""
    heard = graph.view.heard - unheard.cut(graph.view)
    return {
        rank
        for group, absent in graph.absent.items()
        if any(front[1] for front in graph.fronts[group].values())
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
    hidden = any(p.no_messages for p in whole)
    doubt = Point("sends and receives over gloo are not recorded: ranks may wait in these")
    return [
        Suspect(
            causes.OUTSIDE, (), rule="no-recorded-call" if hidden else "no-open-call", certainty=0,
            support=(point,), against=(doubt,) if hidden else (), waiting=view.named(ranks),
        )
    ]  # fmt: skip


# Ranks that issued another operation than the others as the same call of a group.


def _mismatches(view: View) -> list[Suspect]:
    """Returns the mismatches at calls that some rank has not completed, the earliest a group."""
    firsts: dict[Group, Mismatch] = {}
    for mismatch in view.mismatches:
        members = view.progress.get(mismatch.group, {})
        of_variants = (rank for variant in mismatch.variants for rank in variant.ranks)
        stuck = any(
            (members[rank].completed or 0) < mismatch.seq for rank in of_variants if rank in members
        )
        old = firsts.get(mismatch.group)
        if stuck and (old is None or mismatch.seq < old.seq):
            firsts[mismatch.group] = mismatch
    return [_mismatched(view, group, firsts[group]) for group in firsts]


def _mismatched(view: View, group: Group, mismatch: Mismatch) -> Suspect:
    # First, of several that as many ranks issued, what always came after these calls.
    order = sorted(mismatch.variants, key=lambda v: (-len(v.ranks), v.usual is not True))
    mismatch = replace(mismatch, variants=tuple(order))
    usual, *others = order
    minority = [rank for variant in others for rank in variant.ranks]
    clear = len(usual.ranks) > len(minority)
    # Of two sides of one size, the one that did what it never did before is odd.
    told = not clear and bool(usual.usual) and all(v.usual is False for v in others)
    named = minority if clear or told else [*usual.ranks, *minority]
    points = tuple(
        Point(f"{ranks_text(v.ranks)}: {_signature(v.call, mismatch.differs)}"
              + (", as always after these calls" if v.usual else ""), v.source)
        for v in mismatch.variants
    )  # fmt: skip
    against = [
        Point(f"{ranks_text(v.ranks)} issued what always came after the same calls", v.source)
        for v in others if clear and v.usual
    ]  # fmt: skip
    known = usual.usual is not None or any(v.usual is not None for v in others)
    if clear and not known:
        text = "most ranks issued the other call, and nothing earlier tells which one is wrong"
        against.append(Point(text))
    if told:
        against.append(Point("as many ranks issued the one as the other: what came before tells"))
    elif not clear:
        against.append(Point("nothing tells which of the two sides is the odd one"))
    return Suspect(
        causes.MISMATCH, view.named(sorted(named)), rule="different-calls",
        certainty=2 if clear and not against else 1 if clear or told else 0,
        support=points, against=tuple(against),
        waiting=view.named(sorted(usual.ranks)) if clear or told else (),
        at=usual.call, group=group, mismatch=mismatch,
    )  # fmt: skip


def _signature(call: Call, differs: str) -> str:
    what = {"sizes": call.sizes, "op": call.sizes, "dtype": call.dtype, "root": f"root {call.root}"}
    return f"{call.op} {what.get(differs, '')}".rstrip()
