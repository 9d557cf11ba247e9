"""The causes that a sweep can name, and the self-test's all_reduce with it."""

from collections.abc import Mapping, Sequence
from typing import Any

from oddrank.control.stages import Rounds
from oddrank.finding import Confidence, Evidence, Finding, Who, fold


def wrong_values(rounds: Rounds, stage: str, seen: Sequence[Mapping[str, Any]]) -> Finding:
    """Wrong sums were seen; by whom says nothing about who caused them."""
    observers = fold(m["observer"] for m in seen)
    return Finding(
        condition="unknown",
        who=Who("rank"),
        cause="wrong-values",
        what=f"wrong values in stage {stage}, seen by rank {observers}; who caused them is unknown",
        stage=stage,
        evidence=mismatch_evidence(seen),
        confidence=Confidence(
            "low", "every rank adds to every value: who sees it need not have caused it"
        ),
        next=("run oddrank selftest several times: it compares every rank's own values",),
    )


def wrong_contribution(
    rounds: Rounds, stage: str, ranks: Sequence[int], seen: Sequence[Mapping[str, Any]]
) -> Finding:
    """All ranks agree whose own values are wrong when nothing is added to them."""
    who = rounds.who(ranks)
    return Finding(
        condition="broken",
        who=who,
        cause="wrong-contribution",
        what=f"{who} is broken: puts wrong values into collectives in stage {stage}",
        stage=stage,
        evidence=mismatch_evidence(seen),
        confidence=Confidence(
            "high", "gathered without arithmetic, the same values were wrong for every rank"
        ),
        next=("run the self-test on its host alone; if it fails there too, take the device out",),
    )


def mismatch_evidence(seen: Sequence[Mapping[str, Any]]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(
            f"rank {m['observer']}: {m['case']}: {m['wrong']} wrong values,"
            f" the first at {m['index']}: expected {m['expected']:g}, got {m['got']:g}",
            "all_reduce",
        )
        for m in seen[:8]
    )
