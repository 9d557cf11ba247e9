"""The causes that a sweep can name, and the self-test's all_reduce with it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from oddrank.control.stages import Rounds
from oddrank.finding import Confidence, Evidence, Finding, Who


def wrong_values(rounds: Rounds, stage: str, seen: Sequence[Mapping[str, Any]]) -> Finding:
    """Wrong sums were seen; by whom says nothing about who caused them."""
    observers = Who("rank", tuple(m["observer"] for m in seen))
    return Finding(
        condition="unknown",
        who=Who("rank"),
        cause="wrong-values",
        what=f"wrong values in stage {stage}, seen by {observers}; who caused them is unknown",
        stage=stage,
        evidence=mismatch_evidence(seen),
        confidence=Confidence(
            "low", "every rank adds to every value: who sees it need not have caused it"
        ),
        next=("run oddrank selftest several times: it compares every rank's own values",),
    )


def not_localised(rounds: Rounds, stage: str, seen: Sequence[Mapping[str, Any]]) -> Finding:
    """Gathered one by one afterwards, nobody's values are wrong in the eyes of all."""
    return replace(
        wrong_values(rounds, stage, seen),
        confidence=Confidence(
            "low", "gathered without arithmetic afterwards, no rank's values were wrong for all"
        ),
        next=(
            "run it again, several times: the fault comes and goes",
            "run it on halves of the ranks: the fault goes with one of them",
        ),
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


def nothing_measured(reason: str) -> Finding:
    """A sweep without a single figure says nothing of anybody."""
    return Finding(
        condition="unknown",
        who=Who("rank"),
        cause="nothing-measured",
        what=f"no size could be measured: {reason}",
        evidence=(Evidence(reason, "memory"),),
        confidence=Confidence("low", "nothing was measured"),
        next=("--sizes with smaller ones",),
    )


def mismatch_evidence(seen: Sequence[Mapping[str, Any]]) -> tuple[Evidence, ...]:
    """Of every observer the first one, before the second of any."""
    nth: Counter[int] = Counter()
    places = []
    for m in seen:
        places.append(nth[m["observer"]])
        nth[m["observer"]] += 1
    seen = [m for _, m in sorted(zip(places, seen, strict=True), key=lambda pair: pair[0])]
    return tuple(
        Evidence(
            f"rank {m['observer']}: {m['case']}: {m['wrong']} wrong values,"
            f" the first at {m['index']}: expected {m['expected']:g}, got {m['got']:g}",
            "all_reduce",
        )
        for m in seen[:8]
    )
