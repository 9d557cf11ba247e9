"""The causes that all commands with ranks share: a rank died, stopped, raised, never came.

One function a cause; the only place with these sentences.
"""

import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from oddrank.control.culprits import JOIN, Culprit
from oddrank.control.stages import Rounds
from oddrank.finding import Condition, Confidence, Evidence, Finding, Who, fold

if TYPE_CHECKING:
    from oddrank.control.root import OddClaim, Round

_SOURCE = "guard"
_OOM = "dmesg -T | grep -i 'killed process'"
_PARTS = "oddrank doctor; dmesg -T | tail"


def of_round(round: "Round", found: Sequence[Culprit], rounds: Rounds) -> list[Finding]:
    """The findings of a round that did not come to its end."""
    some_never_came = any(culprit.cause == "never-came" for culprit in found)
    excuse = _cannot_come(round) if some_never_came else None
    came = {claim.rank for claim in round.odd if claim.other_world}
    told = []
    for culprit in found:
        missing = tuple(rank for rank in culprit.ranks if rank not in came)
        if culprit.cause != "never-came":
            told.append(_CAUSES[culprit.cause](culprit, rounds))
        elif missing and not excuse:
            told.append(_never_came(replace(culprit, ranks=missing), rounds))
    if excuse:
        told.append(excuse)
    return told + [_other_world(c) if c.other_world else _claimed_twice(c) for c in round.odd]


def _cannot_come(round: "Round") -> Finding | None:
    """Why healthy ranks may look missing: they are then not named."""
    missing = [rank for rank, s in round.states.items() if s.contact == "never"]
    who = f"rank {fold(missing)} did not come"
    confidence = Confidence("medium", "healthy ranks could not have come either")
    if round.limits:
        return Finding(
            condition="unknown",
            who=Who("rank"),
            cause="open-files",
            what=f"{who}, and need not be missing: {round.limits}",
            stage="join",
            evidence=(Evidence(round.limits, "open-file limit"),),
            confidence=confidence,
            next=("ulimit -Hn", "ulimit -n $(ulimit -Hn)"),
        )
    if round.states[0].resolver_slow:
        text = f"the resolver of {round.states[0].host} does not answer within a second"
        return Finding(
            condition="unknown",
            who=Who("rank"),
            cause="resolver",
            what=f"{who}, and need not be missing: {text}; torch's store asks it",
            stage="join",
            evidence=(Evidence(text, "reverse DNS of its own address"),),
            confidence=confidence,
            next=("cat /etc/resolv.conf; time getent hosts $(hostname -i)",),
        )
    return None


def _claimed_twice(claim: "OddClaim") -> Finding:
    """Two processes with one rank."""
    return _mismatch(claim, "claimed-twice", "both came to rank 0", "RANK")


def _other_world(claim: "OddClaim") -> Finding:
    """It came, and was turned away: it counts other ranks than rank 0 does."""
    return _mismatch(claim, "other-world", "it said so itself", "WORLD_SIZE")


def _mismatch(claim: "OddClaim", cause: str, why: str, variable: str) -> Finding:
    return Finding(
        condition="mismatch",
        who=Who("rank"),
        cause=cause,
        what=claim.text,
        stage="join",
        evidence=(Evidence(claim.text, _SOURCE),),
        confidence=Confidence("high", why),
        next=(f"compare {variable} of the processes",),
    )


def _killed(culprit: Culprit, rounds: Rounds) -> Finding:
    number: int = rounds.states[culprit.ranks[0]].signal or 0
    advices: dict[int, str] = {
        signal.SIGKILL: _OOM,
        signal.SIGSEGV: "ulimit -c unlimited; run again and look at the core with gdb",
        signal.SIGBUS: "df -h /dev/shm",
    }
    advice = _there(culprit, rounds, advices[number]) if number in advices else ()
    return _finding("dead", culprit, rounds, f"killed by {_signal_name(number)} in", advice)


def _exited(culprit: Culprit, rounds: Rounds) -> Finding:
    code = rounds.states[culprit.ranks[0]].exit_code
    advice = (
        "its last words: torchrun --redirects 3 --log-dir DIR, or srun --output %t.log",
        *_there(culprit, rounds, "strace -f -k -e trace=exit_group COMMAND: who ends it", _PARTS),
    )
    return _finding("dead", culprit, rounds, f"exited with code {code} by itself in", advice)


def _ended(culprit: Culprit, rounds: Rounds) -> Finding:
    how = "ended suddenly (how: see its launcher's output) in"
    return _finding("dead", culprit, rounds, how, _there(culprit, rounds, _OOM))


def _stopped(culprit: Culprit, rounds: Rounds) -> Finding:
    return _finding(
        "stuck",
        culprit,
        rounds,
        "stopped in",
        ("look for who stopped it: a debugger, kill -STOP, a suspended job, a frozen container",),
    )


def _raised(culprit: Culprit, rounds: Rounds) -> Finding:
    text = rounds.states[culprit.ranks[0]].failed or ""
    again = "run it there alone: does it raise again?"
    if culprit.stage == JOIN:  # it could not open torch's store
        again = "ss -ltnp | grep $MASTER_PORT: does another process have the port?"
    advice = _there(culprit, rounds, again, _PARTS)
    return _finding("broken", culprit, rounds, f"raised {text[:300]} in", advice)


def _uninterruptible(culprit: Culprit, rounds: Rounds) -> Finding:
    where = rounds.states[culprit.ranks[0]].wchan or "not readable"
    how = f"inside the kernel (D state, {where}) in"
    return _finding("stuck", culprit, rounds, how, _there(culprit, rounds, "dmesg -T | tail"))


def _no_progress(culprit: Culprit, rounds: Rounds) -> Finding:
    state = rounds.states[culprit.ranks[0]]
    step = f"after step {state.step!r} of" if state.step else "in"
    dump = _there(culprit, rounds, "while it hangs: py-spy dump --pid PID")
    advice = ("again with a longer --deadline", *dump)
    return _finding("stuck", culprit, rounds, f"no progress {step}", advice)


def _never_came(culprit: Culprit, rounds: Rounds) -> Finding:
    who = rounds.who(culprit.ranks)
    alone = culprit.ranks == tuple(range(1, rounds.world))
    several = len(culprit.ranks) > 1
    heard = "nobody but rank 0 has" if alone else "have not" if several else "has not"
    they, their = ("they", "their") if several else ("it", "its")
    came = f"{rounds.world - len(culprit.ranks)} of {rounds.world} ranks came"
    loopback = _loopback(rounds)
    only = f"MASTER_ADDR {loopback} is reachable from {rounds.states[0].host} only"
    others = bool(loopback) and rounds.nodes > 1
    return Finding(
        condition="missing",
        who=who,
        cause=culprit.cause,
        what=f"{who} never came: {heard} been heard of by the end of stage {culprit.stage}"
        + (f"; {only}" if others else ""),
        stage=culprit.stage,
        evidence=(
            Evidence(came, _SOURCE),
            *([Evidence(only, "environment of rank 0")] if loopback else []),
        ),
        confidence=Confidence(
            "medium",
            f"{'nobody but rank 0 came' if alone else 'others found the way'};"
            f" {they} may only be slow to start",
        ),
        next=(
            f"{'were' if several else 'was'} {they} started?",
            _way_to_rank_0(rounds, several, loopback if others else ""),
            f"if {their} import of torch is slow: --deadline 300",
        ),
    )


def _loopback(rounds: Rounds) -> str:
    """MASTER_ADDR, where it keeps ranks of other hosts away: none of them came. Else ""."""
    address = rounds.master[0] if rounds.master else ""
    if address not in ("localhost", "::1") and not address.startswith("127."):
        return ""
    hosts = {state.host for state in rounds.states.values() if state.contact != "never"}
    return address if hosts == {rounds.states[0].host} else ""


def _way_to_rank_0(rounds: Rounds, several: bool, loopback: str) -> str:
    if loopback:
        return f"export MASTER_ADDR={rounds.states[0].host}  (on every host, instead of {loopback})"
    there = "their hosts" if several else "its host"
    host, port = rounds.master or ("MASTER_ADDR", "MASTER_PORT")
    return f"nc -zv {host} {port}  (on {there}: is rank 0's port reached?)"


def _node(culprit: Culprit, rounds: Rounds) -> Finding:
    """A whole node: its guards ended, or fell silent."""
    ended = culprit.cause == "node-lost"
    host = rounds.states[culprit.ranks[0]].host if culprit.ranks else None
    who = Who("node" if ended else "link", culprit.ranks, host)
    what = (
        f"{who} is dead: all of its processes ended in"
        if ended
        else f"{who} is broken: no word from the node, it stopped or its network is cut, since"
    )
    return Finding(
        condition="dead" if ended else "broken",
        who=who,
        cause=culprit.cause,
        what=f"{what} stage {culprit.stage}",
        stage=culprit.stage,
        evidence=_evidence(culprit, rounds),
        confidence=Confidence("high", "every guard of the node was lost, and no other")
        if culprit.certain
        else Confidence("low", "of two nodes that lose each other either may be the cause"),
        next=(f"ping {host or 'the node'}",),
    )


def _guard_lost(culprit: Culprit, rounds: Rounds) -> Finding:
    how = "ended" if rounds.states[culprit.ranks[0]].contact == "closed" else "fell silent"
    advice = _there(culprit, rounds, _OOM)
    return _finding("broken", culprit, rounds, f"its guard process {how} in", advice)


def _all_wait(culprit: Culprit, rounds: Rounds) -> Finding:
    waiting = fold(culprit.victims)
    return Finding(
        condition="unknown",
        who=Who("rank", ()),
        cause=culprit.cause,
        what=f"nobody can be named: ranks {waiting} wait for each other in stage {culprit.stage}",
        stage=culprit.stage,
        evidence=_evidence(culprit, rounds),
        confidence=Confidence("low", "no rank is behind the others without waiting itself"),
        next=(
            "if this stage only takes long: a longer --deadline",
            "run again; if it hangs again, test the network between the nodes",
        ),
    )


def _all_raised(culprit: Culprit, rounds: Rounds) -> Finding:
    text = (rounds.states[0].failed or "")[:300]
    return Finding(
        condition="unknown",
        who=Who("rank"),
        cause=culprit.cause,
        what=f"all {rounds.world} ranks raised {text} in stage {culprit.stage}: no rank is odd",
        stage=culprit.stage,
        evidence=_raised_at(rounds, 0) + _evidence(culprit, rounds),
        confidence=Confidence("high", "the ranks do not differ: what they were told cannot be"),
        next=("leave out what this stage measures, or report it with this output",),
    )


def ended_early(behind: Sequence[Culprit], rounds: Rounds) -> list[Finding]:
    """A signal ended the job while some ranks waited for the others: who did not is no culprit yet.

    behind: who would have been named at the deadline, had it come then.
    """
    behind = [one for one in behind if one.cause in ("no-progress", "uninterruptible")]
    ranks = sorted(rank for one in behind for rank in one.ranks)
    waited = [r for r, s in rounds.states.items() if r not in ranks and (s.waiting or s.published)]
    if not ranks or not waited:
        return []
    stage, who = behind[0].stage, rounds.who(ranks)
    were = "s {} were" if len(waited) > 1 else " {} was"
    return [
        Finding(
            condition="unknown",
            who=Who("rank"),
            cause="ended-early",
            what=f"rank{were.format(fold(waited))} waiting for the others in stage {stage} when"
            f" SIGTERM or SIGINT ended the job; {who} {'were' if len(ranks) > 1 else 'was'} not:"
            " look there first",
            stage=stage,
            evidence=_evidence(replace(behind[0], ranks=tuple(ranks)), rounds),
            confidence=Confidence("low", "the deadline had not come: it may only be slow"),
            next=(
                *_there(behind[0], rounds, "while it hangs: py-spy dump --pid PID"),
                "or let it run to its --deadline: who is stuck is named then",
            ),
        )
    ]


def wrong_local_rank(rounds: Rounds, rank: int, expected: int, twins: list[int]) -> Finding:
    """Two ranks of a host with one local rank: they would share a GPU."""
    who = rounds.who([rank])
    has = rounds.states[rank].local_rank
    return Finding(
        condition="different",
        who=who,
        cause="wrong-local-rank",
        what=f"{who} has the local rank of rank {fold(twins)}: {has} where {expected} is due",
        stage="join",
        evidence=(Evidence(f"rank {fold([rank, *twins])}: LOCAL_RANK={has}", "environment", has),),
        confidence=Confidence(
            "high", "launchers number the ranks of a host in the order of their ranks"
        ),
        next=("set LOCAL_RANK to the rank's place on its host, from 0",),
    )


def _no_address(culprit: Culprit, rounds: Rounds) -> Finding:
    text = "rank 0's address did not get into torch's store, so that nobody could come"
    return Finding(
        condition="unknown",
        who=Who("rank"),
        cause=culprit.cause,
        what=f"nobody can be named: {text} by the end of stage {culprit.stage}",
        stage=culprit.stage,
        evidence=_evidence(culprit, rounds),
        confidence=Confidence("low", "the store, or a slow import of torch, may be the reason"),
        next=(
            "time python -c 'import torch'  (on rank 0's host)",
            "give it longer: --deadline 300",
        ),
    )


_CAUSES: dict[str, Callable[[Culprit, Rounds], Finding]] = {
    "killed": _killed,
    "exited": _exited,
    "ended": _ended,
    "stopped": _stopped,
    "raised": _raised,
    "uninterruptible": _uninterruptible,
    "no-progress": _no_progress,
    "node-lost": _node,
    "link-cut": _node,
    "guard-lost": _guard_lost,
    "all-raised": _all_raised,
    "all-wait": _all_wait,
    "no-address": _no_address,
}


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
        evidence=_evidence(culprit, rounds),
        confidence=sure,
        next=advice,
    )


def _evidence(culprit: Culprit, rounds: Rounds) -> tuple[Evidence, ...]:
    """Where each culprit stood, then where its victims stand."""
    raised = [one for rank in culprit.ranks[:4] for one in _raised_at(rounds, rank)]
    own = [_where(rounds, rank) for rank in culprit.ranks[:4]]
    places: dict[str, list[int]] = {}
    for rank in culprit.victims:
        s = rounds.states[rank]
        if s.contact == "never":
            doing = "not come yet"
        elif s.failed is not None:
            doing = f"gave up in stage {s.stage}: {s.failed[:200]}"
        else:
            doing = f"{'waiting' if s.waiting else 'at work'} in stage {s.stage}{_step(s.step)}"
        places.setdefault(doing, []).append(rank)
    others = [
        f"rank{'s' if len(ranks) > 1 else ''} {fold(ranks)}: {doing}"
        for doing, ranks in places.items()
    ]
    return (*raised, *(Evidence(text, _SOURCE) for text in own + others))


def _raised_at(rounds: Rounds, rank: int) -> tuple[Evidence, ...]:
    at = rounds.states[rank].raised_at
    return (Evidence(f"rank {rank}: its exception was raised there", at),) if at else ()


def _there(culprit: Culprit, rounds: Rounds, *commands: str) -> tuple[str, ...]:
    """To be typed where the culprit is: its processes and the kernel's log are there alone."""
    host = rounds.states[culprit.ranks[0]].host
    return tuple(f"{command}  (on {host})" for command in commands)


def _where(rounds: Rounds, rank: int) -> str:
    s = rounds.states[rank]
    waits = ", waiting for the others" if s.waiting else ""
    orphaned = ", its launcher has gone" if s.orphaned else ""
    return f"rank {rank}: process {s.pid} {s.state}{_step(s.step)}{waits}{orphaned}"


def _step(step: str) -> str:
    return f", step {step!r}" if step else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
