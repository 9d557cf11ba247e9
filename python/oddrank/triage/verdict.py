"""Joins the judges' candidates: which ranks, and why, by the table of causes.

A judge yields candidates: a row of the table, ranks, a place, evidence. Of one rank's candidates
the first row in the table counts, and the others support it. Deterministic: the same facts give
the same suspects. Every rule has a name, which --explain shows.
"""

import math
import signal
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import takewhile

from oddrank.finding import duration, grouped
from oddrank.triage import causes
from oddrank.triage.facts import GONE, Frame, Process, State, ranks
from oddrank.triage.judges import deaths, devices, ras, stacks, waits
from oddrank.triage.leaves import KERNEL, kernel_class
from oddrank.triage.suspects import HIGH, MEDIUM, Point, Suspect
from oddrank.triage.view import View
from oddrank.triage.words import count

_ROWS = {cause: number for number, cause in enumerate(causes.TABLE.values())}
# Rules whose suspect may only be at work, as some rank is at any moment of a healthy job.
_MAYBE_AT_WORK = frozenset({"stacks-awaited", "stacks-awaited-by-gpu", "stacks-moving"})
_MOST_PAUSES = 4
_LATE = 60.0  # seconds by which a rank may move after the job was told to end
# A pause explains these. A rank that died, is stopped or issued another call is no pause.
_OF_PAUSES = ("call", "stack", "nobody")


def suspects(view: View) -> list[Suspect]:
    """Returns the suspects, the surest and most telling first; empty if nothing is wrong."""
    if apart := devices.started_apart(view):
        return apart
    died, waited = deaths.judge(view), waits.judge(view)
    # Stacks are older than the good end of those that waited in them.
    ended = view.finished.keys()
    stood = [s for s in stacks.judge(view) if not s.waiting or not ended >= {*s.waiting}]
    broken, counted = devices.judge(view), ras.judge(view)
    # Timeouts that name the awaited rank belong to the stall.
    awaited = [s for s in died if s.cause.about != "end"]
    if told := next((s for s in awaited if s.rule == "told-to-end"), None):
        # A job that was ended while it moved: some rank is behind at any moment.
        waited, stood, counted = (
            [s for s in some if _stood(s, view, told)] for some in (waited, stood, counted)
        )
    found = list(waited)
    for what, some in (("stacks", stood), ("operation counts", counted), ("timeouts", awaited)):
        for new in some:
            found = _add(found, new, view, what)
    found = _without_pauses(found, view)
    for new in (*_held(view), *(s for s in died if s not in awaited), *broken):
        found = _add(found, new, view)
    found = [explained(suspect, view) for suspect in found]
    if pauses := tuple(view.pauses.values()):
        rule = "paused-on-purpose"
        alone = Suspect(causes.PAUSED, tuple(view.pauses), rule, HIGH, pauses=pauses)
        first, *others = found or [alone]
        alike = [*grouped((str(one.pause), one) for one in pauses).items()][:_MOST_PAUSES]
        points = [
            Point(f"{text}: {stacks.who([one.process for one in same])}", same[0].source)
            for text, same in alike
        ]
        found = [_supported(first, points), *others]
    # An unsure suspect that names no rank counts only if no rank is surely named.
    surer = [s for s in found if _names(s) and s.certainty]
    sure = [process for s in surer for process in s.processes]
    kept = [
        s for s in found
        if s.certainty or s.cause is causes.DEVICE or not surer
        or (_names(s) and not _split(s.processes, sure)[0])
    ]  # fmt: skip
    kept.sort(key=lambda s: math.inf if s.time is None else s.time)
    return sorted(kept, key=lambda s: (-s.certainty, s.cause.about == "nobody"))


def _add(found: list[Suspect], new: Suspect, view: View, what: str = "") -> list[Suspect]:
    """Adds a candidate: to the suspects of the same processes, or beside the others."""
    about, named = new.cause.about, [s for s in found if _names(s)]
    supported = [s for s in found if _ended_by(new, s)]
    same = [s for s in named if _split(s.processes, new.processes)[0] and s not in supported]
    if new.rule == "ended-from-outside":
        same, supported = [], found[:1]
    if same:
        first = same[:1] if about == "end" else same
        return [_joined(s, new) if s in first else s for s in found if s in first or s not in same]
    is_weak = about == "nobody" or (about == "end" and not new.certainty)
    if is_weak and not supported and (new.rule != "told-to-end" or named):
        supported = found[:1]
        if about == "end" and supported and supported[0].cause.about == "end":  # a rival
            others = (point for point in new.support if point not in found[0].support)
            supported = [replace(found[0], against=(*found[0].against, *others))]
            found, new = [*supported, *found[1:]], replace(new, support=())
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
    """Joins two suspects of the same processes into one: the first row of the table says why.

    If there are several processes, those remain that the new evidence names too. The others wait,
    if it says so, if nothing else was sure of them, or if it tells of each process by itself.
    """
    ended, held = new.cause.about == "end", new.rule == "held"
    of_kernel, seen = new.cause is causes.HOST_STUCK, ended or held or new.cause.about == "device"
    if held and of_kernel and (suspect.young or suspect.cause.about == "others"):
        return suspect  # every process is in the kernel for moments
    shown, others = _split(suspect.processes, new.processes)
    whole = ended or _tells_of_each(new, suspect) or not _split(others, new.waiting)[1]
    first, second = (new, suspect) if whole and _says_more(new, suspect) else (suspect, new)
    certainty = max(suspect.certainty, new.certainty)
    if new.rule == "fault-of-its-host":  # of all its ranks: it makes none of them likelier
        certainty = suspect.certainty
    elif not seen and suspect.certainty and new.certainty:
        certainty = HIGH
    waiting = _all_of(new.waiting, suspect.waiting)
    against = first.against
    if not seen:
        waiting = _all_of(suspect.waiting or new.waiting, others if whole else ())
        against = () if certainty == HIGH else (*suspect.against, *new.against)
    place = first if first.leaf or not whole else new
    return replace(
        first,
        rule=first.rule if seen else suspect.rule, certainty=certainty,
        processes=new.processes if ended else shown if whole else suspect.processes,
        support=(*first.support, *second.support), against=against,
        waiting=waiting, at=suspect.at or new.at, group=suspect.group or new.group,
        leaf=place.leaf, leaf_class=place.leaf_class, young=suspect.young,
        death=suspect.death or new.death, trouble=(*suspect.trouble, *new.trouble),
        mismatch=suspect.mismatch or new.mismatch,
    )  # fmt: skip


def _tells_of_each(new: Suspect, suspect: Suspect) -> bool:
    """Returns whether evidence of some of a suspect's processes clears the others."""
    if new.cause.about == "device":
        return new.rule == "fault-of-its-gpu" and new.certainty > suspect.certainty
    lost = new.cause is causes.UNREACHABLE and suspect.cause.about == "call"
    return new.rule == "held" or lost or not suspect.certainty


def _says_more(new: Suspect, suspect: Suspect) -> bool:
    """Returns whether a candidate's row explains a suspect more surely than its own."""
    if new.cause.about == "device":
        fault = new.trouble[0]
        if new.rule != "fault-of-its-gpu" or not (fault.fatal and new.certainty):
            return False
        if suspect.cause is causes.DEAD and fault.hits:  # its own last words
            return True
    if suspect.mismatch and new.cause.about == "stack":
        return False  # a rank that issued another call came to the call, wherever it stands
    stands = new.rule == "held" and suspect.cause in (causes.MOVING, causes.INFINITE_LOOP)
    return stands or _ROWS[new.cause] < _ROWS[suspect.cause]


def _held_beside(found: list[Suspect], new: Suspect) -> list[Suspect]:
    """A rank that is stopped, or stands in the kernel, is awaited if no other rank surely is."""
    named = [s for s in found if _names(s) and s.certainty]
    if any(s.certainty == HIGH for s in named):
        return found
    if victims := next((s for s in found if s.waiting), None):
        _, waiting = _split(victims.waiting, new.processes)
        support = (*new.support, *victims.support)
        new = replace(new, waiting=waiting, at=victims.at, group=victims.group, support=support)
    return [replace(new, certainty=HIGH if new.waiting else MEDIUM), *named]


def _died_beside(found: list[Suspect], new: Suspect, view: View) -> list[Suspect]:
    """The first death may explain all: ranks outside of calls may work on if no call timed out."""
    at_work = () if view.timed_out else _MAYBE_AT_WORK
    told = [
        s for s in found
        if s.cause is causes.MISMATCH
        or (_names(s) and (s.rule not in at_work or s.certainty == HIGH))
    ]  # fmt: skip
    who = count(new.processes) if new.processes else "a process"
    return [new, *_doubted(told, f"{who} died", new, HIGH)]


def _awaited_beside(found: list[Suspect], new: Suspect, what: str) -> list[Suspect]:
    """Sources that name different ranks speak against each other: the surer one counts."""
    silent = [s for s in found if _names(s)]
    named = [s for s in silent if s.certainty]
    if not named:
        carried = tuple(p for s in found if s not in silent for p in s.support)
        return [_supported(new, carried), *silent]
    rest = [s for s in found if s not in named]
    if new.certainty > named[0].certainty:
        named, new = [new], named[0]
    loss = int(new.certainty == HIGH)
    return [*_doubted(named, f"{what} point at {count(new.processes)}", new, loss), *rest]


def _doubted(found: Iterable[Suspect], text: str, by: Suspect, loss: int) -> list[Suspect]:
    """Returns suspects of which another one makes it less sure that they are to blame."""
    point = Point(text, next((point.source for point in by.support if point.source), None))
    return [
        replace(s, certainty=max(0, s.certainty - loss), against=(*s.against, point)) for s in found
    ]


def _held(view: View) -> list[Suspect]:
    """Returns what the kernel or a guard saw: processes that are stopped, or in D state.

    A kernel's log tells of all processes of a host, and of other days.
    """
    progress = [*view.all_progress]
    moments = {call.since for p in progress for call in p.open} | {p.time for p in progress}
    found = []
    for word, (cause, words) in _STATES.items():
        told: list[tuple[State, Process]] = []
        for process, state in view.states.items():
            if state.state != word or process in view.leaving:
                continue
            child, time = view.child(process), state.time
            gaps = (abs(each - time) for each in moments if each is not None and time is not None)
            if (child or process in view.members) and min(gaps, default=0.0) <= devices.OLD:
                told.append((state, child.parent if child else process))
        if not told or len(told) == len(view.states) > 1:
            continue  # all of them: a person looked at them, or the scheduler stopped them
        points = tuple(
            Point(f"{count([s.process])} is {words}" + (s.where and f", in {s.where}"), s.source)
            for s, _ in told
        )
        wheres = {state.where for state, _ in told} - {""}
        where = wheres.pop() if len(wheres) == 1 else ""
        leaf = Frame(where, KERNEL, None, True) if where else None
        processes = tuple(process for _, process in told)
        of = kernel_class(where)
        found.append(Suspect(cause, processes, "held", HIGH, points, leaf=leaf, leaf_class=of))
    return found


_STATES = {
    "stopped": (causes.HOST_STOPPED, "stopped (state T)"),
    "uninterruptible": (causes.HOST_STUCK, "inside the kernel (state D)"),
}


# A pause on purpose explains only why its ranks stand, and why others wait for these. Another rank
# that is stopped, or hangs elsewhere, meanwhile is named as ever.


def _without_pauses(found: Sequence[Suspect], view: View) -> list[Suspect]:
    """Takes away suspects that are paused, and stalls that name no rank: pauses explain them.

    Without a breakpoint, a paused rank that an unpaused one awaits has failed to leave its pause.
    """
    if not view.pauses:
        return list(found)
    left = []
    is_open = any(one.pause.kind == "breakpoint" for one in view.pauses.values())
    for suspect in found:
        if suspect.cause.about not in _OF_PAUSES and suspect.cause is not causes.CYCLE:
            left.append(suspect)
            continue
        # Paused ranks wait for a person, not for them.
        waiting = tuple(p for p in suspect.waiting if p not in view.pauses)
        excused = view.pauses if is_open or not waiting else {}
        if guilty := tuple(p for p in suspect.processes if p not in excused):
            told = replace(suspect, processes=guilty, waiting=waiting)
            left.append(told if waiting == suspect.waiting else replace(told, at=None, group=None))
    return left


def explained(suspect: Suspect, view: View) -> Suspect:
    """Returns the suspect with all that is known of its processes, by the first row that fits."""
    seen = _with_activity(stacks.with_places(suspect, view), view)
    earlier = takewhile(lambda row: row is not seen.cause, causes.TABLE.values())
    fitting = (replace(told, cause=row) for row in earlier if (told := row.fits(seen, view)))
    first = next(fitting, seen)
    if first.cause is causes.INFINITE_LOOP:
        against = (*first.against, Point("long work would look the same"))
        first = replace(first, certainty=min(first.certainty, MEDIUM), against=against)
    own = view.activities.get(first.processes[0]) if len(first.processes) == 1 else None
    if own is None:
        return first
    raised = "; ".join(filter(None, (own.raised, first.raised)))
    return replace(first, step=own.step, raised=raised)


def _with_activity(suspect: Suspect, view: View) -> Suspect:
    """Adds when ranks that are absent last did something, if that is known of all of them."""
    active = [view.activities[p] for p in suspect.processes if p in view.activities]
    stand = suspect.cause.about in ("call", "stack")
    if not stand or not active or len(active) < len(suspect.processes):
        return suspect
    its, they = ("their", "they run") if len(active) > 1 else ("its", "it runs")
    text, rests = f"{its} last recorded event was", None
    if any(p in view.states and view.states[p].state in GONE for p in suspect.processes):
        # When the record of a process that is gone was read says nothing.
        if not (lasts := [each.last for each in active if each.last]):
            return suspect
        behind = max(each.last or 0.0 for each in view.activities.values()) - min(lasts)
        text += f" {duration(behind, 1)} before the last one of all ranks"
    else:
        known = [each.rests for each in active if each.rests is not None]
        if len(known) < len(active):
            return suspect
        rests = max(known)
        text += f" {duration(rests, 1)} before the record was read"
        if all(each.runs for each in active):
            text = f"{they} code that runs too often to be recorded"
    return replace(_supported(suspect, (Point(text, active[0].source),)), rests=rests)


def _stood(suspect: Suspect, view: View, told: Suspect) -> bool:
    """Returns whether all ranks had stood for long when the job was told to end.

    True, too, if nothing says when they moved last. Of a rank in a call its begin counts: it may
    clean up after that. The odd rank may be in none.
    """
    calls = [(c.since, p.process) for p in view.all_progress for c in p.open if c.since]
    last = {process: each.last for process, each in view.activities.items()
            if process not in suspect.processes and each.last}  # fmt: skip
    last |= {process: since for since, process in sorted(calls, key=lambda call: call[0])}
    if not last or told.time is None:
        return not last
    pause = max((each.pause or 0.0 for each in view.activities.values()), default=0.0)
    stood = told.time - max(last.values())
    if told.death is not None and told.death.wall:  # zones differ by quarters of an hour
        stood = (stood + _LATE) % 900 - _LATE
    return stood >= waits.stall_after(pause)


def _ended_by(death: Suspect, found: Suspect) -> bool:
    """Returns whether a difference of calls ended a process.

    Libraries abort either side of one, and a launcher then tells the others to end.
    """
    if found.mismatch is None or death.death is None:
        return False
    own = death.death
    follows = own.signal in (*deaths.CASCADES, signal.SIGTERM)
    crashed = own.how == "abort" or bool(own.failed) or follows
    members = {rank for variant in found.mismatch.variants for rank in variant.ranks}
    return crashed and bool(death.processes) and set(ranks(death.processes)) <= members


def _names(suspect: Suspect) -> bool:
    return bool(suspect.processes) and suspect.cause.about != "nobody"


def _supported(suspect: Suspect, points: Sequence[Point]) -> Suspect:
    return replace(suspect, support=(*suspect.support, *points))


def _all_of(one: Sequence[Process], other: Sequence[Process]) -> tuple[Process, ...]:
    return (*one, *_split(other, one)[1])


def _split(
    processes: Sequence[Process], others: Sequence[Process]
) -> tuple[tuple[Process, ...], tuple[Process, ...]]:
    """Returns the processes that are among others, and the processes that are not."""
    keys = {process.key for process in others}
    shown = tuple(process for process in processes if process.key in keys)
    return shown, tuple(process for process in processes if process.key not in keys)
