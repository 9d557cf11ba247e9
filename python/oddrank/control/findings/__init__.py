"""Findings that all commands with ranks share: a rank died, stopped, raised, never came.

Here those about a single rank: their sentences and next steps are those of triage's table.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from oddrank.control.culprits import Culprit
from oddrank.control.findings import coming, several
from oddrank.control.findings.several import WHILE_IT_HANGS
from oddrank.control.stages import JOIN, RunState
from oddrank.finding import Finding
from oddrank.triage import causes
from oddrank.triage.facts import Death, Frame, Process, Source
from oddrank.triage.findings import finding
from oddrank.triage.leaves import kernel_class
from oddrank.triage.next_steps import next_steps
from oddrank.triage.suspects import Suspect
from oddrank.triage.view import View

if TYPE_CHECKING:
    from oddrank.control.stages import RankState, StageRound

ended_early = several.ended_early
part_failed = several.part_failed
stage_failed = several.stage_failed
wrong_local_rank = coming.wrong_local_rank

# What the hub sees of a single rank -> its row of the table.
_ROWS = {
    "dead": causes.DEAD,
    "raised": causes.DEAD,
    "stopped": causes.HOST_STOPPED,
    "uninterruptible": causes.HOST_STUCK,
    "no-progress": causes.HOST_STUCK,
}
_NO_STORE = "ss -ltnp | grep $MASTER_PORT: does another process have the port?  (on {host})"
# What to try besides the next steps of triage.
_BESIDES = {
    "dead": (
        "its last words: torchrun --redirects 3 --log-dir DIR, or srun --output %t.log",
        "strace -f -k -e trace=exit_group COMMAND  (on {host}, if it ended by itself)",
    ),
    "raised": (
        "run it there alone: does it raise again?  (on {host})",
        "oddrank doctor; dmesg -T | tail  (on {host})",
    ),
    "uninterruptible": ("dmesg -T | tail  (on {host})",),
    "no-progress": ("again with a longer --deadline", f"{WHILE_IT_HANGS}  (on {{host}})"),
}


def of_round(round: "StageRound", found: Sequence[Culprit], run: RunState) -> list[Finding]:
    """Returns the findings of a round that was not completed."""
    some_never_came = any(culprit.cause == "never-came" for culprit in found)
    excuse = coming.cannot_come(round) if some_never_came else None
    told = [
        of_rank(culprit, run) if culprit.cause in _ROWS else _CAUSES[culprit.cause](culprit, run)
        for culprit in found
        if culprit.cause != "other-world"  # each claim is a finding, below
        and not (culprit.cause == "never-came" and excuse)
    ]
    return [*told, *([excuse] if excuse else []), *map(coming.turned_away, round.odd)]


def of_rank(culprit: Culprit, run: RunState) -> Finding:
    """A rank died, raised, or stands still: by its row of triage's table of causes."""
    s, victims = run.states[culprit.ranks[0]], (run.states[r] for r in culprit.victims)
    waiting = [v for v in victims if v.waiting and not v.failed and v.state == "running"]
    suspect = Suspect(
        _ROWS[culprit.cause],
        (Process(s.rank, s.host, s.pid),),
        rule="held",
        certainty=2,
        waiting=tuple(Process(one.rank) for one in waiting),
        who=run.who(culprit.ranks),
        stage=culprit.stage,
    )
    if suspect.cause is causes.DEAD:
        rule, certainty = ("guard-saw-it", 2) if culprit.certain else ("left-alone", 1)
        death = _death(culprit, s)
        suspect = replace(suspect, rule=rule, certainty=certainty, death=death)
    elif culprit.cause == "no-progress":
        place = f"step {s.step!r} of stage {culprit.stage}" if s.step else f"stage {culprit.stage}"
        suspect = replace(suspect, rule="behind", certainty=1, leaf=Frame(place), stage="")
    elif culprit.cause == "uninterruptible" and s.wchan:
        leaf = Frame(s.wchan, "kernel", None, True)
        suspect = replace(suspect, leaf=leaf, leaf_class=kernel_class(s.wchan))
    besides = [step.format(host=s.host) for step in _BESIDES.get(culprit.cause, ())]
    if culprit.stage == JOIN and culprit.cause == "raised":  # it could not open torch's store
        besides[0] = _NO_STORE.format(host=s.host)
    return replace(
        finding(suspect, [*next_steps(suspect, View()), *besides]),
        stage=culprit.stage,
        evidence=several.evidence(culprit, run),
    )


def _death(culprit: Culprit, s: "RankState") -> Death:
    process, source = Process(s.rank), Source(several.SOURCE)
    if culprit.cause == "raised":
        site = (Frame(s.raised_at.rpartition("/")[2]),) if s.raised_at else ()
        return Death(process, "exception", source, text=s.failed or "", site=site)
    if s.signal is not None:
        return Death(process, "signal", source, signal=s.signal)
    unseen = "nobody saw how: killed, crashed, or os._exit()" if s.exit_code is None else ""
    return Death(process, "exit", source, code=s.exit_code, text=unseen)


# The other causes have no row in triage's table.
_CAUSES: dict[str, Callable[[Culprit, RunState], Finding]] = {
    "node-lost": several.node,
    "link-cut": several.node,
    "guard-lost": several.guard_lost,
    "all-raised": several.all_raised,
    "all-wait": several.all_wait,
    "no-address": coming.no_address,
    "never-came": coming.never_came,
    "never-joined": coming.never_joined,
    "unreachable-root": coming.unreachable_root,
    "lost-each-other": several.lost_each_other,
    "launcher-gone": several.launcher_gone,
}
