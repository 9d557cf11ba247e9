"""Findings about several ranks together, or about none: one function per cause.

Also the evidence that all causes share: where each rank stands.
"""

import traceback
from collections.abc import Sequence
from dataclasses import replace

from oddrank.control.culprits import Culprit
from oddrank.control.stages import RunState, node_of
from oddrank.errors import type_and_text
from oddrank.finding import Confidence, Evidence, Finding, Who, ranks_text

SOURCE = "guard"


def node(culprit: Culprit, run: RunState) -> Finding:
    """All guards of a node ended, or fell silent."""
    if 0 in culprit.ranks:  # the judge's own node: all others fell silent
        return _own_link(culprit, run)
    ended = culprit.cause == "node-lost"
    host = run.states[culprit.ranks[0]].host if culprit.ranks else None
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
        drains_node=True,
        what=f"{what} stage {culprit.stage}",
        stage=culprit.stage,
        evidence=evidence(culprit, run),
        confidence=Confidence("high", "every guard of the node was lost, and no other")
        if culprit.certain
        else Confidence("low", "two nodes lost each other: either may be the cause"),
        next=(f"ping {host or 'the node'}",),
    )


def _own_link(culprit: Culprit, run: RunState) -> Finding:
    host = run.states[0].host
    return Finding(
        condition="broken",
        who=Who("link", culprit.ranks, host),
        cause=culprit.cause,
        drains_node=True,
        what=f"{host} lost all other nodes at once: its own network is cut, since stage"
        f" {culprit.stage}",
        stage=culprit.stage,
        evidence=evidence(culprit, run),
        confidence=Confidence("medium", f"the link of {host} is the one that they all share"),
        next=(f"ip -s link; ping another node  (on {host})",),
    )


def lost_each_other(culprit: Culprit, run: RunState) -> Finding:
    """A node's guards live, but heard no more from rank 0's host."""
    host, home = host_of(culprit, run), run.states[0].host
    parted = [run.states[rank] for rank in culprit.ranks if run.states[rank].parting]
    return Finding(
        condition="broken",
        who=Who("link", culprit.ranks, host),
        cause=culprit.cause,
        what=f"{host} and {home} lost each other in stage {culprit.stage}: {home} was"
        f" {parted[0].parting} for {host}; both live",
        stage=culprit.stage,
        evidence=(
            *(Evidence(f"rank {s.rank}: its guard gave up: {s.parting}", "guard") for s in parted),
            *evidence(culprit, run),
        ),
        confidence=Confidence("medium", "either host, or the network between them"),
        next=(
            f"do large packets pass? ping -c 3 -M do -s 1472 {home}  (on {host})",
            f"are packets lost? nstat -az TcpRetransSegs; ping -c 100 -i 0.2 {home}  (on {host})",
        ),
    )


def launcher_gone(culprit: Culprit, run: RunState) -> Finding:
    """A launcher ended while its ranks live: the job is over, and no rank is the cause."""
    left = [s for s in run.states.values() if s.orphaned and s.launcher]
    gone = sorted({(s.host, s.launcher, s.launcher_pid) for s in left})
    names = ", ".join(f"{name} (pid {pid}) on {host}" for host, name, pid in gone)
    root = run.states[0]
    store = ""
    if run.master and any(node_of(s) == node_of(root) for s in left):
        store = f", and with it the store at {run.master[0]}:{run.master[1]}"
    have = "has" if len(gone) == 1 else "have"
    return Finding(
        condition="unknown",
        who=Who("rank"),
        cause=culprit.cause,
        what=f"{names} {have} gone{store}; no rank is at fault (stage {culprit.stage})",
        stage=culprit.stage,
        evidence=(
            Evidence(f"{ranks_text([s.rank for s in left])}: the launcher is gone", "guard"),
            *evidence(culprit, run),
        ),
        confidence=Confidence("high", "the guards saw it"),
        next=tuple(
            command
            for host in sorted({host for host, _, _ in gone})
            for command in there(host, "dmesg -T | grep -i 'killed process'; last -x | head")
        ),
    )


def stage_failed(stage: str, part: str, error: BaseException) -> Finding:
    """The plan or the judgement of a stage raised. part: "its plan", "its judgement"."""
    return _own_error(
        f"stage {stage} is not judged: {part}", error, cause="stage-failed", stage=stage
    )


def part_failed(part: str, error: BaseException) -> Finding:
    """A part of the report, or one of its files, could not be made."""
    return _own_error(f"{part} is left out: making it", error, cause="part-failed", stage=None)


def _own_error(what: str, error: BaseException, *, cause: str, stage: str | None) -> Finding:
    raised = type_and_text(error)[:300]
    *_, frame = traceback.extract_tb(error.__traceback__)
    return Finding(
        condition="unknown",
        who=Who("rank"),
        cause=cause,
        what=f"{what} raised {raised}",
        stage=stage,
        evidence=(Evidence(raised, f"{frame.filename}:{frame.lineno}"),),
        confidence=Confidence("low", "an error in oddrank, and no fault of a rank"),
        next=("report it with this text, and with --json FILE",),
    )


def all_wait(culprit: Culprit, run: RunState) -> Finding:
    return Finding(
        condition="unknown",
        who=Who("rank", ()),
        cause=culprit.cause,
        what=f"no rank can be named: {ranks_text(culprit.victims)} wait for each other in stage"
        f" {culprit.stage}",
        stage=culprit.stage,
        evidence=evidence(culprit, run),
        confidence=Confidence("low", "no rank is behind the others without waiting itself"),
        next=(
            "if this stage only takes long: give it a longer --deadline",
            "run again; if it hangs again, test the network between the nodes",
        ),
    )


def all_raised(culprit: Culprit, run: RunState) -> Finding:
    text = (run.states[0].failed or "")[:300]
    return Finding(
        condition="unknown",
        who=Who("rank"),
        cause=culprit.cause,
        what=f"all {run.world} ranks raised {text} in stage {culprit.stage}: no rank is odd",
        stage=culprit.stage,
        evidence=raised_at(run, 0) + evidence(culprit, run),
        confidence=Confidence("high", "every rank raised the same"),
        next=("leave out what this stage measures, or report it with this output",),
    )


def ended_early(behind: Sequence[Culprit], run: RunState) -> list[Finding]:
    """A signal ended the job while ranks waited for others: those others are only suspects.

    behind: the culprits if the deadline had come at that moment.
    """
    behind = [one for one in behind if one.cause in ("no-progress", "uninterruptible")]
    ranks = sorted(rank for one in behind for rank in one.ranks)
    waited = [r for r, s in run.states.items() if r not in ranks and (s.waiting or s.published)]
    if not ranks or not waited:
        return []
    stage, who = behind[0].stage, run.who(ranks)
    were = "were" if len(waited) > 1 else "was"
    return [
        Finding(
            condition="unknown",
            who=Who("rank"),
            cause="ended-early",
            what=f"{ranks_text(waited)} {were} waiting for the others in stage {stage} when"
            f" {run.signals()} ended the job; {who} {'were' if len(ranks) > 1 else 'was'} not:"
            " look there first",
            stage=stage,
            evidence=evidence(replace(behind[0], ranks=tuple(ranks)), run),
            confidence=Confidence("low", "the deadline had not come: it may only be slow"),
            next=(
                *there(host_of(behind[0], run), "while it hangs: py-spy dump --pid PID"),
                "or let it run to its --deadline: who is stuck is named then",
            ),
        )
    ]


def evidence(culprit: Culprit, run: RunState) -> tuple[Evidence, ...]:
    """Return where each culprit stood, then where its victims stand."""
    raised = [one for rank in culprit.ranks[:4] for one in raised_at(run, rank)]
    own = [_where(run, rank) for rank in culprit.ranks[:4]]
    places: dict[str, list[int]] = {}
    for rank in culprit.victims:
        s = run.states[rank]
        if s.contact == "never":
            doing = "not joined yet"
        elif s.failed is not None:
            doing = f"gave up in stage {s.stage}: {s.failed[:200]}"
        else:
            doing = f"{'waiting' if s.waiting else 'at work'} in stage {s.stage}{step(s.step)}"
        places.setdefault(doing, []).append(rank)
    others = [f"{ranks_text(ranks)}: {doing}" for doing, ranks in places.items()]
    return (*raised, *(Evidence(text, SOURCE) for text in own + others))


def raised_at(run: RunState, rank: int) -> tuple[Evidence, ...]:
    at = run.states[rank].raised_at
    return (Evidence(f"rank {rank}: its exception was raised there", at),) if at else ()


def host_of(culprit: Culprit, run: RunState) -> str:
    return run.states[culprit.ranks[0]].host


def there(host: str, *commands: str) -> tuple[str, ...]:
    """Return the commands, each with the host to run it on."""
    return tuple(f"{command}  (on {host})" for command in commands)


def _where(run: RunState, rank: int) -> str:
    s = run.states[rank]
    waits = ", waiting for the others" if s.waiting else ""
    orphaned = ", its launcher has gone" if s.orphaned else ""
    return f"rank {rank}: process {s.pid} {s.state}{step(s.step)}{waits}{orphaned}"


def step(step: str) -> str:
    return f", step {step!r}" if step else ""
