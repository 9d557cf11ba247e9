"""Findings of the stages speed and speed_recheck: one function per cause."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from oddrank.control.stages import RunState, nodes_of
from oddrank.finding import Evidence, Finding, Level, Row, Who, ranks_text
from oddrank.selftest import metrics
from oddrank.selftest.metrics import Metric
from oddrank.selftest.nodes import node_or_rank
from oddrank.selftest.speed_judge import Look, Slow

TOLD = 4
"""Figures in a sentence."""
# A slow socket or memory slows several ranks of a node. If one rank is slow and at least so many
# others are not, its own cores are the likelier cause.
_LEAST_BESIDE = 2
_CORES = "other ranks of its node are not: likely another process on its cores, or its binding"
_WHO_ELSE = (
    "ps -eo psr,pcpu,user,pid,comm --sort=-pcpu | head -20"
    "  (on that host: what runs, and on which core)",
    "taskset -cp PID; cat /proc/PID/cgroup  (PID: of that rank)",
)
# fmt: off
_SURE: tuple[Level, str] = ("high", "measured twice")
SLOW_NODE = Row("slow-node", "slow", "{who} is slow: {told}", _SURE, drains_node=True)
SLOW_RANK = Row("slow-rank", "slow", "{who} is slow: {told}", _SURE, drains_node=True)
# Likely another process, not hardware.
SLOW_CORES = Row("slow-cores", "slow", "{who} is slow: {told}; " + _CORES, _SURE)
UNSURE = Row(
    "unsure", "unknown",
    "{who} seems slow ({than}), but the figures vary too much to be sure",
    ("low", "its slowdown may be too small to name it"), ("oddrank selftest --only speed --full",))
NOT_MEASURED_AGAIN = Row(
    "not-measured-again", "unknown", "{who} may be slow: no time was left to measure again",
    ("low", "only measured once"), ("oddrank selftest --only speed",))
# fmt: on
_GPU = ("nvidia-smi -q -d PERFORMANCE,CLOCK,PCIE",)
_HOST = ("top  (on that host)",)


def of_slow(run: RunState, slow: Iterable[Slow]) -> list[Finding]:
    """Makes one finding per rank or node, of all its slow figures; the worst first."""
    by_ranks: dict[tuple[int, ...], list[Slow]] = defaultdict(list)
    for one in slow:
        by_ranks[one.ranks].append(one)
    named = {rank for ranks in by_ranks for rank in ranks}
    in_nodes = [(named.intersection(node), len(node)) for node in nodes_of(run)]
    single = {min(here) for here, size in in_nodes if len(here) == 1 and size > _LEAST_BESIDE}
    return [_slow(run, found, single) for found in by_ranks.values()]


def _slow(run: RunState, found: Sequence[Slow], single: set[int]) -> Finding:
    """single: ranks that are the only slow one of their node, with several others."""
    worst = found[0]
    on_gpu = any(one.metric.scope == "gpu" for one in found)
    own_cores = not on_gpu and single.issuperset(worst.ranks)
    who = node_or_rank(run, worst.ranks) if worst.is_node else run.who(worst.ranks)
    told = [than(worst.metric, worst.below, " the median of its peers")]
    told += [than(one.metric, one.below) for one in found[1:TOLD]]
    more = [f"{len(found) - TOLD} more"] if len(found) > TOLD else []
    row = SLOW_NODE if worst.is_node else SLOW_CORES if own_cores else SLOW_RANK
    row = replace(
        row,
        sure=_sure(worst),
        next=_GPU if on_gpu else _WHO_ELSE if own_cores else _HOST,
    )
    return row.found(who, *map(_evidence, found), told=", ".join(told + more))


def unsure(run: RunState, seem: Sequence[Slow]) -> list[Finding]:
    """Ranks still seem slow in the recheck, but the figures vary too much to name them."""
    if not seem:
        return []
    worst = seem[0]
    told = than(worst.metric, worst.below, " the median")
    return [UNSURE.found(run.who(worst.ranks), *map(_evidence, seem[:TOLD]), than=told)]


def not_measured_again(ranks: Collection[int]) -> Finding:
    """Ranks in doubt were not measured again."""
    return NOT_MEASURED_AGAIN.found(Who("rank", tuple(sorted(ranks))))


def smallest_seen(look: Look) -> str:
    """Returns the part of the summary that says which slowdown would be found; "" if none."""
    seen: dict[metrics.Scope, float] = {}
    varies: dict[metrics.Scope, dict[str, None]] = defaultdict(dict)
    for one in look.classes:
        scope, visible = one.metric.scope, one.visible()
        if visible < 1:
            seen[scope] = max(seen.get(scope, 0.0), visible)
        else:
            varies[scope][one.metric.label] = None
    parts = [
        f"smallest slowdown this run could detect: {most:.0%} ({scope})"
        for scope, most in seen.items()
    ]
    for scope, labels in varies.items():
        names = [*labels] if scope in seen else [f"the speed of the {scope}"]
        vary = "vary" if len(names) > 1 else "varies"
        parts.append(f"{', '.join(names)} {vary} too much to compare")
    if look.alone:
        have = "has" if len(look.alone) == 1 else "have"
        parts.append(f"{ranks_text(look.alone)} {have} no peer to compare with")
    return "".join(f"; {part}" for part in parts)


def than(metric: Metric, share: float, what: str = "") -> str:
    return f"{metric.label} {share:.1%} below{what}"


def _evidence(one: Slow) -> Evidence:
    metric, peer = one.metric, one.peer
    return Evidence(
        metric.label,
        metric.name,
        peer.value,
        metric.unit or None,
        peer.reference,
        one.spread or None,
    )


def _sure(worst: Slow) -> tuple[Level, str]:
    peers = "nodes" if worst.is_node else "ranks"
    if worst.level == "low":
        return "low", f"half of the {peers} or more are slow: the others may be unusually fast"
    few = f", against two other {peers}" if worst.level == "medium" else ""
    return worst.level, f"measured twice{few}"
