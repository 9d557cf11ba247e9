"""Finds the ranks that kept a round from its end: suspects, by the rows of triage's table.

A rank that other ranks wait for, and that waits for no rank, is to blame. A rank that another
rank's fault tore down is a victim. Progress and waiting decide, never a vote. `Motion` tells slow
ranks from stuck ones at a deadline.
"""

import math
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from oddrank.control.stages import JOIN, PUBLISHING, RankState, StageRound, by_node, node_of
from oddrank.triage import causes
from oddrank.triage.facts import GONE, Death, Frame, Process, Source, ranks
from oddrank.triage.leaves import KERNEL, kernel_class
from oddrank.triage.suspects import HIGH, LOW, MEDIUM, Cause, Suspect

SOURCE = Source("guard")
# Guards report progress with their heartbeats. A rank is not stuck yet if it moved within
# _JUST_NOW, or within 1.5 times its second longest pause, at most _LATELY (the longest pause may
# be the import of torch). Ranks that all wait for each other are not stuck if any rank moved
# within _LATELY.
_JUST_NOW = 0.5
_LATELY = 5.0


def blame(round: StageRound) -> list[Suspect]:
    """Returns the suspects of a round in the order of their faults, then of ranks.

    Empty if no rank is to blame, or none yet: a fault may show its victims first. Never empty for a
    round that its deadline ended, even if all ranks wait.
    """
    if round.reason == "complete":  # later faults show in the next round
        return []
    states = round.states
    here = {s.rank: s for s in unfinished(round) if s.contact != "never"}
    never = sorted(s.rank for s in unfinished(round) if s.contact == "never")
    found = _lost(round)
    lost = {rank for one in found for rank in ranks(one.processes)}
    left = {rank: s for rank, s in here.items() if rank not in lost}
    faults = {rank: fault for rank, s in left.items() if (fault := _fault(round, s))}
    found += [suspect for suspect, own in faults.values() if own]
    if len(left) == len(states) and _raised_the_same(round, here.values()):
        first = _ended(round, states[0]).death
        found = [_suspect(round, causes.ALL_RAISED, (), "same-end-everywhere", death=first)]
    orphans = [s for s in states.values() if s.orphaned and s.launcher]
    if any(s.state not in GONE for s in orphans):  # also of ranks that are through
        # torch's store is gone with a launcher, and rank 0's address with it.
        found = [one for one in found if one.death is None or one.death.how != "exception"]
        found.append(_suspect(round, causes.LAUNCHER_GONE, (), "guards-saw-it"))
    elif round.other_worlds & set(never):
        found.append(_suspect(round, causes.SETTINGS, (), "other-settings"))
        found += _absent(round, [rank for rank in never if rank not in round.other_worlds])
    elif of_root := _no_address(round, never, found):
        found = of_root
    elif not found:
        found = _unexplained(round, here, {r: one for r, (one, _) in faults.items()}, never)
    elif never and round.reason == "deadline":
        found += _absent(round, never)

    def first_fault(suspect: Suspect) -> float:
        times = (states[rank].first_fault_ns for rank in ranks(suspect.processes))
        return min((t for t in times if t > 0), default=math.inf)

    return sorted(found, key=lambda one: (first_fault(one), ranks(one.processes)))


def unfinished(round: StageRound) -> list[RankState]:
    """Returns the ranks without a result, and those that are no longer well: they died after it."""
    return [
        s
        for s in round.states.values()
        if s.rank not in round.results
        or s.contact != "ok"
        or s.state not in ("running", "uninterruptible")
        or s.failed is not None
    ]


def torn_down(round: StageRound) -> bool:
    """Returns whether a launcher ended every rank without a result: no use to wait for them.

    mpirun leaves them one second between SIGTERM and SIGKILL.
    """
    left = unfinished(round)
    return all(s.state in GONE for s in left) and any(s.sigterm for s in left)


def _suspect(
    round: StageRound, cause: Cause, of: Sequence[RankState], rule: str, certainty: int = HIGH,
    **more: Any,
) -> Suspect:  # fmt: skip
    """A rank stands in its own stage: after an earlier stage's result, in the current one."""
    processes = tuple(Process(s.rank, s.host or None, s.pid or None) for s in of)
    own = of[0].stage if len(of) == 1 and not of[0].published else ""
    return Suspect(cause, processes, rule, certainty, stage=own or round.stage, **more)


def _fault(round: StageRound, s: RankState) -> tuple[Suspect, bool] | None:
    """Returns a rank's fault, and whether it is its own: no other rank can have caused it."""
    if s.state in GONE:
        aborted = s.waiting and s.signal == signal.SIGABRT
        return _ended(round, s), not (s.sigterm or aborted)
    if s.state == "stopped":
        return _suspect(round, causes.HOST_STOPPED, [s], "held"), True
    if s.failed is not None:
        return _ended(round, s), not (s.sigterm or s.waiting)
    if s.state == "uninterruptible" and round.reason == "deadline":
        leaf = Frame(s.wchan, KERNEL, None, True) if s.wchan else None
        of = kernel_class(s.wchan)
        return _suspect(round, causes.HOST_STUCK, [s], "held", leaf=leaf, leaf_class=of), True
    return None


def _ended(round: StageRound, s: RankState) -> Suspect:
    process = Process(s.rank)
    if s.state not in GONE:
        site = (Frame(s.raised_at.rpartition("/")[2]),) if s.raised_at else ()
        death = Death(process, "exception", SOURCE, text=s.failed or "an exception", site=site)
    elif s.signal is not None:
        death = Death(process, "signal", SOURCE, signal=s.signal)
    else:
        unseen = "nobody saw how: killed, crashed, or os._exit()" if s.exit_code is None else ""
        death = Death(process, "exit", SOURCE, code=s.exit_code, text=unseen)
    return _suspect(round, causes.DEAD, [s], "guard-saw-it", death=death)


def _lost(round: StageRound) -> list[Suspect]:
    """Returns suspects among guards that no longer speak: whole nodes, then single guards."""
    nodes = by_node(round.states.values())
    home = node_of(round.states[0]) if 0 in round.states else None
    seen = {node: {s.contact for s in members} for node, members in nodes.items() if node != home}
    parted = {node for node, contacts in seen.items() if "gave-up" in contacts}
    gone = parted | {node for node, contacts in seen.items() if contacts <= {"silent", "closed"}}
    # All other nodes fell silent: what they share is the root's own link.
    all_silent = gone == seen.keys() and all(seen[node] <= {"silent", "gave-up"} for node in gone)
    if all_silent and len(gone) > 1 and home is not None:
        return [_suspect(round, causes.LINK_CUT, nodes[home], "own-link", MEDIUM)]
    found = []
    for node, members in nodes.items():
        if node in parted:
            found.append(_suspect(round, causes.LOST_EACH_OTHER, members, "either-host", MEDIUM))
        elif node in gone:
            cause = causes.NODE_LOST if seen[node] == {"closed"} else causes.LINK_CUT
            # Between two nodes, either may have cut the link.
            rule, sure = ("two-nodes", LOW) if all_silent else ("all-guards-lost", HIGH)
            found.append(_suspect(round, cause, members, rule, sure))
        else:
            found += [
                _suspect(round, causes.GUARD_LOST, [s], "one-guard-lost")
                for s in members
                if s.contact in ("silent", "closed", "gave-up")
            ]
    return found


def _no_address(round: StageRound, never: Sequence[int], found: Sequence[Suspect]) -> list[Suspect]:
    """Returns why rank 0 has not published its address; empty if it has, or may yet.

    Once it has, it waits for others. It is stuck only if it did not try: else the store may be
    slow, or the import of torch.
    """
    if round.stage != JOIN or not never or len(never) != len(round.states) - 1:
        return []
    root = round.states[0]
    fault = _fault(round, root)
    if fault is None and (round.reason != "deadline" or root.waiting):
        return []
    if of_root := [one for one in found if ranks(one.processes) == (0,)]:
        return of_root
    if fault:
        return [fault[0]]
    if root.step == PUBLISHING:
        return [_suspect(round, causes.NO_ADDRESS, (), "slow-store", LOW)]
    return [_behind(round, root)]


def _behind(round: StageRound, s: RankState) -> Suspect:
    made = _suspect(round, causes.HOST_STUCK, [s], "behind", MEDIUM)
    step = f"step {s.step!r} of " if s.step else ""
    return replace(made, leaf=Frame(f"{step}stage {made.stage}"))


def _unexplained(
    round: StageRound, here: Mapping[int, RankState], suffered: Mapping[int, Suspect],
    never: Sequence[int],
) -> list[Suspect]:  # fmt: skip
    """Returns the suspects of a round in which no rank has a fault of its own."""
    if never or round.reason != "deadline":
        return _absent(round, never)
    if stuck := _stuck(round, [s for rank, s in here.items() if rank not in suffered]):
        return stuck
    if len(suffered) == 1:
        # It left the collective in which the others still wait for it.
        ((rank, one),) = suffered.items()
        if not here[rank].sigterm:
            return [replace(one, rule="left-alone", certainty=MEDIUM)]
    return [_suspect(round, causes.ALL_WAIT, (), "nobody-behind", LOW)] if here else []


def _absent(round: StageRound, never: Sequence[int]) -> list[Suspect]:
    """Returns the suspects among the ranks that never came, by the facts known of them."""
    unreached = [rank for rank in never if round.states[rank].unreached]
    over = round.reason == "deadline" or bool(round.limits)
    if not over and round.reason != "terminated" and len(unreached) < len(never):
        return []
    ended = _told_to_end(round) & set(never) - set(unreached)
    missing = set(never) - set(unreached) - ended if over else ()
    every: tuple[tuple[Cause, Collection[int], str, int], ...] = (
        (causes.UNREACHABLE_ROOT, unreached, "told-in-store", HIGH),
        (causes.NEVER_JOINED, ended, "launcher-ended-it", MEDIUM),
        (causes.NEVER_JOINED, missing, "others-joined", MEDIUM),
    )
    return [
        Suspect(cause, tuple(map(Process, sorted(who))), rule, sure, stage=JOIN)
        for cause, who, rule, sure in every if who
    ]  # fmt: skip


def _told_to_end(round: StageRound) -> set[int]:
    """Returns the ranks of hosts whose launcher sent SIGTERM to a rank there.

    Guards find the root within a moment of their start: one of them that never came died before it
    had a guard. A signal from another process says nothing.
    """
    return {
        s.rank - s.local_rank + local
        for s in round.states.values()
        if s.contact != "never" and s.sigterm and s.launcher and s.sigterm_by == s.launcher_pid
        for local in range(s.local_world)
    }


def _raised_the_same(round: StageRound, states: Collection[RankState]) -> bool:
    """Returns whether all raised the same text, and all inside a collective or all outside.

    They reject the same request, or lack the same thing. Ranks that a fault tore down raise
    different texts: they name different peers.
    """
    raised = all(s.failed is not None and s.state not in (*GONE, "stopped") for s in states)
    seen = {(s.failed, bool(s.sigterm or s.waiting)) for s in states}
    return raised and len(states) > 1 and len(seen) == 1


def _stuck(round: StageRound, here: Sequence[RankState]) -> list[Suspect]:
    """Returns the ranks that wait for no rank and have come least far.

    Empty if a waiting rank is further behind: it waits for data that got lost on the way, and no
    evidence shows which rank lost it.
    """
    least = min((s.progress for s in here if not s.waiting), default=0)
    if any(s.waiting and s.progress < least for s in here):
        return []
    return [_behind(round, s) for s in here if not s.waiting and s.progress == least]


class Motion:
    """Notes when each rank last made progress, and excuses suspects that may only be slow."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[int, tuple[int, float]] = {}
        self._stays: dict[int, tuple[float, float]] = {}  # rank -> its two longest pauses

    def see(self, states: Iterable[RankState]) -> None:
        now = self._clock()
        for s in states:
            last = self._seen.get(s.rank)
            if last is not None and last[0] == s.progress:
                continue
            if last is not None:
                known = self._stays.get(s.rank, (0.0, 0.0))
                _, second, longest = sorted((*known, now - last[1]))
                self._stays[s.rank] = (longest, second)
            self._seen[s.rank] = (s.progress, now)

    def goes_on(self) -> bool:
        """Returns whether any rank moved within _LATELY."""
        return self._youngest(self._seen) < _LATELY

    def excuse(self, found: Sequence[Suspect]) -> list[Suspect]:
        """Returns `found` without suspects that may only be slow."""
        return [suspect for suspect in found if not self._only_slow(suspect)]

    def _only_slow(self, suspect: Suspect) -> bool:
        if suspect.cause is causes.ALL_WAIT:
            return self.goes_on()
        who = ranks(suspect.processes)
        stays = [self._stays[rank][1] for rank in who if rank in self._stays]
        usual = min(_LATELY, max([_JUST_NOW, *(1.5 * stay for stay in stays)]))
        return suspect.rule == "behind" and self._youngest(who) < usual

    def _youngest(self, who: Iterable[int]) -> float:
        """Returns the seconds since any of the ranks last moved."""
        moves = [self._seen[rank][1] for rank in who if rank in self._seen]
        return self._clock() - max(moves, default=-math.inf)
