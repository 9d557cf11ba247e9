"""Findings that all commands with ranks share: a rank died, stopped, raised, never came.

One function per cause; the only place with these sentences.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from oddrank.control.culprits import Culprit
from oddrank.control.findings import coming, several, single
from oddrank.control.stages import RunState
from oddrank.finding import Finding

if TYPE_CHECKING:
    from oddrank.control.root import StageRound

ended_early = several.ended_early
part_failed = several.part_failed
stage_failed = several.stage_failed
wrong_local_rank = coming.wrong_local_rank


def of_round(round: "StageRound", found: Sequence[Culprit], run: RunState) -> list[Finding]:
    """Returns the findings of a round that was not completed."""
    some_never_came = any(culprit.cause == "never-came" for culprit in found)
    excuse = coming.cannot_come(round) if some_never_came else None
    came = {claim.rank for claim in round.odd if claim.other_world}
    told = []
    for culprit in found:
        missing = tuple(rank for rank in culprit.ranks if rank not in came)
        if culprit.cause == "other-world":
            continue  # each claim is a finding, below
        if culprit.cause != "never-came":
            told.append(_CAUSES[culprit.cause](culprit, run))
        elif missing and not excuse:
            told.append(coming.never_came(replace(culprit, ranks=missing), run))
    if excuse:
        told.append(excuse)
    return told + [
        coming.other_world(c) if c.other_world else coming.claimed_twice(c) for c in round.odd
    ]


_CAUSES: dict[str, Callable[[Culprit, RunState], Finding]] = {
    "killed": single.killed,
    "exited": single.exited,
    "ended": single.ended,
    "stopped": single.stopped,
    "raised": single.raised,
    "uninterruptible": single.uninterruptible,
    "no-progress": single.no_progress,
    "node-lost": several.node,
    "link-cut": several.node,
    "guard-lost": single.guard_lost,
    "all-raised": several.all_raised,
    "all-wait": several.all_wait,
    "no-address": coming.no_address,
    "never-joined": coming.never_joined,
    "unreachable-root": coming.unreachable_root,
    "lost-each-other": several.lost_each_other,
    "launcher-gone": several.launcher_gone,
}
