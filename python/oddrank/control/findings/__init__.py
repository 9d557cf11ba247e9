"""Findings that all commands with ranks share: a rank died, stopped, raised, never came.

The only places with these sentences: here those about a single rank.
"""

import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from oddrank.control.culprits import Culprit
from oddrank.control.findings import coming, several
from oddrank.control.findings.several import OOM, WHILE_IT_HANGS, of_culprit, there
from oddrank.control.stages import JOIN, RunState
from oddrank.finding import Condition, Confidence, Finding

if TYPE_CHECKING:
    from oddrank.control.stages import RankState, StageRound

ended_early = several.ended_early
part_failed = several.part_failed
stage_failed = several.stage_failed
wrong_local_rank = coming.wrong_local_rank

_PARTS = "oddrank doctor; dmesg -T | tail"
_EXITS = "strace -f -k -e trace=exit_group COMMAND"
# Signal that killed a rank -> what to type on its host.
_KILLED: dict[int, tuple[str, ...]] = {
    signal.SIGKILL: (OOM,),
    signal.SIGSEGV: ("ulimit -c unlimited; run again and look at the core with gdb",),
    signal.SIGBUS: ("df -h /dev/shm",),
}
# Cause -> advice for no particular host.
_ANYWHERE = {
    "exited": "its last words: torchrun --redirects 3 --log-dir DIR, or srun --output %t.log",
    "stopped": "what stopped it? a debugger, kill -STOP, a suspended job, a frozen container",
    "no-progress": "again with a longer --deadline",
}


def of_round(round: "StageRound", found: Sequence[Culprit], run: RunState) -> list[Finding]:
    """Returns the findings of a round that was not completed."""
    some_never_came = any(culprit.cause == "never-came" for culprit in found)
    excuse = coming.cannot_come(round) if some_never_came else None
    told = [
        _CAUSES.get(culprit.cause, of_rank)(culprit, run)
        for culprit in found
        if culprit.cause != "other-world"  # each claim is a finding, below
        and not (culprit.cause == "never-came" and excuse)
    ]
    return [*told, *([excuse] if excuse else []), *map(coming.turned_away, round.odd)]


def of_rank(culprit: Culprit, run: RunState) -> Finding:
    """A rank died, raised, or stands still."""
    state, who = run.states[culprit.ranks[0]], run.who(culprit.ranks)
    condition, how, commands = _how(culprit, state)
    general = [_ANYWHERE[culprit.cause]] if culprit.cause in _ANYWHERE else []
    return of_culprit(
        culprit,
        run,
        f"{who} {who.is_or_are} {condition}: {how} stage {culprit.stage}",
        _sure(culprit),
        (*general, *there(state.host, *commands)),
        condition=condition,
        who=who,
        drains_node=culprit.cause == "uninterruptible",
    )


def _sure(culprit: Culprit) -> Confidence:
    if culprit.cause == "no-progress":
        return Confidence("medium", "it is behind and waits for no rank; slow looks the same")
    if culprit.certain:
        return Confidence("high", "its guard saw it")
    return Confidence("medium", "it alone left the collective, and nothing else explains why")


def _how(culprit: Culprit, s: "RankState") -> tuple[Condition, str, tuple[str, ...]]:
    """Returns condition, what the rank did in or during its stage, and commands for its host."""
    again = "run it there alone: does it raise again?"
    if culprit.stage == JOIN:  # it could not open torch's store
        again = "ss -ltnp | grep $MASTER_PORT: does another process have the port?"
    number, code, raised = s.signal or 0, s.exit_code, (s.failed or "")[:300]
    silent = "ended" if s.contact == "closed" else "fell silent"
    step = f"after step {s.step!r} of" if s.step else "in"
    ways: dict[str, tuple[Condition, str, tuple[str, ...]]] = {
        "killed": ("dead", f"killed by {_signal_name(number)} in", _KILLED.get(number, ())),
        "exited": ("dead", f"exited with code {code} by itself in", (_EXITS, _PARTS)),
        "ended": ("dead", "ended suddenly (see its launcher's output for how) in", (OOM,)),
        "stopped": ("stuck", "stopped in", ()),
        "raised": ("broken", f"raised {raised} in", (again, _PARTS)),
        "uninterruptible": (
            "stuck",
            f"inside the kernel (D state, {s.wchan or 'not readable'}) in",
            ("dmesg -T | tail",),
        ),
        "guard-lost": ("broken", f"its guard process {silent} in", (OOM,)),
        "no-progress": ("stuck", f"no progress {step}", (WHILE_IT_HANGS,)),
    }
    return ways[culprit.cause]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# The other causes are those of a single rank.
_CAUSES: dict[str, Callable[[Culprit, RunState], Finding]] = {
    "node-lost": several.node,
    "link-cut": several.node,
    "all-raised": several.all_raised,
    "all-wait": several.all_wait,
    "no-address": coming.no_address,
    "never-came": coming.never_came,
    "never-joined": coming.never_joined,
    "unreachable-root": coming.unreachable_root,
    "lost-each-other": several.lost_each_other,
    "launcher-gone": several.launcher_gone,
}
