"""Joins what the judges found: whom they name, and why, by the table of causes.

A judge yields candidates: a row of the table, ranks, a place, evidence. Of all that are of one rank
the row that comes first in the table counts, and the others support it. Deterministic: the same
facts give the same suspects. Every rule has a name, which --explain shows.
"""

import signal
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from oddrank.triage import causes
from oddrank.triage.facts import Frame, Paused, Process, Source, State, ranks
from oddrank.triage.judges import deaths, devices, ras, stacks, waits
from oddrank.triage.leaves import kernel_class
from oddrank.triage.model_frames import PEERS
from oddrank.triage.suspects import Point, Suspect
from oddrank.triage.view import View
from oddrank.triage.words import count

_ROWS = {cause: number for number, cause in enumerate(causes.TABLE.values())}
_KERNEL = "kernel"  # in the place of a file, of the kernel's functions
# Rules whose suspect may only be at work, as some rank is at any moment of a healthy job.
_MAYBE_AT_WORK = frozenset({"stacks-awaited", "stacks-awaited-by-gpu", "stacks-moving"})
# Signals of a library that gave up.
_CRASHES = frozenset({signal.SIGABRT, signal.SIGSEGV})
_HIGH, _MEDIUM, _LOW = 2, 1, 0
_SEEN = ("end", "device")
_MOST_PAUSES = 4
# What a pause explains. A rank that died, is stopped or issued another call is no pause.
_OF_PAUSES = ("call", "stack", "nobody")
_STANDS = (causes.HOST_STUCK, causes.INFINITE_LOOP)
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
    ends = [s for s in died if s.cause.about == "end"]
    if any(s.rule == "told-to-end" for s in awaited):
        waited, stood, counted = (
            [s for s in some if not _moved_to_its_end(s, view)] for some in (waited, stood, counted)
        )
    found = list(waited)
    for what, some in (("stacks", stood), ("operation counts", counted), ("timeouts", awaited)):
        for new in some:
            found = _add(found, new, view, what)
    found = _without_pauses(found, view)
    for new in (*_held(view), *ends, *broken):
        found = _add(found, new, view)
    found = _with_pauses([_explained(suspect, view) for suspect in found], view)
    return sorted(_distinct(found), key=_weight)


def _add(found: list[Suspect], new: Suspect, view: View, what: str = "") -> list[Suspect]:
    """Adds a candidate: to the suspects of the same processes, or beside the others."""
    about = new.cause.about
    if new.rule == "ended-from-outside":
        same, supported = [], found[:1]
    else:
        supported = [s for s in found if _ended_by(new, s)]
        same = [s for s in found if _names(s) and _overlap(s.processes, new.processes)]
        same = [s for s in same if s not in supported]
    if same:
        first = same[:1] if about == "end" else same
        left = [s for s in found if s in first or s not in same]
        return [_joined(s, new) if s in first else s for s in left]
    is_weak = about == "nobody" or (about == "end" and new.certainty == _LOW)
    if is_weak and not supported and (new.rule != "told-to-end" or any(map(_names, found))):
        supported = found[:1]
    if supported:
        return [_supported(s, new.support) if s in supported else s for s in found]
    if about == "device":
        return [*found, new]
    if new.rule == "held":
        return _held_beside(found, new)
    if about == "end":
        return _died_beside(found, new, view)
    return _awaited_beside(found, new, what)


def _joined(suspect: Suspect, new: Suspect) -> Suspect:
    """Makes one suspect of two of the same processes: the first row of the table says why.

    Of several processes those remain whom the new evidence names too; the others wait, if it says
    so, if nothing else was sure of them, or if it tells of each process by itself.
    """
    in_kernel = new.rule == "held" and new.cause is not causes.HOST_STOPPED
    if in_kernel and (suspect.young or suspect.cause.about == "others"):
        return suspect  # every process is in the kernel for moments
    ended, seen = new.cause.about == "end", new.cause.about in _SEEN or new.rule == "held"
    shown, others = _split(suspect.processes, new.processes)
    named = suspect.processes
    if ended:
        named = new.processes
    elif _tells_of_each(new, suspect) or not _split(others, new.waiting)[1]:
        named = shown
    whole = ended or len(named) == len(shown)
    first, second = suspect, new
    if whole and _says_more(new, suspect):
        first, second = new, suspect
    certainty = max(suspect.certainty, new.certainty)
    if new.rule == "fault-of-its-host":  # of all its ranks: it makes none of them likelier
        certainty = suspect.certainty
    elif not seen and suspect.certainty and new.certainty:
        certainty = _HIGH
    waiting = suspect.waiting or new.waiting
    if ended:
        waiting = _all_of(new.waiting, suspect.waiting)
    elif not seen and len(named) == len(shown):
        waiting = _all_of(waiting, others)
    against = first.against if seen else (*suspect.against, *new.against)
    if certainty == _HIGH and not seen:
        against = ()
    place = first if ended or suspect.leaf or not whole else new
    return replace(
        first,
        rule=first.rule if seen else suspect.rule,
        processes=named,
        certainty=certainty,
        support=(*first.support, *second.support),
        against=against,
        waiting=waiting,
        at=suspect.at or new.at,
        group=suspect.group or new.group,
        leaf=place.leaf,
        leaf_class=place.leaf_class,
        death=suspect.death or new.death,
        trouble=(*suspect.trouble, *new.trouble),
        mismatch=suspect.mismatch or new.mismatch,
        young=suspect.young,
    )


def _tells_of_each(new: Suspect, suspect: Suspect) -> bool:
    """Returns whether evidence of some of a suspect's processes clears the others."""
    if new.cause.about == "device":
        return new.rule == "fault-of-its-gpu" and new.certainty > suspect.certainty
    lost = new.cause is causes.UNREACHABLE and suspect.cause.about == "call"
    return new.rule == "held" or lost or suspect.certainty == _LOW


def _says_more(new: Suspect, suspect: Suspect) -> bool:
    """Returns whether a candidate's row explains a suspect more surely than its own."""
    if new.cause.about == "device":
        fault = new.trouble[0]
        if new.rule != "fault-of-its-gpu" or not (fault.fatal and new.certainty):
            return False
        if suspect.cause is causes.DEAD and fault.hits:  # its own last words
            return True
    return _ROWS[new.cause] < _ROWS[suspect.cause]


def _held_beside(found: list[Suspect], new: Suspect) -> list[Suspect]:
    """Who is stopped, or stands in the kernel, is awaited if nobody else surely is."""
    if any(_names(s) and s.certainty == _HIGH for s in found):
        return found
    victims = next((s for s in found if s.waiting), None)
    if victims is not None:
        _, waiting = _split(victims.waiting, new.processes)
        support = (*new.support, *victims.support)
        new = replace(new, waiting=waiting, at=victims.at, group=victims.group, support=support)
    new = replace(new, certainty=_HIGH if new.waiting else _MEDIUM)
    return [new, *(s for s in found if s.certainty > _LOW and _names(s))]


def _died_beside(found: list[Suspect], new: Suspect, view: View) -> list[Suspect]:
    """Who died first may be the cause of all else; who seems to stand outside of calls is at work,
    perhaps, unless calls have timed out."""
    point = Point(f"{_named(new)} died", _first_source(new))
    told = [s for s in found if s.cause is causes.MISMATCH or _names(s)]
    if not view.timed_out:
        told = [s for s in told if s.rule not in _MAYBE_AT_WORK or s.certainty == _HIGH]
    return [new, *(replace(s, certainty=_LOW, against=(*s.against, point)) for s in told)]


def _awaited_beside(found: list[Suspect], new: Suspect, what: str) -> list[Suspect]:
    """Sources that name different ranks speak against each other: the surer one counts."""
    silent = [s for s in found if _names(s)]
    named = [s for s in silent if s.certainty > _LOW]
    if not named:
        carried = tuple(p for s in found if s not in silent for p in s.support)
        return [_supported(new, carried), *silent]
    rest = [s for s in found if s not in named]
    if new.certainty > named[0].certainty:
        named, new, rest = [new], named[0], [s for s in found if s not in named]
    other = Point(f"{what} point at {_named(new)}", _first_source(new))
    loss = int(new.certainty == _HIGH)
    lowered = [
        replace(s, certainty=max(_LOW, s.certainty - loss), against=(*s.against, other))
        for s in named
    ]
    return [*lowered, *rest]


def _held(view: View) -> list[Suspect]:
    """Returns what the kernel or a guard saw: processes that are stopped, or in D state."""
    found = []
    for word, (cause, words) in _STATES.items():
        states = [s for p, s in view.states.items() if s.state == word and p not in view.leaving]
        told = _of_stall(view, states)
        if not told or len(told) == len(view.states) > 1:
            continue  # all of them: it was a person who looked, or the scheduler
        children = [view.child(state.process) for state in told]
        held = tuple(
            child.parent if child else state.process
            for child, state in zip(children, told, strict=True)
        )
        points = tuple(
            Point(f"{count([s.process])} is {words}" + (s.where and f", in {s.where}"), s.source)
            for s in told
        )
        wheres = {state.where for state in told} - {""}
        leaf = Frame(wheres.pop(), _KERNEL, None, True) if len(wheres) == 1 else None
        of = kernel_class(leaf.function) if leaf else ""
        found.append(Suspect(cause, held, "held", _HIGH, points, leaf=leaf, leaf_class=of))
    return found


def _of_stall(view: View, states: Sequence[State]) -> list[State]:
    """Returns the states of the job's processes that are not of another day: a kernel's log tells
    of all processes of a host."""
    ours = [s for s in states if s.process in view.members or view.child(s.process) is not None]
    if not ours:
        return []
    progress = [p for members in view.progress.values() for p in members.values()]
    times = {call.since for p in progress for call in p.open} | {p.time for p in progress}
    moments = [time for time in times if time is not None]
    return [
        state
        for state in ours
        if not moments
        or state.time is None
        or min(abs(moment - state.time) for moment in moments) <= _OLD
    ]


_STATES = {
    "stopped": (causes.HOST_STOPPED, "stopped (state T)"),
    "uninterruptible": (causes.HOST_STUCK, "inside the kernel (state D)"),
}


# Pauses on purpose explain why their ranks stand and why others wait for these, and no other rank:
# one that is stopped, or hangs elsewhere, while the others are paused is named as ever.


def _without_pauses(found: Sequence[Suspect], view: View) -> list[Suspect]:
    """Takes away what pauses explain: suspects that are paused, and stalls that name nobody."""
    if not view.pauses:
        return list(found)
    left = []
    for suspect in found:
        if suspect.cause.about in _OF_PAUSES or suspect.cause is causes.CYCLE:
            guilty = tuple(p for p in suspect.processes if not _is_why(view, p, suspect))
            if not guilty:
                continue
            # Paused ranks wait for a person, not for them.
            waiting = tuple(p for p in suspect.waiting if p not in view.pauses)
            same = waiting == suspect.waiting
            at, group = (suspect.at, suspect.group) if same else (None, None)
            left.append(replace(suspect, processes=guilty, waiting=waiting, at=at, group=group))
        else:
            left.append(suspect)
    return left


def _is_why(view: View, process: Process, suspect: Suspect) -> bool:
    """Returns whether a pause is why this process of a suspect stands.

    If one that waits at a breakpoint is awaited by a rank that is not paused, it has not got out.
    """
    if process not in view.pauses:
        return False
    own = view.pauses[process].pause
    if own.kind == "breakpoint" or all(p in view.pauses for p in suspect.waiting):
        return True
    others = [one.pause.kind for one in view.pauses.values()]
    return own.kind == "waits" and "breakpoint" in others


def _with_pauses(found: Sequence[Suspect], view: View) -> list[Suspect]:
    """Tells of the pauses: beside what was found, or as all that there is to tell."""
    found = [_ended_in_pause(suspect, view) for suspect in found]
    if not view.pauses:
        return list(found)
    pauses = tuple(view.pauses.values())
    if found:
        return [replace(found[0], support=(*found[0].support, *_of_pauses(pauses))), *found[1:]]
    return [
        Suspect(
            causes.PAUSED, tuple(view.pauses), rule="paused-on-purpose", certainty=2,
            support=_of_pauses(pauses), pauses=pauses,
        )
    ]  # fmt: skip


def _ended_in_pause(suspect: Suspect, view: View) -> Suspect:
    """Adds the pause in which a process was ended: its stack only shows how it waited."""
    ended = view.pauses_at_end
    if suspect.cause is not causes.DEAD or not all(p in ended for p in suspect.processes):
        return suspect
    return replace(suspect, pauses=tuple(ended[p] for p in suspect.processes))


def _of_pauses(pauses: Sequence[Paused]) -> tuple[Point, ...]:
    """Returns a point for each group of processes that wait for the same."""
    alike: dict[str, list[Paused]] = defaultdict(list)
    for one in pauses:
        alike[str(one.pause)].append(one)
    return tuple(
        Point(f"{text}: {stacks.who([one.process for one in same])}", same[0].source)
        for text, same in list(alike.items())[:_MOST_PAUSES]
    )


# Rows that a suspect's own processes fit.


def _explained(suspect: Suspect, view: View) -> Suspect:
    """Returns the suspect with the first row that its stack, record, group or end fits."""
    suspect = _with_activity(_with_place(suspect, view), view)
    rows = [row(suspect, view) for row in (_shared_group, stacks.with_threads, _finished)]
    first = min((s for s in rows if s is not None), key=lambda s: _ROWS[s.cause])
    own = [view.activities.get(process) for process in first.processes]
    if len(own) != 1 or own[0] is None:
        return first
    return replace(first, step=own[0].step, raised=own[0].raised)


def _shared_group(suspect: Suspect, view: View) -> Suspect | None:
    """Threads that use one group at once explain whatever differs or waits in it."""
    members = view.progress.get(suspect.group, {}) if suspect.group is not None else {}
    shared = [p for _, p in sorted(members.items()) if len(p.threads) > 1]
    if not shared or suspect.cause.about not in ("call", "others", "nobody"):
        return None
    processes = tuple(p.process for p in shared)
    return replace(
        suspect, cause=causes.SHARED_GROUP, processes=processes, rule="threads-share-a-group",
        certainty=_HIGH, threads=shared[0].threads, against=(),
        waiting=_split(suspect.waiting, processes)[1],
    )  # fmt: skip


def _finished(suspect: Suspect, view: View) -> Suspect | None:
    """Who ended with exit code 0 does not come any more. Of few that wait for most, the few are
    odd."""
    ends = [view.finished.get(process) for process in suspect.processes]
    is_stuck = suspect.cause.about == "call" or suspect.cause is causes.HOST_STUCK
    if not is_stuck or not ends or None in ends:
        return None
    if 0 < len(suspect.waiting) < len(suspect.processes):
        named, others = suspect.waiting, suspect.processes
        return replace(
            suspect, cause=causes.FINISHED, rule="finished", processes=named, waiting=others,
            leaf=None,
        )  # fmt: skip
    return replace(suspect, cause=causes.FINISHED, rule="finished", death=ends[0])


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


def _with_activity(suspect: Suspect, view: View) -> Suspect:
    """Tells a rank that goes on, slowly or for ever, from one that stands still."""
    active = [view.activities[p] for p in suspect.processes if p in view.activities]
    if not active or len(active) < len(suspect.processes) or suspect.cause.about in _SEEN:
        return suspect
    its, source, cause = "their" if len(active) > 1 else "its", active[0].source, suspect.cause
    lasts = [each.last for each in view.activities.values() if each.last is not None]
    own = [each.last for each in active if each.last is not None]
    rests = [each.rests for each in active if each.rests is not None]
    gone = any(p in view.states and view.states[p].state in _GONE for p in suspect.processes)
    if gone:
        # When the record of a process that is gone was read says nothing.
        since = f"{max(lasts) - min(own):.1f} s before the last one of all ranks" if own else ""
    elif len(rests) < len(active) or (cause.about != "call" and cause not in _STANDS):
        return suspect
    else:
        since = f"{max(rests):.1f} s before the record was read"
        if max(rests) < _JUST_NOW:
            # From one look, slow work and an endless loop are the same: both run.
            slow = suspect.leaf_class in ("disk", "data", "network") or suspect.young
            # It has not been out of calls much longer than it was before.
            as_always = all(
                None not in (a.alone, a.pause, a.seen)
                and (a.seen or 0.0) - (a.alone or 0.0) < _LONGER * (a.pause or 0.0)
                for a in active
            )
            slow = slow or suspect.rule == "last-to-end" or as_always
            cause = causes.MOVING if slow else causes.INFINITE_LOOP
    text = f"{its} last recorded event was {since}" if since else ""
    if not gone and all(each.runs for each in active):
        they = "they run" if len(active) > 1 else "it runs"
        text = f"{they} code that runs too often to be recorded"
    points = (Point(text, source),) if text else ()
    return replace(suspect, cause=cause, support=(*suspect.support, *points))


def _moved_to_its_end(suspect: Suspect, view: View) -> bool:
    """Returns whether a job was ended while it moved: somebody is behind at any moment."""
    last = {process: each.last for process, each in view.activities.items() if each.last}
    own = [last[process] for process in suspect.processes if process in last]
    return bool(own) and max(last.values()) - min(own) < _JUST_NOW


def _ended_by(death: Suspect, found: Suspect) -> bool:
    """Returns whether a difference of calls ended a process: a library aborts one that is sent
    what it does not expect, be it right or wrong."""
    if found.mismatch is None or found.certainty == _LOW or death.death is None:
        return False
    own = death.death
    crashed = own.how == "abort" or bool(own.failed) or own.signal in _CRASHES
    members = {rank for variant in found.mismatch.variants for rank in variant.ranks}
    return crashed and bool(death.processes) and set(ranks(death.processes)) <= members


def _weight(suspect: Suspect) -> tuple[int, bool, float]:
    return (
        -suspect.certainty,
        suspect.cause.about == "nobody",
        suspect.time if suspect.time is not None else float("inf"),
    )


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
    return (*one, *_split(other, one)[1])


def _overlap(one: Sequence[Process], other: Sequence[Process]) -> bool:
    return bool(_split(one, other)[0])


def _split(
    processes: Sequence[Process], others: Sequence[Process]
) -> tuple[tuple[Process, ...], tuple[Process, ...]]:
    """Returns those of the processes that are among others, and those that are not."""
    keys = {process.key for process in others}
    shown = tuple(process for process in processes if process.key in keys)
    return shown, tuple(process for process in processes if process.key not in keys)


def _named(suspect: Suspect) -> str:
    return count(suspect.processes) if suspect.processes else "a process"


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
