"""The causes of the stage environment: one function each."""

from collections.abc import Iterable, Mapping
from typing import Any

from oddrank.control.stages import Rounds
from oddrank.finding import Confidence, Evidence, Finding, Who, fold
from oddrank.selftest.findings.names import node_or_rank


def deviates(
    rounds: Rounds, name: str, ranks: Iterable[int], value: Any, common: Any, *, breaks: bool
) -> Finding:
    """A few ranks differ from most. breaks: in a version, which breaks jobs; else in a setting."""
    who = node_or_rank(rounds, ranks)
    return Finding(
        condition="different" if breaks else "suspicious",
        who=who,
        cause="other-version" if breaks else "other-setting",
        what=f"{who} has {name} {value}, most ranks have {common}",
        stage="environment",
        evidence=(Evidence(f"{name}: {value} instead of {common}", name),),
        confidence=Confidence("high" if breaks else "medium", "more than half of the ranks agree"),
        next=("oddrank doctor  (on that host)",),
    )


def no_majority(rounds: Rounds, name: str, groups: Mapping[Any, list[int]]) -> Finding:
    """The ranks differ, and no value has more than half of them."""
    parts = "; ".join(f"rank {fold(ranks)}: {value}" for value, ranks in list(groups.items())[:8])
    return Finding(
        condition="unknown",
        who=Who("rank"),
        cause="no-majority",
        what=f"ranks differ in {name}, and no value has a majority: {parts}",
        stage="environment",
        evidence=(Evidence(parts, name),),
        confidence=Confidence("low", "no more than half of the ranks agree"),
    )
