"""Pauses on purpose: ranks wait since a person wants it, which is no stall.

A pause explains why its rank stands and why others wait for it. It explains no other rank: one that
is stopped, or hangs elsewhere, while the others are paused is named as ever.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from oddrank.triage import causes
from oddrank.triage.facts import Paused, Process
from oddrank.triage.judges.stacks import who
from oddrank.triage.suspects import Point, Suspect
from oddrank.triage.view import View

_MOST_POINTS = 4
# What a pause explains. A rank that died, is stopped or issued another call is no pause.
_EXPLAINED = ("call", "stack", "nobody")


def without_pauses(found: Sequence[Suspect], view: View) -> list[Suspect]:
    """Takes away what pauses explain: suspects that are paused, and stalls that name nobody."""
    if not view.pauses:
        return list(found)
    left = []
    for suspect in found:
        if suspect.cause.about in _EXPLAINED or suspect.cause is causes.CYCLE:
            guilty = tuple(p for p in suspect.processes if not _explains(view, p, suspect))
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


def _explains(view: View, process: Process, suspect: Suspect) -> bool:
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


def with_pauses(found: Sequence[Suspect], view: View) -> list[Suspect]:
    """Tells of the pauses: beside what was found, or as all that there is to tell."""
    found = [_ended_in_pause(suspect, view) for suspect in found]
    if not view.pauses:
        return list(found)
    pauses = tuple(view.pauses.values())
    if found:
        return [replace(found[0], support=(*found[0].support, *_points(pauses))), *found[1:]]
    return [
        Suspect(
            causes.PAUSED, tuple(view.pauses), rule="paused-on-purpose", certainty=2,
            support=_points(pauses), pauses=pauses,
        )
    ]  # fmt: skip


def _ended_in_pause(suspect: Suspect, view: View) -> Suspect:
    """Adds the pause in which a process was ended: its stack only shows how it waited."""
    ended = view.pauses_at_end
    if suspect.cause is not causes.DEAD or not all(p in ended for p in suspect.processes):
        return suspect
    return replace(suspect, pauses=tuple(ended[p] for p in suspect.processes))


def _points(pauses: Sequence[Paused]) -> tuple[Point, ...]:
    """Returns a point for each group of processes that wait for the same."""
    alike: dict[str, list[Paused]] = defaultdict(list)
    for one in pauses:
        alike[str(one.pause)].append(one)
    return tuple(
        Point(f"{text}: {who([one.process for one in same])}", same[0].source)
        for text, same in list(alike.items())[:_MOST_POINTS]
    )
