"""Findings about ranks that did not join, or joined with wrong numbers: one function per cause."""

from typing import TYPE_CHECKING

from oddrank.control.culprits import Culprit
from oddrank.control.findings.several import OOM, SOURCE, of_culprit, there
from oddrank.control.stages import JOIN, RunState
from oddrank.finding import Confidence, Evidence, Finding, Who, fold, ranks_text

if TYPE_CHECKING:
    from oddrank.control.stages import OddClaim, StageRound


def cannot_come(round: "StageRound") -> Finding | None:
    """Return a finding in place of never_came if healthy ranks may have been unable to join."""
    if round.limits:
        cause, text, source = "open-files", round.limits, "open-file limit"
        more, commands = "", ["ulimit -Hn", "ulimit -n $(ulimit -Hn)"]
    elif round.states[0].resolver_slow:
        cause, source = "resolver", "reverse DNS of its own address"
        text = f"the resolver of {round.states[0].host} does not answer within a second"
        more = "; torch's store asks it"
        commands = ["cat /etc/resolv.conf; time getent hosts $(hostname -i)"]
    else:
        return None
    missing = [rank for rank, s in round.states.items() if s.contact == "never"]
    return Finding(
        cause=cause,
        what=f"{ranks_text(missing)} did not come, but may be healthy: {text}{more}",
        stage=JOIN,
        evidence=(Evidence(text, source),),
        confidence=Confidence("medium", "healthy ranks may be unable to join, too"),
        next=tuple(commands),
    )


def turned_away(claim: "OddClaim") -> Finding:
    """Two processes claim one rank, or the WORLD_SIZE of a rank is not rank 0's."""
    world = claim.other_world
    variable = "WORLD_SIZE" if world else "RANK"
    return Finding(
        condition="mismatch",
        cause="other-world" if world else "claimed-twice",
        what=claim.text,
        stage=JOIN,
        evidence=(Evidence(claim.text, SOURCE),),
        confidence=Confidence(
            "high", "the rank said so itself" if world else "both connected to rank 0"
        ),
        next=(f"compare {variable} of the processes",),
    )


def never_came(culprit: Culprit, run: RunState) -> Finding:
    who = run.who(culprit.ranks)
    alone = culprit.ranks == tuple(range(1, run.world))
    several = len(culprit.ranks) > 1
    heard = "only rank 0 did" if alone else "the other ranks did"
    were, they, their = ("were", "they", "their") if several else ("was", "it", "its")
    came = f"{run.world - len(culprit.ranks)} of {run.world} ranks came"
    loopback = _loopback(run)
    only = f"MASTER_ADDR {loopback} is reachable from {run.states[0].host} only"
    others = bool(loopback) and run.nodes > 1
    others_came = "only rank 0 joined" if alone else "others found the way"
    return of_culprit(
        culprit,
        run,
        f"{who} never joined; {heard}" + (f"; {only}" if others else ""),
        Confidence("medium", f"{others_came}; {they} may only be slow to start"),
        (
            f"{were} {they} started?",
            _way_to_rank_0(run, several, loopback if others else ""),
            f"if {their} import of torch is slow: --deadline 300",
        ),
        condition="missing",
        who=who,
        seen=(
            Evidence(came, SOURCE),
            *([Evidence(only, "environment of rank 0")] if loopback else []),
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
    told = f"{launcher} sent SIGTERM to {ranks_text([s.rank for s in ended])}"
    return of_culprit(
        culprit,
        run,
        f"{who} never joined: {its} launcher, {launcher}, ended the job in stage"
        f" {culprit.stage}, as it does when a rank dies",
        Confidence("medium", "it may also have been slow to start, and the job ended"),
        (f"how it ended: {mate.launcher}'s last lines on {mate.host}", *there(mate.host, OOM)),
        condition="missing",
        who=who,
        seen=[Evidence(told, SOURCE)],
    )


def unreachable_root(culprit: Culprit, run: RunState) -> Finding:
    """Ranks that reach torch's store on rank 0's host, but not rank 0's guard there."""
    text, host = run.states[culprit.ranks[0]].unreached, run.states[0].host
    where, _, why = text.partition(": ")
    return of_culprit(
        culprit,
        run,
        f"{run.who(culprit.ranks)} cannot reach rank 0 in stage {culprit.stage}: {where} cannot"
        f" connect to {host}, {why}",
        Confidence("high", "the ranks said so themselves, through torch's store"),
        (
            f"look for a firewall on {host}: nft list ruleset; iptables -L",
            "or open one port, and on every host:"
            " export ODDRANK_CONTROL_ADDR=IP_OF_RANK_0:PORT#ANY_SECRET_WORD",
        ),
        condition="broken",
        who=Who("link", culprit.ranks),
        seen=[Evidence(text, "torch's store")],
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
    return of_culprit(
        culprit,
        run,
        "no rank can be named: rank 0's address did not get into torch's store, so that no rank"
        f" could join by the end of stage {culprit.stage}",
        Confidence("low", "the store, or a slow import of torch, may be the reason"),
        (
            "time python -c 'import torch'  (on rank 0's host)",
            "give it longer: --deadline 300",
        ),
    )
