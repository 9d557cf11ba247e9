"""The causes of single ranks: one function each."""

import signal

from oddrank.control.culprits import JOIN, Culprit
from oddrank.control.findings.words import evidence, there
from oddrank.control.stages import Rounds
from oddrank.finding import Condition, Confidence, Finding

_OOM = "dmesg -T | grep -i 'killed process'"
_PARTS = "oddrank doctor; dmesg -T | tail"


def killed(culprit: Culprit, rounds: Rounds) -> Finding:
    number: int = rounds.states[culprit.ranks[0]].signal or 0
    advices: dict[int, str] = {
        signal.SIGKILL: _OOM,
        signal.SIGSEGV: "ulimit -c unlimited; run again and look at the core with gdb",
        signal.SIGBUS: "df -h /dev/shm",
    }
    advice = there(culprit, rounds, advices[number]) if number in advices else ()
    return _finding("dead", culprit, rounds, f"killed by {_signal_name(number)} in", advice)


def exited(culprit: Culprit, rounds: Rounds) -> Finding:
    code = rounds.states[culprit.ranks[0]].exit_code
    advice = (
        "its last words: torchrun --redirects 3 --log-dir DIR, or srun --output %t.log",
        *there(culprit, rounds, "strace -f -k -e trace=exit_group COMMAND: who ends it", _PARTS),
    )
    return _finding("dead", culprit, rounds, f"exited with code {code} by itself in", advice)


def ended(culprit: Culprit, rounds: Rounds) -> Finding:
    how = "ended suddenly (how: see its launcher's output) in"
    return _finding("dead", culprit, rounds, how, there(culprit, rounds, _OOM))


def stopped(culprit: Culprit, rounds: Rounds) -> Finding:
    return _finding(
        "stuck",
        culprit,
        rounds,
        "stopped in",
        ("look for who stopped it: a debugger, kill -STOP, a suspended job, a frozen container",),
    )


def raised(culprit: Culprit, rounds: Rounds) -> Finding:
    text = rounds.states[culprit.ranks[0]].failed or ""
    again = "run it there alone: does it raise again?"
    if culprit.stage == JOIN:  # it could not open torch's store
        again = "ss -ltnp | grep $MASTER_PORT: does another process have the port?"
    advice = there(culprit, rounds, again, _PARTS)
    return _finding("broken", culprit, rounds, f"raised {text[:300]} in", advice)


def uninterruptible(culprit: Culprit, rounds: Rounds) -> Finding:
    where = rounds.states[culprit.ranks[0]].wchan or "not readable"
    how = f"inside the kernel (D state, {where}) in"
    return _finding("stuck", culprit, rounds, how, there(culprit, rounds, "dmesg -T | tail"))


def no_progress(culprit: Culprit, rounds: Rounds) -> Finding:
    state = rounds.states[culprit.ranks[0]]
    step = f"after step {state.step!r} of" if state.step else "in"
    dump = there(culprit, rounds, "while it hangs: py-spy dump --pid PID")
    advice = ("again with a longer --deadline", *dump)
    return _finding("stuck", culprit, rounds, f"no progress {step}", advice)


def guard_lost(culprit: Culprit, rounds: Rounds) -> Finding:
    how = "ended" if rounds.states[culprit.ranks[0]].contact == "closed" else "fell silent"
    advice = there(culprit, rounds, _OOM)
    return _finding("broken", culprit, rounds, f"its guard process {how} in", advice)


def _finding(
    condition: Condition, culprit: Culprit, rounds: Rounds, how: str, advice: tuple[str, ...]
) -> Finding:
    who = rounds.who(culprit.ranks)
    if culprit.cause == "no-progress":
        sure = Confidence("medium", "it waits for nobody and is behind; slow looks the same")
    elif culprit.certain:
        sure = Confidence("high", "its guard saw it")
    else:
        sure = Confidence("medium", "it alone left the collective, and nothing else explains why")
    return Finding(
        condition=condition,
        who=who,
        cause=culprit.cause,
        what=f"{who} is {condition}: {how} stage {culprit.stage}",
        stage=culprit.stage,
        evidence=evidence(culprit, rounds),
        confidence=sure,
        next=advice,
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
