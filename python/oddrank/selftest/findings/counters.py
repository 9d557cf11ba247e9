"""The causes of the stage counters_again: one function each."""

from collections.abc import Collection, Mapping

from oddrank.control.nodes import node_of
from oddrank.control.stages import Rounds
from oddrank.finding import Confidence, Evidence, Finding, Who, fold
from oddrank.selftest.counters import Counter, Scope

_LOOK: dict[Scope, tuple[str, ...]] = {
    "gpu": ("nvidia-smi -q -d ECC,PERFORMANCE", "dmesg -T | grep -i -e xid -e aer"),
    "nvlink": ("nvidia-smi nvlink -e", "dmesg -T | grep -i xid"),
    "pci": ("lspci -vv | grep -i -e lnksta -e uesta", "dmesg -T | grep -i aer"),
    "port": ("perfquery -x  (or: ethtool -S INTERFACE)", "ibstat", "dmesg -T | grep -i mlx"),
}
_MOST_PLACES = 8


def grew(
    rounds: Rounds, rank: int, counter: Counter, places: Mapping[str, int], seconds: float
) -> Finding:
    """Errors were counted while the test ran: of a rank's GPU, or of its node's network devices."""
    shown = sorted(places.items(), key=lambda place: -place[1])[:_MOST_PLACES]
    where = ", ".join(place for place, _ in shown if place != "GPU")
    who = rounds.who([rank]) if is_gpus(counter, places) else _node(rounds, rank)
    link = "" if counter.own else "; the other end of a link may be the cause"
    name = counter.name.replace("_", " ")
    most = shown[0][1]
    amount = f"{most / 1e9:.1f} s" if counter.unit == "ns" else f"{most}"
    return Finding(
        condition="suspicious",
        who=who,
        cause="own-errors-counted" if counter.own else "errors-counted",
        what=f"{who} is suspicious: {name.removesuffix(' ns')} grew by {amount}"
        f" within {seconds:.0f} s" + (f" ({where})" if where else ""),
        stage="counters_again",
        evidence=tuple(
            Evidence(f"{place} {name}: +{by}", counter.name, by, counter.unit or None)
            for place, by in shown
        ),
        confidence=Confidence("medium", f"the hardware counts its own errors{link}"),
        next=_LOOK[counter.scope],
    )


def is_gpus(counter: Counter, places: Collection[str]) -> bool:
    """Of the rank's own GPU; network devices are the node's, of which one rank has read them."""
    return counter.scope == "nvlink" or set(places) == {"GPU"}


def _node(rounds: Rounds, rank: int) -> Who:
    here = node_of(rounds.states[rank])
    ranks = tuple(sorted(r for r, state in rounds.states.items() if node_of(state) == here))
    return Who("node", ranks, rounds.states[rank].host)


def on_most_gpus(rounds: Rounds, ranks: Collection[int], counter: Counter) -> Finding:
    """What the GPUs of a node have in common is at fault, rather than each of them."""
    who = _node(rounds, min(ranks))
    name = counter.name.replace("_", " ")
    return Finding(
        condition="suspicious",
        who=who,
        cause="errors-everywhere",
        what=f"{who} is suspicious: {name.removesuffix(' ns')} grew on {len(ranks)} of its GPUs",
        stage="counters_again",
        evidence=(Evidence(f"ranks that saw it grow: {fold(ranks)}", counter.name),),
        confidence=Confidence(
            "medium", "most GPUs of the node count it: it points at none of them"
        ),
        next=_LOOK[counter.scope],
    )


def usual_here(counter: Counter, ranks: Collection[int]) -> Finding:
    """Most nodes count them: of this machine, or of what lies between the nodes."""
    name = counter.name.replace("_", " ")
    return Finding(
        condition="unknown",
        who=Who("node"),
        cause="errors-everywhere",
        what=f"{name} grew on most nodes (read by rank {fold(ranks)}): it points at none of them",
        stage="counters_again",
        evidence=(Evidence(f"ranks that saw it grow: {fold(ranks)}", counter.name),),
        confidence=Confidence("low", "what most nodes have sets none apart"),
        next=_LOOK[counter.scope],
    )
