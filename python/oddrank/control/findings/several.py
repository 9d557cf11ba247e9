"""Findings about several ranks together, or about none: one function per cause.

Also what the findings of all culprits share: how they are made, and where each rank stands.
"""

import traceback
from collections.abc import Sequence
from dataclasses import replace

from oddrank.control.culprits import Culprit
from oddrank.control.stages import RunState, node_of
from oddrank.errors import type_and_text
from oddrank.finding import Condition, Confidence, Evidence, Finding, Who, ranks_text

SOURCE = "guard"
OOM = "dmesg -T | grep -i 'killed process'"
WHILE_IT_HANGS = "while it hangs: py-spy dump --pid PID"
_NOBODY = Who("rank")


def of_culprit(
    culprit: Culprit,
    run: RunState,
    what: str,
    sure: Confidence,
    next: tuple[str, ...],
    *,
    condition: Condition = "unknown",
    who: Who = _NOBODY,
    seen: Sequence[Evidence] | None = None,
    drains_node: bool = False,
) -> Finding:
    """Makes the finding of a culprit. seen: all evidence; None: where its ranks and victims are."""
    return Finding(
        condition=condition,
        who=who,
        cause=culprit.cause,
        what=what,
        stage=culprit.stage,
        evidence=evidence(culprit, run) if seen is None else tuple(seen),
        confidence=sure,
        next=next,
        drains_node=drains_node,
    )


def node(culprit: Culprit, run: RunState) -> Finding:
    """All guards of a node ended, or fell silent."""
    ended, host = culprit.cause == "node-lost", run.states[culprit.ranks[0]].host
    who = Who("node" if ended else "link", culprit.ranks, host)
    sure = Confidence("high", "every guard of the node was lost, and no other")
    what, command = f"{who} is dead: all of its processes ended in", f"ping {host}"
    if 0 in culprit.ranks:  # the judge's own node: all others fell silent
        what = f"{host} lost all other nodes at once: its own network is cut, since"
        sure = Confidence("medium", f"the link of {host} is the one that they all share")
        command = f"ip -s link; ping another node  (on {host})"
    elif not ended:
        what = f"{who} is broken: no word from the node, it stopped or its network is cut, since"
    if not culprit.certain:
        sure = Confidence("low", "two nodes lost each other: either may be the cause")
    return of_culprit(
        culprit,
        run,
        f"{what} stage {culprit.stage}",
        sure,
        (command,),
        condition="dead" if ended else "broken",
        who=who,
        drains_node=True,
    )


def guard_lost(culprit: Culprit, run: RunState) -> Finding:
    """Nothing is known of a rank any more: its guard is gone, and others of its node are not."""
    state, who = run.states[culprit.ranks[0]], run.who(culprit.ranks)
    how = "ended" if state.contact == "closed" else "fell silent"
    return of_culprit(
        culprit,
        run,
        f"{who} is broken: its guard process {how} in stage {culprit.stage}",
        Confidence("high", "its node has other guards that speak"),
        there(state.host, OOM),
        condition="broken",
        who=who,
    )


def lost_each_other(culprit: Culprit, run: RunState) -> Finding:
    """A node's guards live, but heard no more from rank 0's host."""
    host, home = run.states[culprit.ranks[0]].host, run.states[0].host
    parted = [run.states[rank] for rank in culprit.ranks if run.states[rank].parting]
    gave_up = [Evidence(f"rank {s.rank}: its guard gave up: {s.parting}", SOURCE) for s in parted]
    return of_culprit(
        culprit,
        run,
        f"{host} and {home} lost each other in stage {culprit.stage}: {home} was"
        f" {parted[0].parting} for {host}; both live",
        Confidence("medium", "either host, or the network between them"),
        (
            f"do large packets pass? ping -c 3 -M do -s 1472 {home}  (on {host})",
            f"are packets lost? nstat -az TcpRetransSegs; ping -c 100 -i 0.2 {home}  (on {host})",
        ),
        condition="broken",
        who=Who("link", culprit.ranks, host),
        seen=(*gave_up, *evidence(culprit, run)),
    )


def launcher_gone(culprit: Culprit, run: RunState) -> Finding:
    """A launcher ended while its ranks live: the job is over, and no rank is the cause."""
    left = [s for s in run.states.values() if s.orphaned and s.launcher]
    gone = sorted({(s.host, s.launcher, s.launcher_pid) for s in left})
    names = ", ".join(f"{name} (pid {pid}) on {host}" for host, name, pid in gone)
    store = ""
    if run.master and any(node_of(s) == node_of(run.states[0]) for s in left):
        store = f", and with it the store at {run.master[0]}:{run.master[1]}"
    have = "has" if len(gone) == 1 else "have"
    orphans = f"{ranks_text([s.rank for s in left])}: the launcher is gone"
    hosts = sorted({host for host, _, _ in gone})
    return of_culprit(
        culprit,
        run,
        f"{names} {have} gone{store}; no rank is at fault (stage {culprit.stage})",
        Confidence("high", "the guards saw it"),
        tuple(command for host in hosts for command in there(host, f"{OOM}; last -x | head")),
        seen=(Evidence(orphans, SOURCE), *evidence(culprit, run)),
    )


def stage_failed(stage: str, part: str, error: BaseException) -> Finding:
    """The plan or the judgement of a stage raised. part: "its plan", "its judgement"."""
    what = f"stage {stage} is not judged: {part}"
    return _own_error(what, error, cause="stage-failed", stage=stage)


def part_failed(part: str, error: BaseException) -> Finding:
    """A part of the report, or one of its files, could not be made."""
    return _own_error(f"{part} is left out: making it", error, cause="part-failed", stage=None)


def _own_error(what: str, error: BaseException, *, cause: str, stage: str | None) -> Finding:
    raised = type_and_text(error)[:300]
    *_, frame = traceback.extract_tb(error.__traceback__)
    return Finding(
        cause=cause,
        what=f"{what} raised {raised}",
        stage=stage,
        evidence=(Evidence(raised, f"{frame.filename}:{frame.lineno}"),),
        confidence=Confidence("low", "an error in oddrank, and no fault of a rank"),
        next=("report it with this text, and with --json FILE",),
    )


def all_wait(culprit: Culprit, run: RunState) -> Finding:
    return of_culprit(
        culprit,
        run,
        f"no rank can be named: {ranks_text(culprit.victims)} wait for each other in stage"
        f" {culprit.stage}",
        Confidence("low", "no rank is behind the others without waiting itself"),
        (
            "if this stage only takes long: give it a longer --deadline",
            "run again; if it hangs again, test the network between the nodes",
        ),
    )


def all_raised(culprit: Culprit, run: RunState) -> Finding:
    text = (run.states[0].failed or "")[:300]
    return of_culprit(
        culprit,
        run,
        f"all {run.world} ranks raised {text} in stage {culprit.stage}: no rank is odd",
        Confidence("high", "every rank raised the same"),
        ("leave out what this stage measures, or report it with this output",),
        seen=raised_at(run, 0) + evidence(culprit, run),
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
    first, who = replace(behind[0], ranks=tuple(ranks)), run.who(ranks)
    found = of_culprit(
        first,
        run,
        f"{ranks_text(waited)} {'were' if len(waited) > 1 else 'was'} waiting for the others in"
        f" stage {first.stage} when {run.signals()} ended the job; {who}"
        f" {'were' if len(ranks) > 1 else 'was'} not: look there first",
        Confidence("low", "the deadline had not come: it may only be slow"),
        (
            *there(run.states[behind[0].ranks[0]].host, WHILE_IT_HANGS),
            "or let it run to its --deadline: who is stuck is named then",
        ),
    )
    return [replace(found, cause="ended-early")]


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
            doing = f"{'waiting' if s.waiting else 'at work'} in stage {s.stage}{_step(s.step)}"
        places.setdefault(doing, []).append(rank)
    others = [f"{ranks_text(ranks)}: {doing}" for doing, ranks in places.items()]
    return (*raised, *(Evidence(text, SOURCE) for text in own + others))


def raised_at(run: RunState, rank: int) -> tuple[Evidence, ...]:
    at = run.states[rank].raised_at
    return (Evidence(f"rank {rank}: its exception was raised there", at),) if at else ()


def there(host: str, *commands: str) -> tuple[str, ...]:
    """Return the commands, each with the host to run it on."""
    return tuple(f"{command}  (on {host})" for command in commands)


def _where(run: RunState, rank: int) -> str:
    s = run.states[rank]
    waits = ", waiting for the others" if s.waiting else ""
    orphaned = ", its launcher has gone" if s.orphaned else ""
    return f"rank {rank}: process {s.pid} {s.state}{_step(s.step)}{waits}{orphaned}"


def _step(step: str) -> str:
    return f", step {step!r}" if step else ""
