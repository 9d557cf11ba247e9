"""The causes of the stage fingerprint: one function each."""

from collections.abc import Mapping, Sequence
from typing import Any

from oddrank.control.stages import Rounds
from oddrank.finding import Confidence, Evidence, Finding, Who, fold


def wrong_arithmetic(
    rounds: Rounds, rank: int, wrong: Sequence[Mapping[str, Any]], *, scope: str, known: bool
) -> Finding:
    """Arithmetic in a fixed order ended in other bits. known: which bits are right is known."""
    who = rounds.who([rank])
    units = ", ".join(dict.fromkeys(str(one["unit"]) for one in wrong))
    return Finding(
        condition="broken",
        who=who,
        cause="wrong-arithmetic",
        what=f"{who} is broken: its {scope} computes {units} wrongly",
        stage="fingerprint",
        evidence=tuple(
            Evidence(
                f"{one['unit']}{_place(one)}: {one['got']} instead of {one['expected']}",
                "fingerprint",
            )
            for one in wrong[:8]
        ),
        confidence=Confidence(
            "high",
            "exact bits, computed by this rank alone"
            if known
            else "exact bits, and most of its peers agree on others",
        ),
        next=("nvidia-smi -q -d ECC", "dcgmi diag -r 3") if scope == "gpu" else ("lscpu",),
    )


def nobody_right(rounds: Rounds, unit: str, groups: Mapping[str, Sequence[int]]) -> Finding:
    """Ranks of one kind differ in bits, or most of them agree on others than are known."""
    parts = "; ".join(f"rank {fold(ranks)}: {got}" for got, ranks in list(groups.items())[:4])
    return Finding(
        condition="unknown",
        who=Who("rank", tuple(sorted(rank for ranks in groups.values() for rank in ranks))),
        cause="bits-differ",
        what=f"ranks of one kind differ in the bits of {unit}, or most in what is known: {parts}",
        stage="fingerprint",
        evidence=(Evidence(parts, "fingerprint"),),
        confidence=Confidence("low", "nothing says which bits are right"),
    )


def _place(one: Mapping[str, Any]) -> str:
    return f" on {one['place']}, repeat {one['repeat']}" if "place" in one else ""
