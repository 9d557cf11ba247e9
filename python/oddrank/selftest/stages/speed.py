"""Compares the speed of every rank's device with its peers': memory, arithmetic, PCIe.

Ranks in doubt measure again, beside peers that are not.
"""

import itertools
import math
import os
import socket
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from types import ModuleType
from typing import Any, TypedDict

from oddrank.control.stages import Context, RunState, Skip, Stage, nodes_of
from oddrank.finding import Evidence, Finding, Level, Row, Who, grouped, ranks_text
from oddrank.job import job_name
from oddrank.peers import MANY, MEDIAN
from oddrank.selftest import Options, speed_judge
from oddrank.selftest.nodes import node_or_rank
from oddrank.selftest.speed_judge import SPEED, Class, Look, Measured, Metric, Scope, Slow
from oddrank.selftest.stages import device

RECHECK = "speed_recheck"
_CORES_EACH = 4  # one measuring thread for so many cores: they hardly share the memory's bandwidth
# After so many seconds without a slot a rank measures beside others.
_PATIENCE = 20.0
_LOOK_EVERY = 0.02


class Plan(TypedDict):
    """By metric the repeats, and the ranks that measure it (None: all)."""

    device: str
    repeats: dict[str, int]
    ranks: Mapping[str, Sequence[int]] | None


def parameters(
    run: RunState, repeats: Mapping[str, int], ranks: Mapping[str, Sequence[int]] | None = None
) -> Plan:
    return {"device": device.tested(run), "repeats": dict(repeats), "ranks": ranks}


def measure(context: Context[Plan]) -> Measured:
    """Returns each planned metric's figures by name; none on a rank that is not planned for it."""
    params, launch = context.parameters, context.launch
    found: dict[str, Any] = {"classes": {}}
    repeats = {
        name: count
        for name, count in params["repeats"].items()
        if params["ranks"] is None or launch.rank in params["ranks"][name]
    }
    rows = [row for row in speed_judge.TABLE if row.name in repeats]
    for scope, probe in device.probes_of(params["device"]).items():
        wanted = {row.name: repeats[row.name] for row in rows if row.scope == scope}
        if not wanted:
            continue
        figures = _figures(context, scope, probe, wanted)
        found["classes"][scope] = probe.kind(launch)
        # Five digits exceed the accuracy; more would only cost messages of 10,000 ranks.
        for name, values in figures.items():
            found[name] = [float(f"{value:.5g}") for value in values]
    return found


def _figures(
    context: Context[object], scope: str, probe: ModuleType, wanted: Mapping[str, int]
) -> dict[str, list[float]]:
    """Measures each metric as often as wanted, A_TURN repeats per turn."""
    figures: dict[str, list[float]] = defaultdict(list)
    slots = HostSlots(context)
    together: dict[str, dict[str, int]] = defaultdict(dict)
    for name, count in wanted.items():
        together[probe.alone(context.launch, name)][name] = count
    for alone, left in together.items():
        for number in itertools.count():
            now = {name: min(count, probe.A_TURN) for name, count in left.items()}
            with slots.turn(f"how fast the {scope} is", alone) as place, probe.at(number + place):
                for name, values in probe.speed(context.launch, now).items():
                    figures[name] += values
            for name, count in now.items():
                left[name] -= count
                if not left[name]:
                    del left[name]
            if not left:
                break
    return figures


class HostSlots:
    """The turns of one rank in one stage. Waits at most _PATIENCE seconds, all turns together."""

    def __init__(self, context: Context[object]) -> None:
        self._context = context
        self._end = time.monotonic() + min(_PATIENCE, context.seconds / 4)
        self._places = max(1, (os.cpu_count() or 1) // _CORES_EACH)
        # A name without a file: the kernel forgets it with the socket.
        self._name = f"\0oddrank-{os.geteuid()}-{job_name()}"[:80]
        self._has_had_one = False

    @contextmanager
    def turn(self, what: str, alone: str = "") -> Iterator[int]:
        """Waits for a free slot of the host and reports so. A rank that ends frees its slot.

        alone: a part of the host, which then has one slot; "": any slot. Yields the slot's number;
        the rank's number on its host if none came free in time.
        """
        slots = [alone] if alone else [str(place) for place in range(self._places)]
        self._context.step(f"wait for its turn to measure {what}", waiting=True)
        if self._has_had_one:
            time.sleep(2 * _LOOK_EVERY)  # lets a waiting rank take it
        self._has_had_one = True
        place = None
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as lock:
            while place is None and time.monotonic() < self._end:
                taken = (i for i, one in enumerate(slots) if _take(lock, f"{self._name}-{one}"))
                place = next(taken, None)
                if place is None:
                    time.sleep(_LOOK_EVERY)
            self._context.step(f"measure {what}")
            yield self._context.launch.local_rank if place is None else place


def _take(lock: socket.socket, name: str) -> bool:
    try:
        lock.bind(name)
    except OSError:
        return False
    return True


# Per class and metric: at most so many ranks in doubt, the slowest first, and so many partners.
_MOST_DOUBTED = 256
_PARTNERS = 64
# In the recheck z standard errors are to be this share of the smallest effect looked for.
_MARGIN = 0.1


@dataclass(frozen=True)
class Remeasure:
    """The plan of the recheck, by metric.

    doubted: ranks in doubt. partners: the ranks that measure beside them. good: in large
    classes the partners, as the only peers to compare with. left: ranks that were slow in the first
    measurement, but too many to measure again.
    """

    repeats: dict[str, int] = field(default_factory=dict)
    doubted: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    partners: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    good: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    left: set[int] = field(default_factory=set)

    def ranks(self) -> dict[str, list[int]]:
        return {name: sorted(self.doubted[name] | self.partners[name]) for name in self.repeats}

    def of_doubted(self, found: Iterable[Slow]) -> list[Slow]:
        return [one for one in found if self.doubted[one.metric.name].issuperset(one.ranks)]


def plan_recheck(run: RunState, first: Look) -> Remeasure:
    """Plans the recheck of all classes in one go, since each rank measures by itself."""
    planned = Remeasure()
    nodes = nodes_of(run)
    for one in first.classes:
        doubted = one.doubted()
        if not doubted:
            continue
        name = one.metric.name
        slowest = [peer for peer in one.ranks.peers if peer.name in doubted]
        planned.left.update(
            peer.name for peer in slowest[_MOST_DOUBTED:] if one.ranks.is_slow(peer)
        )
        partners = _partners(one, doubted, nodes)
        planned.doubted[name].update(peer.name for peer in slowest[:_MOST_DOUBTED])
        planned.partners[name] |= partners
        if len(one.ranks.peers) >= MANY:
            planned.good[name] |= partners
        planned.repeats[name] = max(planned.repeats.get(name, 0), _repeats(one))
    return planned


def _partners(one: Class, doubted: Collection[int], nodes: Iterable[tuple[int, ...]]) -> set[int]:
    """Returns the ranks to measure beside `doubted`: all others of a small class.

    In a large class those nearest to the usual speed, as ranks without doubts are faster than
    average. Takes whole nodes without doubts first.
    """
    effects = one.effects
    if len(effects) < MANY:
        return set(effects) - set(doubted)
    whole: list[list[int]] = []
    other: list[list[int]] = []
    for node in nodes:
        here = [rank for rank in node if rank in effects]
        known = [rank for rank in here if rank not in doubted]
        if here and known == here:
            whole.append(here)
        else:
            other += ([rank] for rank in known)
    for some in (whole, other):
        some.sort(key=lambda ranks: abs(median(effects[rank] for rank in ranks)))
    return set(list(itertools.chain(*whole, *other))[:_PARTNERS])


def _repeats(one: Class) -> int:
    """Returns how many repeats make the noise small against the smallest effect looked for."""
    metric = one.metric
    if one.ranks.noise is None:
        return metric.most
    wanted = (one.ranks.z * MEDIAN * one.ranks.noise / (_MARGIN * metric.smallest)) ** 2
    return max(metric.repeats, min(metric.most, math.ceil(wanted)))


@dataclass(frozen=True)
class Judged:
    look: Look
    doubted: Remeasure


def _findings(run: RunState, judged: Judged) -> list[Finding]:
    doubted = {rank for one in judged.look.classes for rank in one.doubted()}
    return [not_measured_again(doubted)] if doubted else []


def judged(run: RunState) -> Judged:
    first: Judged = run.judged[SPEED]
    return first


def _judge_again(run: RunState, results: Mapping[int, Measured]) -> list[Finding]:
    first = judged(run)
    doubted, before = first.doubted, {(one.metric, one.ranks) for one in first.look.slow()}
    again = speed_judge.look(run, results, first.look, doubted.good)
    slow = [
        one
        for one in doubted.of_doubted(again.slow())
        if one.metric.scope != "host"
        # On a shared host a rank is named only if it was slow in the first measurement, too.
        or (one.metric, one.ranks) in before
    ]
    # Other programs make a host's figures vary: the summary says what could be detected.
    seem = [one for one in doubted.of_doubted(again.seem_slow()) if one.metric.scope != "host"]
    found = of_slow(run, slow) or unsure(run, seem)
    left = first.doubted.left
    return found + ([not_measured_again(left)] if left else [])


def stage(options: Options) -> Stage[Plan, Measured, Judged]:
    """Compares all ranks once. Names no rank: ranks in doubt are measured again, see `recheck`."""

    def make_plan(run: RunState) -> Plan | Skip:
        tested = device.make_plan(run)
        if isinstance(tested, Skip):
            return tested
        return parameters(run, {one.name: one.repeats for one in speed_judge.TABLE})

    def judge(run: RunState, results: Mapping[int, Measured]) -> Judged:
        look = speed_judge.look(run, results)
        return Judged(look, plan_recheck(run, look))

    return Stage(SPEED, 90, measure, judge, make_plan, _findings)


def recheck(options: Options) -> Stage[Plan, Measured, list[Finding]]:
    """Measures ranks in doubt again, beside ranks that are not. Names the slow ones."""

    def make_plan(run: RunState) -> Plan:
        doubted = judged(run).doubted
        return parameters(run, doubted.repeats, doubted.ranks())

    return Stage(RECHECK, 90, measure, _judge_again, make_plan, confirms=SPEED)


TOLD = 4  # figures in a sentence
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
    by_ranks = grouped((one.ranks, one) for one in slow)
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
        row, sure=_sure(worst), next=_GPU if on_gpu else _WHO_ELSE if own_cores else _HOST
    )
    return row.found(who, *map(_evidence, found), told=", ".join(told + more))


def unsure(run: RunState, seem: Sequence[Slow]) -> list[Finding]:
    if not seem:
        return []
    worst = seem[0]
    told = than(worst.metric, worst.below, " the median")
    return [UNSURE.found(run.who(worst.ranks), *map(_evidence, seem[:TOLD]), than=told)]


def not_measured_again(ranks: Collection[int]) -> Finding:
    return NOT_MEASURED_AGAIN.found(Who("rank", tuple(sorted(ranks))))


def smallest_seen(look: Look) -> str:
    """Returns the part of the summary that says which slowdown would be found; "" if none."""
    seen: dict[Scope, float] = {}
    varies: dict[Scope, dict[str, None]] = defaultdict(dict)
    for one in look.classes:
        scope, visible = one.metric.scope, one.visible()
        if visible < 1:
            seen[scope] = max(seen.get(scope, 0.0), visible)
        else:
            varies[scope][one.metric.label] = None
    least = ", ".join(f"{most:.0%} ({scope})" for scope, most in seen.items())
    parts = [f"smallest slowdown this run could detect: {least}"] if least else []
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
    metric, peer, spread = one.metric, one.peer, one.spread or None
    return Evidence(metric.label, metric.name, peer.value, metric.unit, peer.reference, spread)


def _sure(worst: Slow) -> tuple[Level, str]:
    peers = "nodes" if worst.is_node else "ranks"
    if worst.level == "low":
        return "low", f"half of the {peers} or more are slow: the others may be unusually fast"
    few = f", against two other {peers}" if worst.level == "medium" else ""
    return worst.level, f"measured twice{few}"
