"""Finds the ranks that kept a round from its end, from evidence about each rank.

A rank that other ranks wait for, and that waits for no rank, is a culprit. A rank that another
rank's fault tore down is a victim. Progress and waiting decide, never a vote. `Motion` tells slow
ranks from stuck ones at a deadline. The sentences are made in oddrank.control.findings.
"""

import math
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from oddrank.control.stages import (
    JOIN,
    PUBLISHING,
    RankState,
    StageRound,
    by_node,
    node_of,
)

Cause = Literal[
    "never-came",  # its guard never reached rank 0, whose address was published
    "never-joined",  # the same, and its launcher sent SIGTERM to other ranks of its host
    "unreachable-root",  # rank 0's port does not answer the rank, as torch's store says
    "dead",  # ended before it was allowed to
    "stopped",  # SIGSTOP, a debugger, a frozen container
    "raised",  # an exception
    "uninterruptible",  # D state: inside the kernel, usually a file system or a driver
    "no-progress",  # waits for no other rank, and makes no progress
    "node-lost",  # every connection of a node was closed: the node, or all of its processes, ended
    "link-cut",  # every guard of a node fell silent: the node stopped, or the network to it
    "lost-each-other",  # a guard that lives heard no more from the root, and gave up
    "guard-lost",  # one guard fell silent or ended, others of its node did not
    "launcher-gone",  # no rank: a launcher ended, and with it the store and the job
    "no-address",  # no rank: rank 0's address did not get into torch's store
    "other-world",  # no rank: WORLD_SIZE differs between ranks
    "all-raised",  # no rank: every rank raised the same text
    "all-wait",  # no rank: the ranks without a result wait for each other
]
# Consequences of a launcher's end: torch's store is gone, and rank 0's address with it.
_BY_A_LAUNCHERS_END = ("raised", "all-raised", "no-progress", "never-came", "no-address")

# Guards report progress with their heartbeats. A rank is not stuck yet if it moved within
# _JUST_NOW, or within 1.5 times its second longest pause, at most _LATELY (the longest pause may
# be the import of torch). Ranks that all wait for each other are not stuck if any rank moved
# within _LATELY.
_JUST_NOW = 0.5
_LATELY = 5.0


@dataclass(frozen=True)
class Culprit:
    """A cause and its ranks (empty: no rank can be named). `victims`: others without a result."""

    cause: Cause
    ranks: tuple[int, ...]
    stage: str
    victims: tuple[int, ...] = ()
    certain: bool = True


def culprits(round: StageRound) -> list[Culprit]:
    """Return the culprits of a round in the order of their faults, then of ranks.

    Empty if there is no culprit, or none yet: a fault may show its victims first. A round that its
    deadline ended always has one, be it all-wait.
    """
    if round.reason == "complete":  # later faults show in the next round
        return []
    states = round.states
    unfinished = {rank: s for rank, s in states.items() if not _through(round, s)}
    came = {rank: s for rank, s in unfinished.items() if s.contact != "never"}
    never = tuple(sorted(set(unfinished) - set(came)))

    lost = _lost(round)
    blamed = {rank for culprit in lost for rank in culprit.ranks}
    faults = {rank: _fault(round, s) for rank, s in came.items() if rank not in blamed}
    sure = lost + [
        Culprit(cause, (rank,), _stage(round, states[rank]))
        for rank, (cause, own) in faults.items()
        if cause is not None and own
    ]
    if set(faults) == set(states) and _raised_the_same(round, came.values()):
        sure = [Culprit("all-raised", (), round.stage)]
    orphans = [s for s in states.values() if s.orphaned and s.launcher]
    if any(s.state not in ("dead", "zombie") for s in orphans):  # also of ranks that are through
        sure = [c for c in sure if c.cause not in _BY_A_LAUNCHERS_END]
        sure.append(Culprit("launcher-gone", (), round.stage))
    elif round.other_worlds & set(never):
        sure.append(Culprit("other-world", (), round.stage))
        sure += _absent(round, [rank for rank in never if rank not in round.other_worlds])
    elif _nobody_could_come(round, never):
        sure = [c for c in sure if c.ranks == (0,)] or _no_address(round, states[0])
    elif not sure:
        suffered = {rank: cause for rank, (cause, _) in faults.items() if cause is not None}
        sure = _unexplained(round, came, suffered, never)
    elif never and round.reason == "deadline":
        sure += _absent(round, never)
    named = {rank for culprit in sure for rank in culprit.ranks}
    victims = tuple(sorted(set(unfinished) - named))
    return [
        Culprit(c.cause, c.ranks, c.stage, victims, c.certain)
        for c in sorted(sure, key=lambda c: (_first_fault(states, c), c.ranks, c.cause))
    ]


def torn_down(round: StageRound) -> bool:
    """Return whether a launcher ended every rank without a result: no use to wait for them.

    mpirun leaves them one second between SIGTERM and SIGKILL.
    """
    unfinished = [s for s in round.states.values() if not _through(round, s)]
    gone = all(s.state in ("dead", "zombie") for s in unfinished)
    return gone and any(s.sigterm for s in unfinished)


def _first_fault(states: Mapping[int, RankState], culprit: Culprit) -> float:
    """Return when the culprit's first fault began, on the judge's clock; infinity if unknown."""
    times = (states[rank].first_fault_ns for rank in culprit.ranks)
    return min((t for t in times if t > 0), default=math.inf)


def _through(round: StageRound, s: RankState) -> bool:
    """Return whether a rank gave its result and is still well: it may die or raise after that."""
    well = s.contact == "ok" and s.state in ("running", "uninterruptible") and s.failed is None
    return well and s.rank in round.results


def _fault(round: StageRound, s: RankState) -> tuple[Cause | None, bool]:
    """Return a rank's fault (None: no fault), and whether no other rank can have caused it."""
    if s.state in ("dead", "zombie"):
        return "dead", not (s.sigterm or (s.waiting and s.signal == signal.SIGABRT))
    if s.state == "stopped":
        return "stopped", True
    if s.failed is not None:
        return "raised", not (s.sigterm or s.waiting)
    if s.state == "uninterruptible" and round.reason == "deadline":
        return "uninterruptible", True
    return None, False


def _lost(round: StageRound) -> list[Culprit]:
    """Return the culprits among guards that no longer speak: whole nodes, then single guards."""
    nodes = by_node(round.states.values())
    home = node_of(round.states[0]) if 0 in round.states else None
    parted = {
        node
        for node, members in nodes.items()
        if node != home and any(s.contact == "gave-up" for s in members)
    }
    gone = {
        node: members
        for node, members in nodes.items()
        if node != home
        and (node in parted or all(s.contact in ("silent", "closed") for s in members))
    }
    silent = all(s.contact in ("silent", "gave-up") for m in gone.values() for s in m)
    # All other nodes fell silent: what they share is the root's own link.
    all_silent = silent and bool(gone) and nodes.keys() - gone.keys() == {home}
    if all_silent and len(gone) > 1:
        at_home = tuple(sorted(s.rank for s in nodes[home])) if home is not None else ()
        return [Culprit("link-cut", at_home, round.stage)]
    found = []
    for node, members in nodes.items():
        ranks = tuple(sorted(s.rank for s in members))
        if node in parted:
            found.append(Culprit("lost-each-other", ranks, round.stage, certain=False))
        elif node in gone:
            closed = all(s.contact == "closed" for s in members)
            cause: Cause = "node-lost" if closed else "link-cut"
            # Between two nodes, either may have cut the link.
            found.append(Culprit(cause, ranks, round.stage, certain=not all_silent))
        else:
            found += [
                Culprit("guard-lost", (s.rank,), _stage(round, s))
                for s in members
                if s.contact in ("silent", "closed", "gave-up")
            ]
    return found


def _nobody_could_come(round: StageRound, never: tuple[int, ...]) -> bool:
    """Return whether rank 0 has not published its address: once it has, it waits for the others."""
    if round.stage != JOIN or not never or len(never) != len(round.states) - 1:
        return False
    root = round.states[0]
    return _fault(round, root)[0] is not None or (round.reason == "deadline" and not root.waiting)


def _no_address(round: StageRound, root: RankState) -> list[Culprit]:
    """Return why rank 0 published nothing: it is stuck only if it did not try.

    Otherwise the store may be slow, or the import of torch.
    """
    cause = _fault(round, root)[0]
    if cause is not None:
        return [Culprit(cause, (0,), JOIN)]
    if root.step == PUBLISHING:
        return [Culprit("no-address", (), JOIN)]
    return [Culprit("no-progress", (0,), _stage(round, root))]


def _unexplained(
    round: StageRound,
    came: Mapping[int, RankState],
    suffered: Mapping[int, Cause],
    never: tuple[int, ...],
) -> list[Culprit]:
    """Return the culprits of a round in which no rank has a fault of its own."""
    if never or round.reason != "deadline":
        return _absent(round, never)
    stuck = _stuck(round, {r: s for r, s in came.items() if r not in suffered})
    if stuck:
        return stuck
    if len(suffered) == 1:
        # It left the collective in which the others still wait for it.
        ((rank, cause),) = suffered.items()
        if not came[rank].sigterm:
            return [Culprit(cause, (rank,), _stage(round, came[rank]), certain=False)]
    return [Culprit("all-wait", (), round.stage)] if came else []


def _absent(round: StageRound, never: Sequence[int]) -> list[Culprit]:
    """Return the culprits among the ranks that never came, by what is known of them."""
    unreached = tuple(rank for rank in never if round.states[rank].unreached)
    over = round.reason == "deadline" or bool(round.limits)
    if not over and round.reason != "terminated" and len(unreached) < len(never):
        return []
    came = [s for s in round.states.values() if s.contact != "never"]
    ended = _never_joined(came, [rank for rank in never if rank not in unreached])
    missing = tuple(rank for rank in never if rank not in (*unreached, *ended))
    causes: list[tuple[Cause, tuple[int, ...], bool]] = [
        ("unreachable-root", unreached, False),
        ("never-joined", ended, False),
        ("never-came", missing if over else (), True),
    ]
    return [Culprit(cause, ranks, JOIN, certain=sure) for cause, ranks, sure in causes if ranks]


def _never_joined(came: Iterable[RankState], never: Sequence[int]) -> tuple[int, ...]:
    """Return the ranks of `never` whose launcher sent SIGTERM to other ranks of their host.

    Guards find the root within a moment of their start: such a rank died before it had a guard.
    A signal from another process says nothing.
    """
    missing: set[int] = set()
    for s in came:
        if s.sigterm and s.launcher and s.sigterm_by == s.launcher_pid:
            first = s.rank - s.local_rank
            missing |= set(range(first, first + s.local_world)) & set(never)
    return tuple(sorted(missing))


def _raised_the_same(round: StageRound, states: Collection[RankState]) -> bool:
    """Return whether all raised the same text, and all inside a collective or all outside.

    They reject the same request, or lack the same thing. Ranks that a fault tore down raise
    different texts: they name different peers.
    """
    seen = {(s.failed, *_fault(round, s)) for s in states}
    return len(states) > 1 and len(seen) == 1 and all(cause == "raised" for _, cause, _ in seen)


def _stuck(round: StageRound, came: Mapping[int, RankState]) -> list[Culprit]:
    """Return the ranks that wait for no rank and have come least far.

    Empty if a waiting rank is further behind: it waits for data that got lost on the way, and no
    evidence shows which rank lost it.
    """
    own = [s for s in came.values() if not s.waiting]
    if not own:
        return []
    least = min(s.progress for s in own)
    if any(s.waiting and s.progress < least for s in came.values()):
        return []
    return [Culprit("no-progress", (s.rank,), _stage(round, s)) for s in own if s.progress == least]


def _stage(round: StageRound, s: RankState) -> str:
    """Return the stage in which a rank stands: after an earlier stage's result, the current one."""
    return round.stage if s.published or not s.stage else s.stage


class Motion:
    """Notes when each rank last made progress, and excuses culprits that may only be slow."""

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
        """Return whether any rank moved within _LATELY."""
        return self._youngest(self._seen) < _LATELY

    def excuse(self, found: Sequence[Culprit]) -> list[Culprit]:
        """Return `found` without culprits that may only be slow."""
        return [culprit for culprit in found if not self._only_slow(culprit)]

    def _only_slow(self, culprit: Culprit) -> bool:
        if culprit.cause == "all-wait":
            return self.goes_on()
        stays = [self._stays[rank][1] for rank in culprit.ranks if rank in self._stays]
        usual = min(_LATELY, max([_JUST_NOW, *(1.5 * stay for stay in stays)]))
        return culprit.cause == "no-progress" and self._youngest(culprit.ranks) < usual

    def _youngest(self, ranks: Iterable[int]) -> float:
        """Return the seconds since any of the ranks last moved."""
        moves = [self._seen[rank][1] for rank in ranks if rank in self._seen]
        return self._clock() - max(moves, default=-math.inf)
