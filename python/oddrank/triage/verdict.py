"""Joins what the judges found: pieces of evidence that support or contradict each other.

Deterministic: the same facts give the same suspects. Every rule has a name, which --explain shows.
"""

import signal
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from oddrank.finding import ranks_text
from oddrank.triage import causes
from oddrank.triage.facts import Activity, Frame, Process, Source, State, ranks
from oddrank.triage.judges import deaths, devices, paused, ras, stacks, waits
from oddrank.triage.judges.ends import timed_out
from oddrank.triage.leaves import kernel_class
from oddrank.triage.model_frames import PEERS
from oddrank.triage.suspects import Cause, Point, Suspect
from oddrank.triage.view import View

_STANDS = (causes.HOST_STUCK, causes.INFINITE_LOOP)
_KERNEL = "kernel"  # in the place of a file, of the kernel's functions
# Rules whose suspect may only be at work, as some rank is at any moment of a healthy job.
_MAYBE_AT_WORK = frozenset({"stacks-awaited", "stacks-awaited-by-gpu", "stacks-moving"})
# Signals of a library that gave up.
_CRASHES = frozenset({signal.SIGABRT, signal.SIGSEGV})
_HIGH, _MEDIUM, _LOW = 2, 1, 0
_GONE = ("dead", "zombie")
# Seconds since the last event of a process that goes on. Recorders see each line of its own code.
_JUST_NOW = 1.0
# So many times as long between two calls as ever before is no pause any more.
_LONGER = 2.0
# Seconds after which a state belongs to another stall.
_OLD = 24 * 3600.0


def suspects(view: View) -> list[Suspect]:
    """Returns what is wrong, the surest and most telling first; empty if nothing is."""
    died, waited, stood, broken, counted = (judge(view) for judge in _JUDGES)
    # Timeouts that say who was waited for belong to the stall.
    awaited = [s for s in died if s.cause.about != "end"]
    died = [s for s in died if s.cause.about == "end"]
    found = paused.without_pauses(_hang(waited, stood, counted), view)
    for suspect in awaited:
        if suspect.rule == "told-to-end":
            found = [other for other in found if not _moved_to_its_end(other, view)]
        found = _join(found, suspect, "timeouts")
    found = _with_states(found, view)
    found = [_with_activity(suspect, view) for suspect in found]
    found = _with_deaths(found, died, stalled=bool(timed_out(view)))
    for add in (_of_shared_group, _with_place, stacks.with_threads, _with_end):
        found = [add(suspect, view) for suspect in found]
    found = paused.with_pauses(_with_devices(found, broken), view)
    return sorted((_with_step(suspect, view) for suspect in _distinct(found)), key=_weight)


def _moved_to_its_end(suspect: Suspect, view: View) -> bool:
    """Returns whether a job was ended while it moved: somebody is behind at any moment."""
    last = {process: each.last for process, each in view.activities.items() if each.last}
    own = [last[process] for process in suspect.processes if process in last]
    return bool(own) and max(last.values()) - min(own) < _JUST_NOW


def _with_place(suspect: Suspect, view: View) -> Suspect:
    """A rank that has not entered a call stands where its stack is, whatever that is called."""
    if suspect.cause is causes.OUTSIDE and view.finished:
        return _last_to_end(suspect, view)
    if suspect.cause is not causes.NOT_ENTERED or suspect.leaf is not None:
        return suspect
    standing = [s for s in view.stands[0] if s.process in suspect.processes]
    places = {stand.place for stand in standing}
    if len(places) != 1 or len(standing) < len(suspect.processes) or standing[0].kind == PEERS:
        return suspect
    leaf, told = standing[0].leaf.frame, standing[0].told
    return replace(suspect, cause=causes.HOST_STUCK, leaf=leaf, leaf_class=told)


def _of_shared_group(suspect: Suspect, view: View) -> Suspect:
    """Threads that use one group at once explain whatever differs or waits in it."""
    members = view.progress.get(suspect.group, {}) if suspect.group is not None else {}
    shared = [p for _, p in sorted(members.items()) if len(p.threads) > 1]
    if not shared or suspect.cause.about not in ("call", "others", "nobody"):
        return suspect
    processes = tuple(p.process for p in shared)
    return replace(
        suspect, cause=causes.SHARED_GROUP, processes=processes, rule="threads-share-a-group",
        certainty=_HIGH, threads=shared[0].threads, against=(),
        waiting=tuple(p for p in suspect.waiting if not _overlap([p], processes)),
    )  # fmt: skip


def _last_to_end(suspect: Suspect, view: View) -> Suspect:
    """Names those that stand at one place where all others have ended with exit code 0."""
    left = [s for s in view.stands[0] if s.process not in view.finished]
    whole = len(left) + len(view.finished) >= (view.world or 0)
    if not whole or len({stand.place for stand in left}) != 1:
        return suspect
    return replace(
        suspect, cause=causes.HOST_STUCK, rule="last-to-end", certainty=_MEDIUM,
        processes=tuple(stand.process for stand in left), waiting=tuple(view.finished),
        leaf=left[0].leaf.frame, leaf_class=left[0].told,
    )  # fmt: skip


def _with_end(suspect: Suspect, view: View) -> Suspect:
    """Who ended with exit code 0 does not come any more. Of few that wait for most, the few are
    odd."""
    ends = [view.finished.get(process) for process in suspect.processes]
    is_stuck = suspect.cause.about == "call" or suspect.cause is causes.HOST_STUCK
    if not is_stuck or not ends or None in ends:
        return suspect
    if 0 < len(suspect.waiting) < len(suspect.processes):
        named, others = suspect.waiting, suspect.processes
        return replace(
            suspect, cause=causes.FINISHED, rule="finished", processes=named, waiting=others,
            leaf=None,
        )  # fmt: skip
    return replace(suspect, cause=causes.FINISHED, rule="finished", death=ends[0])


def _with_step(suspect: Suspect, view: View) -> Suspect:
    activities = [view.activities.get(process) for process in suspect.processes]
    if len(activities) != 1 or activities[0] is None:
        return suspect
    return replace(suspect, step=activities[0].step)


def _weight(suspect: Suspect) -> tuple[int, bool, float]:
    return (
        -suspect.certainty,
        suspect.cause.about == "nobody",
        suspect.time if suspect.time is not None else float("inf"),
    )


def _hang(
    waited: Sequence[Suspect], stood: Sequence[Suspect], counted: Sequence[Suspect]
) -> list[Suspect]:
    """Joins progress, stacks and operation counts of a stall."""
    found = list(waited)
    for suspect in stood:
        found = _join(found, suspect, "stacks")
    for suspect in counted:
        found = _join(found, suspect, "operation counts")
    return found


def _join(found: list[Suspect], new: Suspect, what: str) -> list[Suspect]:
    """Adds a suspect of another kind of evidence: it supports, fills in, or contradicts."""
    if new.cause.about == "nobody":
        if not found or (new.rule == "told-to-end" and not any(map(_names, found))):
            return [new]
        return [_supported(found[0], new.support), *found[1:]]
    same = [s for s in found if _overlap(s.processes, new.processes) and _names(s)]
    if same:
        return [_refined(s, new) if s in same else s for s in found]
    named = [s for s in found if _names(s) and s.certainty > _LOW]
    if not named:
        silent = [s for s in found if _names(s)]
        carried = tuple(p for s in found if s not in silent for p in s.support)
        return [_supported(new, carried), *silent] if silent else [_supported(new, carried)]
    if new.certainty > named[0].certainty:
        named, new = [new], named[0]
        rest: list[Suspect] = []
    else:
        rest = [s for s in found if s not in named]
    other = Point(f"{what} point at {_named(new)}", _first_source(new))
    lowered = [
        replace(s, certainty=min(s.certainty, max(_LOW, s.certainty - (new.certainty == _HIGH))),
                against=(*s.against, other))
        for s in named
    ]  # fmt: skip
    return [*lowered, *rest]


def _refined(suspect: Suspect, new: Suspect) -> Suspect:
    """Says more precisely what the named processes do: progress shows who, a stack shows where.

    Of several, those remain whom the new evidence names too; the others wait, if it says so, if
    nothing else was sure of them, or if they stand in a call with some that answer nobody.
    """
    more = suspect.cause.about == "call" and new.cause is not causes.NOT_ENTERED_OR_INSIDE
    cause: Cause = new.cause if more else suspect.cause
    both = max(suspect.certainty, new.certainty)
    named = suspect.processes if ranks(suspect.processes) else new.processes
    shown = [p for p in named if _overlap([p], new.processes)]
    others = [p for p in named if p not in shown]
    lost = new.cause is causes.UNREACHABLE and suspect.cause.about == "call"
    if suspect.certainty == _LOW or lost or all(_overlap([p], new.waiting) for p in others):
        named = tuple(shown)
    of_all = len(shown) == len(named)
    waiting = suspect.waiting or new.waiting
    return replace(
        suspect,
        cause=cause if of_all else suspect.cause,
        leaf=(new.leaf if of_all else None) or suspect.leaf,
        leaf_class=(new.leaf_class if of_all else "") or suspect.leaf_class,
        certainty=_HIGH if suspect.certainty and new.certainty else both,
        support=(*suspect.support, *new.support),
        against=() if both == _HIGH else (*suspect.against, *new.against),
        waiting=(*waiting, *(p for p in others if p not in named and not _overlap([p], waiting))),
        at=suspect.at or new.at,
        group=suspect.group or new.group,
        processes=named,
        death=suspect.death or new.death,
    )


def _with_states(found: list[Suspect], view: View) -> list[Suspect]:
    """Adds what the kernel or a guard saw: a process that is stopped, or in D state."""
    for word, cause in _STATE_CAUSES.items():
        told = [s for s in view.states.values() if s.state == word and _is_of_stall(s, found, view)]
        if not told or len(told) == len(view.states) > 1:
            continue  # all of them: it was a person who looked, or the scheduler
        held = tuple(
            child.parent if (child := view.child(state.process)) else state.process
            for state in told
        )
        points = tuple(Point(_held_text(s), s.source) for s in told)
        wheres = {state.where for state in told} - {""}
        leaf = Frame(wheres.pop(), _KERNEL, None, True) if len(wheres) == 1 else None
        same = [s for s in found if _names(s) and _overlap(s.processes, held)]
        if same:
            # A stack shows where it stood when it was stopped: that is not why it stands.
            explained = ("call",) if word != "stopped" else ("call", "stack")
            found = [
                _held(s, cause, held, points, leaf)
                if s in same and s.cause.about in explained and not (s.young and word != "stopped")
                else s
                for s in found
            ]
        elif not any(_names(s) and s.certainty == _HIGH for s in found):
            victims = next((s for s in found if s.waiting), None)
            waiting = tuple(
                p for p in (victims.waiting if victims else ()) if not _overlap([p], held)
            )
            new = Suspect(
                cause, held, rule="held", certainty=_HIGH if waiting else _MEDIUM,
                support=(*points, *(victims.support if victims else ())), waiting=waiting,
                at=victims.at if victims else None, group=victims.group if victims else None,
                leaf=leaf, leaf_class=kernel_class(leaf.function) if leaf else "",
            )  # fmt: skip
            found = [new, *(s for s in found if s.certainty > _LOW and _names(s))]
    return found


def _is_of_stall(state: State, found: Sequence[Suspect], view: View) -> bool:
    """Returns whether a state is one of the job's processes, and not of another day: a kernel's log
    tells of all processes of a host."""
    if state.process not in view.members and view.child(state.process) is None:
        return False
    times = [s.at.since for s in found if s.at is not None and s.at.since is not None]
    times += [p.time for of in view.progress.values() for p in of.values() if p.time is not None]
    near = min((abs(time - state.time) for time in times if state.time is not None), default=0.0)
    return near <= _OLD


def _with_activity(suspect: Suspect, view: View) -> Suspect:
    """Tells a rank that goes on, slowly or for ever, from one that stands still."""
    active = [view.activities[p] for p in suspect.processes if p in view.activities]
    if any(p in view.states and view.states[p].state in _GONE for p in suspect.processes):
        return _before_its_end(suspect, view, [a.last for a in active if a.last is not None])
    pauses = [a.rests for a in active if a.rests is not None]
    if not pauses or len(pauses) < len(suspect.processes):
        return suspect
    if suspect.cause.about != "call" and suspect.cause not in _STANDS:
        return suspect
    longest = max(pauses)
    several = len(pauses) > 1
    if all(a.runs for a in active):
        text = f"{'they run' if several else 'it runs'} code that runs too often to be recorded"
    else:
        whose = "their" if several else "its"
        text = f"{whose} last recorded event was {longest:.1f} s before the record was read"
    point = Point(text, active[0].source)
    cause = suspect.cause
    if longest < _JUST_NOW:
        # From one look, slow work and an endless loop are the same: both run.
        works = suspect.leaf_class in ("disk", "data", "network")
        always = all(map(_as_always, active))
        slow = works or suspect.young or always
        cause = causes.MOVING if slow else causes.INFINITE_LOOP
    return replace(suspect, cause=cause, support=(*suspect.support, point))


def _as_always(activity: Activity) -> bool:
    """Returns whether a process has not been out of calls much longer than it was before."""
    if activity.alone is None or activity.pause is None or activity.seen is None:
        return False
    return activity.seen - activity.alone < _LONGER * activity.pause


def _before_its_end(suspect: Suspect, view: View, last: Sequence[float]) -> Suspect:
    """Says since when a process that is gone stood still: when its record was read says nothing."""
    ends = [a.last for a in view.activities.values() if a.last is not None]
    if not last or len(last) < len(suspect.processes) or suspect.cause.about in ("end", "device"):
        return suspect
    before = f"{max(ends) - min(last):.1f} s before the last one of all ranks"
    text = f"its last recorded event was {before}"
    if len(last) > 1:
        text = f"their first last recorded event was {before}"
    source = view.activities[suspect.processes[0]].source
    return _supported(suspect, [Point(text, source)])


def _held(
    suspect: Suspect,
    cause: Cause,
    held: Collection[Process],
    points: Sequence[Point],
    leaf: Frame | None,
) -> Suspect:
    if suspect.leaf is None and leaf is not None:
        suspect = replace(suspect, leaf=leaf, leaf_class=kernel_class(leaf.function))
    only = tuple(p for p in suspect.processes if _overlap([p], held))
    return replace(
        suspect, cause=cause, certainty=_HIGH, processes=only,
        support=(*points, *suspect.support),
    )  # fmt: skip


def _held_text(state: State) -> str:
    where = f", in {state.where}" if state.where else ""
    return f"{_one(state.process)} is {_WORDS[state.state]}{where}"


_STATE_CAUSES = {"stopped": causes.HOST_STOPPED, "uninterruptible": causes.HOST_STUCK}
_WORDS = {"stopped": "stopped (state T)", "uninterruptible": "inside the kernel (state D)"}


def _with_deaths(found: list[Suspect], died: Sequence[Suspect], *, stalled: bool) -> list[Suspect]:
    """A rank that died first explains those that wait for it, and those that lost it.

    stalled: calls have timed out, so who stands outside of them is not only at work.
    """
    for death in died:
        same = [
            s for s in found
            if _overlap(s.processes, death.processes) and not _ended_by(death, s)
        ]  # fmt: skip
        if death.rule == "ended-from-outside" and found:
            found = [_supported(found[0], death.support), *found[1:]]
        elif same:
            merged = replace(
                death,
                support=(*death.support, *same[0].support),
                waiting=_all_of(death.waiting, same[0].waiting),
                at=death.at or same[0].at,
                group=death.group or same[0].group,
                certainty=max(death.certainty, same[0].certainty),
            )
            found = [merged, *(s for s in found if s not in same)]
        elif any(_ended_by(death, s) for s in found):
            found = [_supported(s, death.support) if _ended_by(death, s) else s for s in found]
        elif death.certainty > _LOW:
            point = Point(f"{_named(death)} died", _first_source(death))
            told = [s for s in found if s.cause is causes.MISMATCH or _names(s)]
            if not stalled:
                told = [s for s in told if s.rule not in _MAYBE_AT_WORK or s.certainty == _HIGH]
            lowered = [replace(s, certainty=_LOW, against=(*s.against, point)) for s in told]
            found = [death, *lowered]
        elif not found:
            found = [death]
        else:
            found = [_supported(found[0], death.support), *found[1:]]
    return found


def _ended_by(death: Suspect, found: Suspect) -> bool:
    """Returns whether a difference of calls ended a process: a library aborts one that is sent
    what it does not expect, be it right or wrong."""
    if found.mismatch is None or found.certainty == _LOW or death.death is None:
        return False
    own = death.death
    crashed = own.how == "abort" or bool(own.failed) or own.signal in _CRASHES
    members = {rank for variant in found.mismatch.variants for rank in variant.ranks}
    return crashed and bool(death.processes) and set(ranks(death.processes)) <= members


def _with_devices(found: list[Suspect], broken: Sequence[Suspect]) -> list[Suspect]:
    """A fault of the device of a rank that others wait for is why it is stuck."""
    for fault in broken:
        same = [s for s in found if s.processes and _overlap(s.processes, fault.processes)]
        if same:
            first = same[0]
            # A fault of the host is one of all its ranks: it does not make one of them likelier.
            own = fault.rule == "fault-of-its-gpu"
            hit = tuple(p for p in first.processes if _overlap([p], fault.processes))
            if own and len(hit) < len(first.processes) and fault.certainty > first.certainty:
                first = replace(first, processes=hit)
            own = own and len(hit) == len(first.processes)
            joined = replace(
                first,
                support=(*first.support, *fault.support),
                trouble=(*first.trouble, *fault.trouble),
                certainty=max(first.certainty, fault.certainty if own else _LOW),
            )
            told = first.cause.about == "call" or (
                first.cause is causes.DEAD and fault.trouble[0].hits
            )
            if own and fault.trouble[0].fatal and fault.certainty and told:
                # A counter or its end says that it did not come; its broken GPU says why.
                joined = replace(
                    joined, cause=causes.DEVICE, rule=fault.rule,
                    against=first.against if fault.certainty < _HIGH else (),
                )  # fmt: skip
            found = [joined if s is same[0] else s for s in found]
        else:
            found = [*found, fault]
    return found


def _distinct(found: Iterable[Suspect]) -> list[Suspect]:
    """Drops suspects of low certainty whose processes a surer one names."""
    kept: list[Suspect] = []
    for suspect in sorted(found, key=lambda s: -s.certainty):
        surer = [s for s in kept if _names(s) and s.certainty > _LOW]
        says_less = not _names(suspect) or any(
            _overlap(s.processes, suspect.processes) for s in surer
        )
        if suspect.certainty > _LOW or suspect.cause is causes.DEVICE or not (surer and says_less):
            kept.append(suspect)
    return kept


def _names(suspect: Suspect) -> bool:
    return bool(suspect.processes) and suspect.cause.about != "nobody"


def _supported(suspect: Suspect, points: Sequence[Point]) -> Suspect:
    return replace(suspect, support=(*suspect.support, *points))


def _all_of(one: Sequence[Process], other: Sequence[Process]) -> tuple[Process, ...]:
    return (*one, *(process for process in other if not _overlap([process], one)))


def _overlap(one: Collection[Process], other: Collection[Process]) -> bool:
    return bool(_keys(one) & _keys(other))


def _keys(processes: Collection[Process]) -> set[object]:
    return {p.rank if p.rank is not None else (p.host, p.pid, p.label) for p in processes}


def _one(process: Process) -> str:
    if process.rank is None and process.pid is None and process.label:
        return process.label
    return f"rank {process.rank}" if process.rank is not None else f"pid {process.pid}"


def _named(suspect: Suspect) -> str:
    known = ranks(suspect.processes)
    if not known and not suspect.processes:
        return "a process"
    return ranks_text(known) if known else _one(suspect.processes[0])


def _first_source(suspect: Suspect) -> Source | None:
    return next((point.source for point in suspect.support if point.source), None)


# In this order: deaths, waits, stacks, devices, counts.
_JUDGES: tuple[Callable[[View], list[Suspect]], ...] = (
    deaths.judge,
    waits.judge,
    stacks.judge,
    devices.judge,
    ras.judge,
)
