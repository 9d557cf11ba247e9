"""The causes of ranks that did not come, or came as others: one function each."""

from typing import TYPE_CHECKING

from oddrank.control.culprits import Culprit
from oddrank.control.findings.words import SOURCE, evidence
from oddrank.control.stages import Rounds
from oddrank.finding import Confidence, Evidence, Finding, Who, fold

if TYPE_CHECKING:
    from oddrank.control.root import OddClaim, Round


def cannot_come(round: "Round") -> Finding | None:
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


def claimed_twice(claim: "OddClaim") -> Finding:
    """Two processes with one rank."""
    return _mismatch(claim, "claimed-twice", "both came to rank 0", "RANK")


def other_world(claim: "OddClaim") -> Finding:
    """It came, and was turned away: it counts other ranks than rank 0 does."""
    return _mismatch(claim, "other-world", "it said so itself", "WORLD_SIZE")


def _mismatch(claim: "OddClaim", cause: str, why: str, variable: str) -> Finding:
    return Finding(
        condition="mismatch",
        who=Who("rank"),
        cause=cause,
        what=claim.text,
        stage="join",
        evidence=(Evidence(claim.text, SOURCE),),
        confidence=Confidence("high", why),
        next=(f"compare {variable} of the processes",),
    )


def never_came(culprit: Culprit, rounds: Rounds) -> Finding:
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
            Evidence(came, SOURCE),
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


def no_address(culprit: Culprit, rounds: Rounds) -> Finding:
    text = "rank 0's address did not get into torch's store, so that nobody could come"
    return Finding(
        condition="unknown",
        who=Who("rank"),
        cause=culprit.cause,
        what=f"nobody can be named: {text} by the end of stage {culprit.stage}",
        stage=culprit.stage,
        evidence=evidence(culprit, rounds),
        confidence=Confidence("low", "the store, or a slow import of torch, may be the reason"),
        next=(
            "time python -c 'import torch'  (on rank 0's host)",
            "give it longer: --deadline 300",
        ),
    )
