"""The causes of the stages that compare how fast the ranks are: one function each."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from oddrank.control.nodes import nodes_of
from oddrank.control.stages import Rounds
from oddrank.finding import Confidence, Evidence, Finding, Who, fold
from oddrank.selftest.classes import Look, Slow
from oddrank.selftest.findings.names import node_or_rank
from oddrank.selftest.metrics import SPEED, Metric

TOLD = 4
"""Of figures so many are in a sentence."""
# A slow socket or memory has several ranks of a node, as far as they are more than its sockets: so
# many others are well where it is rather the cores of one.
_LEAST_BESIDE = 2
_CORES = "other ranks of its node are not: likely another process on its cores, or its binding"
_WHO_ELSE = (
    "ps -eo psr,pcpu,user,pid,comm --sort=-pcpu | head -20"
    "  (on that host: what runs, and on which core)",
    "taskset -cp PID; cat /proc/PID/cgroup  (PID: of that rank)",
)
_GPU = ("nvidia-smi -q -d PERFORMANCE,CLOCK,PCIE",)
_HOST = ("top  (on that host)",)


def of_slow(rounds: Rounds, slow: Iterable[Slow]) -> list[Finding]:
    """One finding a rank or node, whatever it is slow in; the worst first."""
    by_ranks: dict[tuple[int, ...], list[Slow]] = defaultdict(list)
    for one in slow:
        by_ranks[one.ranks].append(one)
    named = {rank for ranks in by_ranks for rank in ranks}
    in_nodes = [(named.intersection(node), len(node)) for node in nodes_of(rounds)]
    single = {min(here) for here, size in in_nodes if len(here) == 1 and size > _LEAST_BESIDE}
    return [_slow(rounds, found, single) for found in by_ranks.values()]


def _slow(rounds: Rounds, found: Sequence[Slow], single: set[int]) -> Finding:
    """single: ranks that are the only slow one of their node, while several others are well."""
    worst = found[0]
    on_gpu = any(one.metric.scope == "gpu" for one in found)
    own_cores = not on_gpu and single.issuperset(worst.ranks)
    who = node_or_rank(rounds, worst.ranks) if worst.is_node else rounds.who(worst.ranks)
    told = [than(worst.metric, worst.below, " the median of its peers")]
    told += [than(one.metric, one.below) for one in found[1:TOLD]]
    more = [f"{len(found) - TOLD} more"] if len(found) > TOLD else []
    different = _different_facts(rounds, worst.ranks)
    cause = "slow-node" if worst.is_node else "slow-cores" if own_cores else "slow-rank"
    likely = [_CORES] if own_cores else []
    return Finding(
        condition="slow",
        who=who,
        cause=cause,
        what=f"{who} is slow: {'; '.join([', '.join(told + more), *different, *likely])}",
        stage=SPEED,
        evidence=(
            *(_evidence(one) for one in found),
            *(Evidence(fact, "facts of the rank") for fact in different),
        ),
        confidence=_confidence(worst),
        next=_GPU if on_gpu else _WHO_ELSE if own_cores else _HOST,
    )


def unsure(rounds: Rounds, seem: Sequence[Slow]) -> list[Finding]:
    """Measured again they still seem slow, but the figures vary too much to name them."""
    if not seem:
        return []
    worst = seem[0]
    who = rounds.who(worst.ranks)
    return [
        Finding(
            condition="unknown",
            who=who,
            cause="unsure",
            what=f"{who} seems slow ({than(worst.metric, worst.below, ' the median')}), and the"
            " figures vary too much to be sure",
            stage=SPEED,
            evidence=tuple(_evidence(one) for one in seem[:TOLD]),
            confidence=Confidence("low", "its lower bound is not beyond the line"),
            next=("oddrank selftest --only speed --full",),
        )
    ]


def not_measured_again(rounds: Rounds, ranks: Collection[int]) -> Finding:
    """The command ended before the second look."""
    some = Who("rank", tuple(sorted(ranks)))
    return Finding(
        condition="unknown",
        who=some,
        cause="not-measured-again",
        what=f"{some} may be slow, and there was no time to measure again",
        stage=SPEED,
        confidence=Confidence("low", "only measured once"),
        next=("oddrank selftest --only speed",),
    )


def held_back(rounds: Rounds, ranks: Sequence[int]) -> list[Finding]:
    """By the kernel, for their cgroups' CPU quota; one finding a host, or a container."""
    by_host: dict[str, list[int]] = defaultdict(list)
    for rank in ranks:
        by_host[rounds.states[rank].host].append(rank)
    return [_held_back(rounds, held) for held in by_host.values()]


def _held_back(rounds: Rounds, ranks: Sequence[int]) -> Finding:
    who = node_or_rank(rounds, ranks)
    results = [rounds.of(SPEED)[rank] for rank in ranks]
    least = min(result["held_back"] for result in results)
    quota = results[0]["facts"].get("CPU quota", "unknown")
    return Finding(
        condition="slow",
        who=who,
        cause="cpu-quota",
        what=f"{who} is slow: its CPU quota ({quota}) holds it back, and most ranks have another",
        stage=SPEED,
        evidence=(
            Evidence(
                f"held back in {least:.0%} of the kernel's periods", "cpu.stat of its cgroup", least
            ),
        ),
        confidence=Confidence("medium", "the kernel counts it; a quota is somebody's wish"),
        next=("cat /sys/fs/cgroup/cpu.max  (in its container)",),
    )


def smallest_seen(look: Look) -> str:
    """For the summary of a run in which nobody is slow; "" where nothing was compared."""
    scopes: dict[str, float] = {}
    for one in look.classes:
        scopes[one.metric.scope] = max(scopes.get(one.metric.scope, 0.0), one.visible())
    parts = [
        f"a {scope} slower by {seen:.0%} would have been seen"
        if seen < 1
        else f"how fast a {scope} is varies too much to compare"
        for scope, seen in scopes.items()
    ]
    if look.alone:
        parts.append(f"no peer to compare with has rank {fold(look.alone)}")
    return "".join(f"; {part}" for part in parts)


def than(metric: Metric, share: float, what: str = "") -> str:
    side = "below" if metric.better == "high" else "above"
    return f"{metric.label} {share:.1%} {side}{what}"


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


def _confidence(worst: Slow) -> Confidence:
    peers = "nodes" if worst.is_node else "ranks"
    if worst.level == "low":
        return Confidence("low", f"no more {peers} are well than are slow: those may be fast")
    few = f", against two other {peers}" if worst.level == "medium" else ""
    return Confidence(worst.level, f"measured twice{few}")


def _different_facts(rounds: Rounds, ranks: Sequence[int]) -> list[str]:
    """What all of these ranks have alike and most others have otherwise."""
    facts: Mapping[int, Mapping[str, str]] = {
        rank: result["facts"] for rank, result in rounds.of(SPEED).items()
    }
    found = []
    for name, value in facts.get(ranks[0], {}).items():
        others = Counter(
            own[name] for rank, own in facts.items() if rank not in ranks and name in own
        )
        usual, count = others.most_common(1)[0] if others else (value, 0)
        alike = all(facts[rank].get(name) == value for rank in ranks)
        if alike and usual != value and 2 * count > others.total():
            found.append(f"{name} {value}, its peers {usual}")
    return found
