"""Finds who is waited for: whoever is awaited and waits for nobody is the culprit.

Progress decides, never a vote: the odd rank may be ahead.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from oddrank.finding import ranks_text
from oddrank.triage.facts import Call, Cause, Group, Point, Progress, Suspect
from oddrank.triage.judges import circles, mismatches, wait_graph
from oddrank.triage.judges.wait_graph import Waits, held_up, oldest, processes
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
    return [replace(suspect, certainty=0, against=(*suspect.against, against)) for suspect in found]


def _young(view: View) -> float | None:
    """Returns the seconds of the longest wait if all waits are too short to be a stall.

    None if one is long, if a watchdog gave one up, or if a source does not tell.
    """
    longest = 0.0
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
                longest = max(longest, age)
    return longest


def _judge(view: View) -> list[Suspect]:
    waits = wait_graph.waits(view)
    found = mismatches.judge(view)
    if found:
        return found
    waiting, awaited = waits.waits(), waits.awaited()
    maybe = waits.maybe()
    ends = {rank for rank in awaited if rank not in waiting and rank not in waits.pairs}
    # Who may wait for a rank that left no evidence is not known to be the end.
    culprits = {rank for rank in ends if not maybe.get(rank)}
    culprits -= waits.among_unknown() | waits.gave_up()
    # A host may have issued a call long before its GPU comes to it.
    culprits = {rank for rank in culprits if not held_up(view, waits, rank)}
    if culprits:
        return _culprits(view, waits, culprits)
    circle = circles.judge(view, waits)
    if circle:
        return circle
    if not waits.inside():
        return _outside(view)
    return _unheard(view, waits, maybe)


def _culprits(view: View, waits: Waits, culprits: set[int]) -> list[Suspect]:
    """Returns a suspect for each kind of culprit."""
    kinds: dict[Cause, list[int]] = defaultdict(list)
    for rank in sorted(culprits):
        kinds[_kind(view, waits, rank)].append(rank)
    silent = _silent(view, waits)
    found = []
    for cause, ranks in kinds.items():
        waiting, group, call = waits.waiting_for(ranks)
        support = [*_points(view, waits, ranks, group, call)]
        against = []
        if silent:
            text = f"no evidence of {ranks_text(silent)} that the others may wait for as well"
            against.append(Point(text))
        hidden = _hidden(view, ranks)
        doubt = _doubt(view, sorted(culprits), call) if hidden else ""
        if hidden:
            text = "not all that it issues was recorded: it may be inside a send or a receive"
            against.append(Point(text + (f", {doubt}" if doubt else ""), hidden.source))
        certainty = 0 if doubt else 1 if hidden or silent else 2
        found.append(
            Suspect(
                cause,
                processes(view, ranks),
                rule="awaited-and-waits-for-nobody",
                certainty=certainty,
                support=tuple(support),
                against=tuple(against),
                waiting=processes(view, sorted(waiting)),
                at=call,
                group=group,
            )
        )
    return sorted(found, key=lambda s: -len(s.waiting))


def _hidden(view: View, ranks: Sequence[int]) -> Progress | None:
    """Returns progress of one of the ranks that need not show all that it has open."""
    for members in view.progress.values():
        for rank in ranks:
            progress = members.get(rank)
            if progress is None or progress.timed_out:
                continue
            if progress.unseen or not progress.whole or progress.no_messages:
                return progress
    return None


def _doubt(view: View, ranks: Sequence[int], call: Call | None) -> str:
    """Returns why ranks that need not show all they have open can't be named; "" if they can.

    A rank alone that shows nothing open is behind: were it in a message, its peer would be in a
    call with it all the same. Of several, some may only wait for another one in messages.
    """
    unheard = set(range(max(view.world or 0, max(view.heard, default=-1) + 1))) - view.heard
    own = [members[r] for members in view.progress.values() for r in ranks if r in members]
    if any(progress.unseen for progress in own):
        return "of which it issued some"
    if unheard:
        return f"and {ranks_text(unheard)} left no evidence"
    if len(ranks) > 1 and any(progress.no_messages for progress in own):
        return "and one of them may wait for another"
    if call is not None and call.usual is False:
        return "and the others issued another call than they did before after the same ones"
    return ""


def _kind(view: View, waits: Waits, rank: int) -> Cause:
    """Tells a GPU that completes nothing from a host that issues nothing."""
    own = {g: members[rank] for g, members in view.progress.items() if rank in members}
    pending = sum(p.open_count or len(p.open) for p in own.values())
    if not pending:
        unsure = any(p.timed_out or not p.whole for p in own.values())
        return "not-entered-or-inside" if unsure else "not-entered"
    on_gpu = [p for p in own.values() if p.open and p.backend not in ("gloo", "mpi", "ucc")]
    later = any(
        p.enqueued is not None and call.seq is not None and p.enqueued > call.seq
        for p in on_gpu
        if (call := oldest(p)) is not None
    )
    if on_gpu and (pending > 1 or later):
        return "gpu-stopped"
    return "inside-call"


def _points(
    view: View, waits: Waits, ranks: Sequence[int], group: Group | None, call: Call | None
) -> Iterable[Point]:
    for rank in ranks[:_MOST_NAMED]:
        own = [members[rank] for members in view.progress.values() if rank in members]
        pending = [p for p in own if p.open]
        if group is not None and call is not None and rank in view.progress[group]:
            p = view.progress[group][rank]
            last = p.completed if p.completed is not None else p.enqueued
            if last is not None and call.seq is not None and call.peer is None:
                text = f"rank {rank} completed {last} of {call.seq} in group {group.name}"
                yield Point(text, p.source)
        if pending:
            count = sum(p.open_count or len(p.open) for p in pending)
            yield Point(
                f"rank {rank} has issued {count} calls that did not complete", own[0].source
            )
        elif own:
            yield Point(f"rank {rank} has no open call in any group", own[0].source)


def _silent(view: View, waits: Waits) -> set[int]:
    """Returns members of groups in which somebody waits, without evidence of any kind."""
    heard = view.heard
    return {
        rank
        for group, absent in waits.absent.items()
        if any(front[1] for front in waits.fronts[group].values())
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
    return [
        Suspect(
            "outside", (), rule="no-open-call", certainty=0, support=(point,),
            waiting=processes(view, ranks),
        )
    ]  # fmt: skip


def _unheard(view: View, waits: Waits, maybe: Mapping[int, set[int]]) -> list[Suspect]:
    """All that left evidence wait: for ranks without evidence, or for nobody known."""
    inside = waits.inside()
    missing = set().union(*(maybe.get(rank, set()) for rank in inside)) - inside
    missing |= {peer for peers in waits.pairs.values() for peer in peers} - view.heard
    if not missing and any(not group.ranks for group in waits.fronts):
        missing = _only_other(view, inside)
    waiting, group, call = waits.waiting_for(missing)
    front = [rank for rank in inside if missing & maybe.get(rank, set())]
    if not group:
        group, call = _common(view, front or sorted(inside))
    first = min((p for p in _of_group(view, group)), key=lambda p: p.time or 0.0, default=None)
    source = first.source if first else None
    if missing:
        silent = not missing & view.heard
        how = "left no evidence" if silent else "did not say to be in this call"
        text = f"{ranks_text(missing)} {how}; {ranks_text(inside)} wait in calls with them"
        against = "a missing dump means only that nobody wrote it"
        if not silent:
            against = "only counters were read: a stack of the rank would tell more"
        return [
            Suspect(
                "not-entered-or-inside",
                processes(view, sorted(missing)),
                rule="awaited-and-silent",
                certainty=1 if len(missing) == 1 else 0,
                support=(Point(text, source),),
                against=(Point(against),),
                waiting=processes(view, sorted(waiting or inside)),
                at=call,
                group=group,
            )
        ]
    text, rule = "every rank of the group is inside the call, none is behind", "all-inside"
    if not group or not group.ranks:
        text, rule = "the ranks of the group are not known, nor who is behind", "group-unknown"
    return [
        Suspect(
            "unknown", (), rule=rule, certainty=0, support=(Point(text, source),),
            waiting=processes(view, sorted(inside)), at=call, group=group,
        )
    ]  # fmt: skip


def _only_other(view: View, inside: Collection[int]) -> set[int]:
    """Returns the one rank of the job that is inside no call, though who is in the groups is not
    known; else nothing. The job has at least as many ranks as the largest rank says."""
    world = max(view.world or 0, max(view.heard) + 1)
    others = set(range(world)) - set(inside)
    return others if len(others) == 1 and len(inside) > 1 else set()


def _of_group(view: View, group: Group | None) -> Collection[Progress]:
    return view.progress.get(group, {}).values() if group is not None else ()


def _common(view: View, ranks: Collection[int]) -> tuple[Group | None, Call | None]:
    """Returns the call in which most of the ranks are."""
    where: Counter[tuple[Group, Call]] = Counter()
    for group, members in view.progress.items():
        for rank in ranks:
            call = oldest(members[rank]) if rank in members else None
            if call is not None:
                plain = Call(call.seq, call.op)
                where[(group, plain)] += 1
    if not where:
        return None, None
    return max(where, key=lambda key: where[key])
