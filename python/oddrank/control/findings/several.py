"""The causes of several ranks together: one function each."""

from collections.abc import Sequence
from dataclasses import replace

from oddrank.control.culprits import Culprit
from oddrank.control.findings.words import evidence, raised_at, there
from oddrank.control.stages import Rounds
from oddrank.finding import Confidence, Finding, Who, fold


def node(culprit: Culprit, rounds: Rounds) -> Finding:
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
        evidence=evidence(culprit, rounds),
        confidence=Confidence("high", "every guard of the node was lost, and no other")
        if culprit.certain
        else Confidence("low", "of two nodes that lose each other either may be the cause"),
        next=(f"ping {host or 'the node'}",),
    )


def all_wait(culprit: Culprit, rounds: Rounds) -> Finding:
    waiting = fold(culprit.victims)
    return Finding(
        condition="unknown",
        who=Who("rank", ()),
        cause=culprit.cause,
        what=f"nobody can be named: ranks {waiting} wait for each other in stage {culprit.stage}",
        stage=culprit.stage,
        evidence=evidence(culprit, rounds),
        confidence=Confidence("low", "no rank is behind the others without waiting itself"),
        next=(
            "if this stage only takes long: a longer --deadline",
            "run again; if it hangs again, test the network between the nodes",
        ),
    )


def all_raised(culprit: Culprit, rounds: Rounds) -> Finding:
    text = (rounds.states[0].failed or "")[:300]
    return Finding(
        condition="unknown",
        who=Who("rank"),
        cause=culprit.cause,
        what=f"all {rounds.world} ranks raised {text} in stage {culprit.stage}: no rank is odd",
        stage=culprit.stage,
        evidence=raised_at(rounds, 0) + evidence(culprit, rounds),
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
            evidence=evidence(replace(behind[0], ranks=tuple(ranks)), rounds),
            confidence=Confidence("low", "the deadline had not come: it may only be slow"),
            next=(
                *there(behind[0], rounds, "while it hangs: py-spy dump --pid PID"),
                "or let it run to its --deadline: who is stuck is named then",
            ),
        )
    ]
