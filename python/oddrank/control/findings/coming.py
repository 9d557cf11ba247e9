"""Findings about ranks that did not join, or joined with wrong numbers: one function per cause."""

from typing import TYPE_CHECKING

from oddrank.control.culprits import Culprit
from oddrank.control.findings.several import SOURCE, evidence, there
from oddrank.control.stages import JOIN, RunState
from oddrank.finding import Confidence, Evidence, Finding, Who, fold, ranks_text

if TYPE_CHECKING:
    from oddrank.control.root import OddClaim, StageRound


def cannot_come(round: "StageRound") -> Finding | None:
    """Return a finding in place of never_came if healthy ranks may have been unable to join."""
    missing = [rank for rank, s in round.states.items() if s.contact == "never"]
    who = f"{ranks_text(missing)} did not come"
    confidence = Confidence("medium", "healthy ranks may be unable to join, too")
    if round.limits:
        return Finding(
            condition="unknown",
            who=Who("rank"),
            cause="open-files",
            what=f"{who}, but may be healthy: {round.limits}",
            stage=JOIN,
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
            what=f"{who}, but may be healthy: {text}; torch's store asks it",
            stage=JOIN,
            evidence=(Evidence(text, "reverse DNS of its own address"),),
            confidence=confidence,
            next=("cat /etc/resolv.conf; time getent hosts $(hostname -i)",),
        )
    return None


def claimed_twice(claim: "OddClaim") -> Finding:
    """Two processes claim one rank."""
    return _mismatch(claim, "claimed-twice", "both connected to rank 0", "RANK")


def other_world(claim: "OddClaim") -> Finding:
    """A rank that was turned away: its WORLD_SIZE is not rank 0's."""
    return _mismatch(claim, "other-world", "the rank said so itself", "WORLD_SIZE")


def _mismatch(claim: "OddClaim", cause: str, why: str, variable: str) -> Finding:
    return Finding(
        condition="mismatch",
        who=Who("rank"),
        cause=cause,
        what=claim.text,
        stage=JOIN,
        evidence=(Evidence(claim.text, SOURCE),),
        confidence=Confidence("high", why),
        next=(f"compare {variable} of the processes",),
    )


def never_came(culprit: Culprit, run: RunState) -> Finding:
    who = run.who(culprit.ranks)
    alone = culprit.ranks == tuple(range(1, run.world))
    several = len(culprit.ranks) > 1
    heard = "only rank 0 did" if alone else "the other ranks did"
    they, their = ("they", "their") if several else ("it", "its")
    came = f"{run.world - len(culprit.ranks)} of {run.world} ranks came"
    loopback = _loopback(run)
    only = f"MASTER_ADDR {loopback} is reachable from {run.states[0].host} only"
    others = bool(loopback) and run.nodes > 1
    return Finding(
        condition="missing",
        who=who,
        cause=culprit.cause,
        what=f"{who} never joined; {heard}" + (f"; {only}" if others else ""),
        stage=culprit.stage,
        evidence=(
            Evidence(came, SOURCE),
            *([Evidence(only, "environment of rank 0")] if loopback else []),
        ),
        confidence=Confidence(
            "medium",
            f"{'only rank 0 joined' if alone else 'others found the way'};"
            f" {they} may only be slow to start",
        ),
        next=(
            f"{'were' if several else 'was'} {they} started?",
            _way_to_rank_0(run, several, loopback if others else ""),
            f"if {their} import of torch is slow: --deadline 300",
        ),
    )


def never_joined(culprit: Culprit, run: RunState) -> Finding:
    """Ranks whose launcher ended the job before they had a guard."""
    ended = [s for s in run.states.values() if s.sigterm and s.sigterm_by == s.launcher_pid]
    mate = next(s for s in ended if 0 <= culprit.ranks[0] - s.rank + s.local_rank < s.local_world)
    places = [rank - mate.rank + mate.local_rank for rank in culprit.ranks]
    device = f"local rank{'s' if len(places) > 1 else ''} {fold(places)}"
    who = Who("rank", culprit.ranks, mate.host, device)
    launcher = f"{mate.launcher} (pid {mate.launcher_pid})"
    its = "their" if len(places) > 1 else "its"
    return Finding(
        condition="missing",
        who=who,
        cause=culprit.cause,
        what=f"{who} never joined: {its} launcher, {launcher}, ended the job in stage"
        f" {culprit.stage}, as it does when a rank dies",
        stage=culprit.stage,
        evidence=(
            Evidence(f"{launcher} sent SIGTERM to {ranks_text([s.rank for s in ended])}", SOURCE),
        ),
        confidence=Confidence("medium", "it may also have been slow to start, and the job ended"),
        next=(
            f"how it ended: {mate.launcher}'s last lines on {mate.host}",
            *there(mate.host, "dmesg -T | grep -i 'killed process'"),
        ),
    )


def unreachable_root(culprit: Culprit, run: RunState) -> Finding:
    """Ranks that reach torch's store on rank 0's host, but not rank 0's guard there."""
    who = run.who(culprit.ranks)
    text = run.states[culprit.ranks[0]].unreached
    host = run.states[0].host
    where, _, why = text.partition(": ")
    return Finding(
        condition="broken",
        who=Who("link", culprit.ranks),
        cause=culprit.cause,
        what=f"{who} cannot reach rank 0 in stage {culprit.stage}: {where} cannot connect to"
        f" {host}, {why}",
        stage=culprit.stage,
        evidence=(Evidence(text, "torch's store"),),
        confidence=Confidence("high", "the ranks said so themselves, through torch's store"),
        next=(
            f"look for a firewall on {host}: nft list ruleset; iptables -L",
            "or open one port, and on every host:"
            " export ODDRANK_CONTROL_ADDR=IP_OF_RANK_0:PORT#ANY_SECRET_WORD",
        ),
    )


def _loopback(run: RunState) -> str:
    """Return MASTER_ADDR if it is a loopback address and no rank of another host came; else ""."""
    address = run.master[0] if run.master else ""
    if address not in ("localhost", "::1") and not address.startswith("127."):
        return ""
    hosts = {state.host for state in run.states.values() if state.contact != "never"}
    return address if hosts == {run.states[0].host} else ""


def _way_to_rank_0(run: RunState, several: bool, loopback: str) -> str:
    if loopback:
        return f"export MASTER_ADDR={run.states[0].host}  (on every host, instead of {loopback})"
    there = "their hosts" if several else "its host"
    host, port = run.master or ("MASTER_ADDR", "MASTER_PORT")
    return f"nc -zv {host} {port}  (on {there}: is rank 0's port reached?)"


def wrong_local_rank(run: RunState, rank: int, expected: int, twins: list[int]) -> Finding:
    """Two ranks of a host with one local rank: they would share a GPU."""
    who = run.who([rank])
    has = run.states[rank].local_rank
    return Finding(
        condition="different",
        who=who,
        cause="wrong-local-rank",
        what=f"{who} has LOCAL_RANK={has} like {ranks_text(twins)}; expected {expected}",
        stage=JOIN,
        evidence=(Evidence(f"{ranks_text([rank, *twins])}: LOCAL_RANK={has}", "environment", has),),
        confidence=Confidence(
            "high", "launchers number the ranks of a host in the order of their ranks"
        ),
        next=("set LOCAL_RANK to the rank's place on its host, from 0",),
    )


def no_address(culprit: Culprit, run: RunState) -> Finding:
    text = "rank 0's address did not get into torch's store, so that no rank could join"
    return Finding(
        condition="unknown",
        who=Who("rank"),
        cause=culprit.cause,
        what=f"no rank can be named: {text} by the end of stage {culprit.stage}",
        stage=culprit.stage,
        evidence=evidence(culprit, run),
        confidence=Confidence("low", "the store, or a slow import of torch, may be the reason"),
        next=(
            "time python -c 'import torch'  (on rank 0's host)",
            "give it longer: --deadline 300",
        ),
    )
