"""Suspects: the findings of judges. causes.py holds the table of their causes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from oddrank.finding import Condition, Who
from oddrank.triage import facts

if TYPE_CHECKING:
    from oddrank.triage.view import View

About = Literal["purpose", "end", "held", "device", "stack", "others", "call", "nobody",
                "hub"]  # fmt: skip
Says: TypeAlias = "Callable[[Suspect], tuple[Condition, str]]"
HIGH, MEDIUM, LOW = 2, 1, 0  # how sure


@dataclass(frozen=True, slots=True)
class Point:
    """One thing that supports or contradicts a suspicion, as a sentence."""

    text: str
    source: facts.Source | None = None


@dataclass(frozen=True, eq=False)
class Cause:
    """A row of the table of causes. name: in the JSON.

    about: what it tells of. call: only that a call was not entered, so that a state or a stack may
    still say why; stack: where a rank stands; held: that it cannot run; end: how it ended; device:
    a fault of its GPU, link, host or settings; others: that ranks keep each other; purpose: that a
    person wants it to wait; nobody: that no rank can be named; hub: what guards and launchers show
    of ranks that may not have come to a call yet.
    says: its sentence; made of a suspect, with the condition that it is in. None: no finding.
    next: the command to type, in every case; {pid}, {host} and so on as in next_steps.py.
    fits: makes a suspect of a later row into this row's, if this one fits its facts; else None.
    drains_node: whether another node would do better. A program's own fault follows it there.
    """

    name: str
    about: About
    says: Says | None
    next: tuple[str, ...] = ()
    fits: Callable[[Suspect, View], Suspect | None] = lambda suspect, view: None
    drains_node: Callable[[Suspect], bool] = lambda suspect: False


@dataclass(frozen=True)
class Suspect:
    """A judge's finding: pure data, no sentence.

    processes: the culprits; empty if none can be named. waiting: ranks that wait for them. at: the
    call in which these wait. leaf: where the culprit's host stands. group: the group of the call.
    rule: the name of the rule that fired, for --explain. certainty: 2 high, 1 medium, 0 low.
    """

    cause: Cause
    processes: tuple[facts.Process, ...]
    rule: str
    certainty: int
    support: tuple[Point, ...] = ()
    against: tuple[Point, ...] = ()
    waiting: tuple[facts.Process, ...] = ()
    at: facts.Call | None = None
    group: facts.Group | None = None
    leaf: facts.Frame | None = None
    leaf_class: str = ""
    """peers, data, gpu, disk, file-lock, lock, pipe, child, network, running, or "": unknown."""
    mismatch: facts.Mismatch | None = None
    death: facts.Death | None = None
    trouble: tuple[facts.Trouble, ...] = ()
    cycle: tuple[tuple[facts.Process, ...], ...] = ()
    """A circle: sets of ranks, each waiting for the next; or pairs that wait for each other."""
    time: float | None = None
    job: str = ""
    """The job that it is of, if the files tell of several."""
    there: tuple[facts.Process, ...] | None = None
    """The waiting processes that stand in `at`; None: not known."""
    own: facts.Call | None = None
    """The call of `group` that the culprits are in themselves; None: none, or not known."""
    young: bool = False
    """The others have not waited long enough for a stall."""
    pauses: tuple[facts.Paused, ...] = ()
    """Why each process waits."""
    beside: tuple[facts.Frame, ...] = ()
    """Other places: of other suspects, of a deadlock's other threads, or of an awaited worker."""
    held: bool = False
    """That worker is stopped."""
    threads: tuple[str, ...] = ()
    """The threads, with their places, if the cause is shared-group."""
    step: int | None = None
    """The last training step that the culprit reported, if it is one process."""
    rests: float | None = None
    """Seconds since the culprits last did something, by their records; None: not known of all."""
    raised: str = ""
    """Why its other threads or ranks ended, or why it is away, as the end of a sentence."""
    stage: str = ""
    """The stage of a command of oddrank in which the culprit stands."""
    who: Who | None = None
    """The culprits' name in sentences; None: words.who() of its processes."""
