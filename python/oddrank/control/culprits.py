"""Who is to blame when a round did not come to its end: pure, from what the guards reported.

Progress order and wait-for, never a vote: whoever a waiting rank waits for, and who waits for
nobody, is the culprit. A rank that was torn down because of another is a victim and not named.
Nothing here makes sentences: oddrank.control.findings does.
"""

import math
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from oddrank.control.nodes import by_node, node_of

if TYPE_CHECKING:
    from oddrank.control.root import RankState, Round

JOIN = "join"
# Rank 0's step in join until its address is where the others look; then it waits for them.
PUBLISHING = "publish the address"

Cause = Literal[
    "never-came",  # no word from the rank's guard, while rank 0's address was published
    "killed",  # ended by a signal
    "exited",  # ended by itself before it was allowed to
    "ended",  # by a signal or by _exit(): its launcher asked first, and the kernel tells only once
    "stopped",  # SIGSTOP, a debugger, a frozen container
    "raised",  # an exception
    "uninterruptible",  # D state: inside the kernel, usually a file system or a driver
    "no-progress",  # runs or sleeps, waits for no other rank, and comes no further
    "node-lost",  # every connection of a node was closed: the node, or all of its processes, ended
    "link-cut",  # every guard of a node fell silent: the node stopped, or the network to it
    "guard-lost",  # one guard fell silent or ended while its neighbours go on
    "no-address",  # nobody: rank 0's address did not get to where the others look
    "all-raised",  # nobody: every rank raised the same, so that the ranks do not differ
    "all-wait",  # nobody: every rank that is not through waits for the others
]


@dataclass(frozen=True)
class Culprit:
    """`ranks` (none where nobody can be named) and why; `victims`: the others without a result."""

    cause: Cause
    ranks: tuple[int, ...]
    stage: str
    victims: tuple[int, ...] = ()
    certain: bool = True


def culprits(round: "Round") -> list[Culprit]:
    """Who kept this round from its end, in the order of their faults, then of ranks.

    Empty: nobody, or nobody yet (after a fault that has only shown its victims so far; a later
    round that ends for the reason "deadline" always names someone, or all-wait).
    """
    if round.reason == "complete":  # what happened since then shows in the next round
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
    if _nobody_could_come(round, never):
        sure = [c for c in sure if c.ranks == (0,)] or _no_address(round, states[0])
    elif not sure:
        suffered = {rank: cause for rank, (cause, _) in faults.items() if cause is not None}
        sure = _unexplained(round, came, suffered, never)
    elif never and round.reason == "deadline":
        sure.append(Culprit("never-came", never, JOIN))
    named = {rank for culprit in sure for rank in culprit.ranks}
    victims = tuple(sorted(set(unfinished) - named))
    return [
        Culprit(c.cause, c.ranks, c.stage, victims, c.certain)
        for c in sorted(sure, key=lambda c: (_first_fault(states, c), c.ranks, c.cause))
    ]


def torn_down(round: "Round") -> bool:
    """Whether a launcher has ended every rank that is not through: nobody is left to be waited for.

    mpirun leaves them one second between SIGTERM and SIGKILL.
    """
    unfinished = [s for s in round.states.values() if not _through(round, s)]
    gone = all(s.state in ("dead", "zombie") for s in unfinished)
    return gone and any(s.sigterm for s in unfinished)


def _first_fault(states: Mapping[int, "RankState"], culprit: Culprit) -> float:
    """When it began, on the judge's clock; at the end where nothing happened at a moment."""
    times = (states[rank].first_fault_ns for rank in culprit.ranks)
    return min((t for t in times if t > 0), default=math.inf)


def _through(round: "Round", s: "RankState") -> bool:
    """Has given its result and still stands there: a rank may also die after its result."""
    well = s.contact == "ok" and s.state in ("running", "uninterruptible") and s.failed is None
    return well and s.rank in round.results


def _fault(round: "Round", s: "RankState") -> tuple[Cause | None, bool]:
    """What is wrong with one rank, and whether by its own fault: others can tear it down."""
    if s.state in ("dead", "zombie"):
        if s.signal is None:
            return "ended" if s.exit_code is None else "exited", not s.sigterm
        return "killed", not (s.sigterm or (s.waiting and s.signal == signal.SIGABRT))
    if s.state == "stopped":
        return "stopped", True
    if s.failed is not None:
        return "raised", not (s.sigterm or s.waiting)
    if s.state == "uninterruptible" and round.reason == "deadline":
        return "uninterruptible", True
    return None, False


def _lost(round: "Round") -> list[Culprit]:
    """Guards that no longer speak: whole nodes first, then single guards."""
    nodes = by_node(round.states.values())
    home = node_of(round.states[0]) if 0 in round.states else None
    gone = {
        node: members
        for node, members in nodes.items()
        if node != home and all(s.contact in ("silent", "closed") for s in members)
    }
    mute = all(s.contact == "silent" for members in gone.values() for s in members)
    # The root hears none of the others: its own link is the one thing that they share.
    all_mute = mute and bool(gone) and len(gone) == len(nodes) - 1
    if all_mute and len(gone) > 1:
        at_home = tuple(sorted(s.rank for s in nodes[home])) if home is not None else ()
        return [Culprit("link-cut", at_home, round.stage)]
    found = []
    for node, members in nodes.items():
        if node in gone:
            closed = all(s.contact == "closed" for s in members)
            ranks = tuple(sorted(s.rank for s in members))
            cause: Cause = "node-lost" if closed else "link-cut"
            # Of two nodes either may have cut the link between them.
            found.append(Culprit(cause, ranks, round.stage, certain=not all_mute))
        else:
            found += [
                Culprit("guard-lost", (s.rank,), _stage(round, s))
                for s in members
                if s.contact in ("silent", "closed")
            ]
    return found


def _nobody_could_come(round: "Round", never: tuple[int, ...]) -> bool:
    """Rank 0 did not get as far as publishing its address, after which it waits for the others."""
    if round.stage != JOIN or not never or len(never) != len(round.states) - 1:
        return False
    root = round.states[0]
    return _fault(round, root)[0] is not None or (round.reason == "deadline" and not root.waiting)


def _no_address(round: "Round", root: "RankState") -> list[Culprit]:
    """The store may be slow, or the import of torch: rank 0 is stuck only if it did not try."""
    cause = _fault(round, root)[0]
    if cause is not None:
        return [Culprit(cause, (0,), JOIN)]
    if root.step == PUBLISHING:
        return [Culprit("no-address", (), JOIN)]
    return [Culprit("no-progress", (0,), _stage(round, root))]


def _unexplained(
    round: "Round",
    came: Mapping[int, "RankState"],
    suffered: Mapping[int, Cause],
    never: tuple[int, ...],
) -> list[Culprit]:
    """No rank with a fault of its own: who is waited for, and waits for nobody?"""
    if len(suffered) == len(round.states) and _raised_the_same(came.values()):
        return [Culprit("all-raised", (), round.stage)]
    if round.reason != "deadline":
        return []
    if never:
        return [Culprit("never-came", never, JOIN)]
    stuck = _stuck(round, {r: s for r, s in came.items() if r not in suffered})
    if stuck:
        return stuck
    if len(suffered) == 1:
        # It left the collective, the others still stand in it: they wait for it and it for nobody.
        ((rank, cause),) = suffered.items()
        if not came[rank].sigterm:
            return [Culprit(cause, (rank,), _stage(round, came[rank]), certain=False)]
    return [Culprit("all-wait", (), round.stage)] if came else []


def _raised_the_same(states: Iterable["RankState"]) -> bool:
    """A collective refuses its arguments everywhere; torn down, ranks name different peers."""
    texts = [s.failed for s in states]
    return len(texts) > 1 and texts[0] is not None and texts.count(texts[0]) == len(texts)


def _stuck(round: "Round", came: Mapping[int, "RankState"]) -> list[Culprit]:
    """The ranks that wait for nobody and have come least far.

    None where a waiting rank is further behind: it does not wait for them, but for data that got
    lost on the way, and who lost it cannot be seen from here.
    """
    own = [s for s in came.values() if not s.waiting]
    if not own:
        return []
    least = min(s.progress for s in own)
    if any(s.waiting and s.progress < least for s in came.values()):
        return []
    return [Culprit("no-progress", (s.rank,), _stage(round, s)) for s in own if s.progress == least]


def _stage(round: "Round", s: "RankState") -> str:
    """Where it stands: whoever has given its result for an earlier stage is due in this one."""
    return round.stage if s.published or not s.stage else s.stage
