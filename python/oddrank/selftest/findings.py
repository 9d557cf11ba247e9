"""The causes that only the self-test names: one function each, the only place for sentences."""

from collections.abc import Iterable, Mapping
from typing import Any

from oddrank.control.stages import Rounds
from oddrank.finding import Confidence, Evidence, Finding, Who, fold


def deviates(
    rounds: Rounds, name: str, ranks: Iterable[int], value: Any, common: Any, *, breaks: bool
) -> Finding:
    """A few ranks differ from most. breaks: in a version, which breaks jobs; else in a setting."""
    who = _node_or_rank(rounds, ranks)
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


def bad_memory(
    rounds: Rounds, rank: int, device: str, size: int, wrong: Mapping[str, Any]
) -> Finding:
    """What was written did not come back."""
    who = rounds.who([rank])
    return Finding(
        condition="broken",
        who=who,
        cause="bad-memory",
        what=f"{who} is broken: its {device} memory does not keep what is written to it",
        stage="device",
        evidence=(
            Evidence(
                f"{wrong['count']} wrong words in {size >> 20} MiB, the first at {wrong['index']}:"
                f" wrote {wrong['expected']:#018x}, read {wrong['got']:#018x}",
                "memory pattern",
            ),
        ),
        confidence=Confidence("high", "written and read by this rank alone"),
        next=("nvidia-smi -q -d ECC,ROW_REMAPPER",)
        if device == "GPU"
        else ("dmesg -T | grep -i edac",),
    )


def _node_or_rank(rounds: Rounds, ranks: Iterable[int]) -> Who:
    """The node, where it is all of its ranks and there are others."""
    who = rounds.who(ranks)
    here = {r for r, s in rounds.states.items() if s.host == who.host}
    if who.host and here == set(who.ranks) and len(here) > 1:
        return Who("node", who.ranks, who.host)
    return who
