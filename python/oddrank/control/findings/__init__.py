"""Findings that all commands with ranks share: a rank died, stopped, raised, never came.

One function per cause, the only places with these sentences: here those about a single rank.
"""

import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from oddrank.control.culprits import Culprit
from oddrank.control.findings import coming, several
from oddrank.control.findings.several import evidence, host_of, there
from oddrank.control.stages import JOIN, RunState
from oddrank.finding import Condition, Confidence, Finding

if TYPE_CHECKING:
    from oddrank.control.root import StageRound

ended_early = several.ended_early
part_failed = several.part_failed
stage_failed = several.stage_failed
wrong_local_rank = coming.wrong_local_rank

_OOM = "dmesg -T | grep -i 'killed process'"
_PARTS = "oddrank doctor; dmesg -T | tail"


def of_round(round: "StageRound", found: Sequence[Culprit], run: RunState) -> list[Finding]:
    """Returns the findings of a round that was not completed."""
    some_never_came = any(culprit.cause == "never-came" for culprit in found)
    excuse = coming.cannot_come(round) if some_never_came else None
    told = [
        _CAUSES[culprit.cause](culprit, run)
        for culprit in found
        if culprit.cause != "other-world"  # each claim is a finding, below
        and not (culprit.cause == "never-came" and excuse)
    ]
    return [*told, *([excuse] if excuse else [])] + [
        coming.other_world(c) if c.other_world else coming.claimed_twice(c) for c in round.odd
    ]


def killed(culprit: Culprit, run: RunState) -> Finding:
    number: int = run.states[culprit.ranks[0]].signal or 0
    advices: dict[int, str] = {
        signal.SIGKILL: _OOM,
        signal.SIGSEGV: "ulimit -c unlimited; run again and look at the core with gdb",
        signal.SIGBUS: "df -h /dev/shm",
    }
    advice = there(host_of(culprit, run), advices[number]) if number in advices else ()
    return _finding("dead", culprit, run, f"killed by {_signal_name(number)} in", advice)


def exited(culprit: Culprit, run: RunState) -> Finding:
    code = run.states[culprit.ranks[0]].exit_code
    advice = (
        "its last words: torchrun --redirects 3 --log-dir DIR, or srun --output %t.log",
        *there(host_of(culprit, run), "strace -f -k -e trace=exit_group COMMAND", _PARTS),
    )
    return _finding("dead", culprit, run, f"exited with code {code} by itself in", advice)


def ended(culprit: Culprit, run: RunState) -> Finding:
    how = "ended suddenly (see its launcher's output for how) in"
    return _finding("dead", culprit, run, how, there(host_of(culprit, run), _OOM))


def stopped(culprit: Culprit, run: RunState) -> Finding:
    return _finding(
        "stuck",
        culprit,
        run,
        "stopped in",
        ("what stopped it? a debugger, kill -STOP, a suspended job, a frozen container",),
    )


def raised(culprit: Culprit, run: RunState) -> Finding:
    text = run.states[culprit.ranks[0]].failed or ""
    again = "run it there alone: does it raise again?"
    if culprit.stage == JOIN:  # it could not open torch's store
        again = "ss -ltnp | grep $MASTER_PORT: does another process have the port?"
    advice = there(host_of(culprit, run), again, _PARTS)
    return _finding("broken", culprit, run, f"raised {text[:300]} in", advice)


def uninterruptible(culprit: Culprit, run: RunState) -> Finding:
    where = run.states[culprit.ranks[0]].wchan or "not readable"
    how = f"inside the kernel (D state, {where}) in"
    found = _finding("stuck", culprit, run, how, there(host_of(culprit, run), "dmesg -T | tail"))
    return replace(found, drains_node=True)


def no_progress(culprit: Culprit, run: RunState) -> Finding:
    state = run.states[culprit.ranks[0]]
    step = f"after step {state.step!r} of" if state.step else "in"
    dump = there(host_of(culprit, run), "while it hangs: py-spy dump --pid PID")
    advice = ("again with a longer --deadline", *dump)
    return _finding("stuck", culprit, run, f"no progress {step}", advice)


def guard_lost(culprit: Culprit, run: RunState) -> Finding:
    how = "ended" if run.states[culprit.ranks[0]].contact == "closed" else "fell silent"
    advice = there(host_of(culprit, run), _OOM)
    return _finding("broken", culprit, run, f"its guard process {how} in", advice)


def _finding(
    condition: Condition, culprit: Culprit, run: RunState, how: str, advice: tuple[str, ...]
) -> Finding:
    who = run.who(culprit.ranks)
    if culprit.cause == "no-progress":
        sure = Confidence("medium", "it is behind and waits for no rank; slow looks the same")
    elif culprit.certain:
        sure = Confidence("high", "its guard saw it")
    else:
        sure = Confidence("medium", "it alone left the collective, and nothing else explains why")
    return Finding(
        condition=condition,
        who=who,
        cause=culprit.cause,
        what=f"{who} {who.is_or_are} {condition}: {how} stage {culprit.stage}",
        stage=culprit.stage,
        evidence=evidence(culprit, run),
        confidence=sure,
        next=advice,
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


_CAUSES: dict[str, Callable[[Culprit, RunState], Finding]] = {
    "killed": killed,
    "exited": exited,
    "ended": ended,
    "stopped": stopped,
    "raised": raised,
    "uninterruptible": uninterruptible,
    "no-progress": no_progress,
    "node-lost": several.node,
    "link-cut": several.node,
    "guard-lost": guard_lost,
    "all-raised": several.all_raised,
    "all-wait": several.all_wait,
    "no-address": coming.no_address,
    "never-came": coming.never_came,
    "never-joined": coming.never_joined,
    "unreachable-root": coming.unreachable_root,
    "lost-each-other": several.lost_each_other,
    "launcher-gone": several.launcher_gone,
}
