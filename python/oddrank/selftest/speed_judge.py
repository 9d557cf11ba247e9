"""Finds ranks and nodes slower than their peers, from repeated figures. Pure.

A rank is compared with the others of its class, and a node, by the medians of its ranks, with the
other nodes: ranks that are slow because they share a node are named as that node. The first
measurement names no rank: ranks that may lie beyond the line measure again, beside ranks that do
not. Only ranks that surely lie beyond the line in the recheck are named.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import Any, Literal, TypeAlias, TypeVar

from oddrank import peers
from oddrank.control.stages import RunState, nodes_of
from oddrank.finding import Level, grouped
from oddrank.selftest import gpus

Scope = Literal["host", "gpu"]


@dataclass(frozen=True)
class Metric:
    """A figure that every rank measures repeatedly: `result[name]` of stage speed, rates.

    smallest: the smallest effect looked for, as a share. scope: its peers are ranks with the same
    class of host or GPU; ranks without that class are not compared. repeats: in the first
    measurement. most: at most so many in the recheck.
    """

    name: str
    label: str
    unit: str
    smallest: float
    scope: Scope
    repeats: int = 0
    most: int = 0

    @property
    def doubt(self) -> float:
        """Ranks within so many standard errors below the line measure again.

        One in 20 ranks that are as slow as the line is missed. 0 for hosts: other programs there
        would cause doubts in every run.
        """
        return 0.0 if self.scope == "host" else 1.645


# A rank's result of the stages speed and speed_recheck: by name a list of figures for each metric
# that it measured; classes: scope -> its class.
Measured: TypeAlias = "Mapping[str, Any]"

SPEED = "speed"

# Ranks share their host with each other and with other programs: only large effects count there. A
# GPU has one rank.
_HOST = 0.3
_HBM = 0.03
_GEMM = 0.05  # clocks follow the power that each chip needs
_LINK = 0.1  # other GPUs of the host use its memory and switches at the same time

TABLE = (
    Metric("host_read", "host memory read", "GB/s", _HOST, "host", 9, 20),
    Metric("host_write", "host memory write", "GB/s", _HOST, "host", 9, 20),
    Metric("host_copy", "host memory copy", "GB/s", _HOST, "host", 9, 20),
    Metric("host_compute", "host arithmetic", "GFLOP/s", _HOST, "host", 5, 8),
    # A repeat of GPU memory takes a millisecond or two: there is time for many.
    Metric("gpu_read", "GPU memory read", "GB/s", _HBM, "gpu", 9, 400),
    Metric("gpu_write", "GPU memory write", "GB/s", _HBM, "gpu", 9, 400),
    Metric("gpu_copy", "GPU memory copy", "GB/s", _HBM, "gpu", 9, 400),
    Metric("pcie_to_device", "host to GPU", "GB/s", _LINK, "gpu", 9, 200),
    Metric("pcie_to_host", "GPU to host", "GB/s", _LINK, "gpu", 9, 200),
    Metric("gemm_bf16", "bf16 matrix product", "TFLOP/s", _GEMM, "gpu", 9, 45),
    Metric("gemm_fp16", "fp16 matrix product", "TFLOP/s", _GEMM, "gpu", 9, 45),
    Metric("gemm_tf32", "tf32 matrix product", "TFLOP/s", _GEMM, "gpu", 9, 45),
    Metric("gemm_fp32", "fp32 matrix product", "TFLOP/s", _GEMM, "gpu", 9, 45),
    Metric("gemm_fp8", "fp8 matrix product", "TFLOP/s", _GEMM, "gpu", 9, 45),
)

Node = tuple[int, ...]

Values = Mapping[int, Sequence[float]]
# Fewer nodes don't show what healthy nodes differ by: a node is named only if it is slower by more
# than the smallest effect looked for.
_FEW = 4


@dataclass(frozen=True)
class Slow:
    """A rank, or the ranks of a node, that may be slower than its peers by one metric."""

    metric: Metric
    ranks: tuple[int, ...]
    is_node: bool
    peer: peers.Peer[Any]
    spread: float
    level: Level  # confidence in the name, by the number of peers

    @property
    def below(self) -> float:
        """Distance of its figure from its peers' median, as a share of the median."""
        return abs(self.peer.value / self.peer.reference - 1)


@dataclass(frozen=True)
class Class:
    """The ranks that are compared with each other by one metric, and their nodes.

    nodes: None if fewer than two nodes have several ranks of the class. sure_rank, sure_node: a
    rank or node is named from this effect on; between the line and this it only seems slow.
    """

    metric: Metric
    name: str
    ranks: peers.Comparison[int]
    nodes: peers.Comparison[Node] | None
    sure_rank: float = 0.0
    sure_node: float = 0.0

    def slow(self) -> Iterator[Slow]:
        """Yields nodes that surely are slow, then ranks whose node does not explain it.
        If half or more are slow, the others may be unusually fast: confidence is low."""
        found = list(self._chosen(lambda peer, found, sure: found.is_slow(peer, sure)))
        for one in found:
            alike = sum(other.is_node == one.is_node for other in found)
            all_ = self.nodes if one.is_node and self.nodes else self.ranks
            yield replace(one, level="low") if 2 * alike >= len(all_.peers) else one

    def seems_slow(self) -> Iterator[Slow]:
        return self._chosen(lambda peer, found, sure: peer.effect > found.line)

    def doubted(self) -> set[int]:
        """Returns ranks that may be slow, and the ranks of nodes that may be slow."""
        times = self.metric.doubt
        doubted = {peer.name for peer in self.ranks.peers if _may_be_slow(peer, self.ranks, times)}
        if self.nodes:
            for node in self.nodes.peers:
                if _may_be_slow(node, self.nodes, times) and self._is_slow_throughout(node.name):
                    doubted |= set(node.name)
        return doubted

    def _chosen(self, is_chosen: Any) -> Iterator[Slow]:
        explained: dict[int, float] = {}
        if self.nodes:
            for node in self.nodes.peers:
                if node.effect > self.nodes.line and self._is_slow_throughout(node.name):
                    explained |= dict.fromkeys(node.name, node.effect)
                    if is_chosen(node, self.nodes, self.sure_node):
                        yield self._slow(node.name, node, self.nodes, is_node=True)
        for peer in self.ranks.peers:
            if not is_chosen(peer, self.ranks, self.sure_rank):
                continue
            left = (1 + peer.lower) / (1 + explained.get(peer.name, 0.0)) - 1
            if peer.name not in explained or left > self.ranks.line:
                yield self._slow((peer.name,), peer, self.ranks, is_node=False)

    def _slow(
        self, ranks: Node, peer: peers.Peer[Any], found: peers.Comparison[Any], *, is_node: bool
    ) -> Slow:
        return Slow(self.metric, ranks, is_node, peer, found.spread, found.level)

    def _is_slow_throughout(self, node: Node) -> bool:
        """Returns whether most ranks of the node are slow, not a few only."""
        half = peers.LINE * self.metric.smallest / 2  # if half of all ranks are slow, effects halve
        slow = sum(self.effects[rank] > half for rank in node)
        return 2 * slow > len(node)

    def visible(self) -> float:
        """Returns the smallest effect that would be named in 95 of 100 runs."""
        most = self.metric.most
        return self.ranks.visible_after(most) if most else self.ranks.visible

    @cached_property
    def effects(self) -> dict[int, float]:
        return {peer.name: peer.effect for peer in self.ranks.peers}


@dataclass(frozen=True)
class Look:
    """One comparison of all classes of a stage. alone: ranks without a peer by some metric."""

    classes: tuple[Class, ...]
    comparisons: int
    alone: tuple[int, ...]

    def slow(self) -> list[Slow]:
        return _worst_first(slow for one in self.classes for slow in one.slow())

    def seem_slow(self) -> list[Slow]:
        return _worst_first(slow for one in self.classes for slow in one.seems_slow())

    def of(self, metric: Metric, name: str) -> Class | None:
        return next((c for c in self.classes if (c.metric, c.name) == (metric, name)), None)


def _may_be_slow(peer: peers.Peer[Any], found: peers.Comparison[Any], times: float) -> bool:
    """Returns whether a peer would be beyond the line with so many standard errors more."""
    error = (peer.effect - peer.lower) / found.z if times else 0.0
    return peer.effect + times * error > found.line


def _worst_first(found: Iterable[Slow]) -> list[Slow]:
    return sorted(found, key=lambda slow: -slow.peer.effect / slow.metric.smallest)


_Name = TypeVar("_Name", bound=Hashable)


def as_data(compared: Look | None) -> list[dict[str, Any]]:
    """Returns the report's rows on the comparison, one for each metric and class."""
    return [
        {
            "metric": one.metric.name,
            "class": one.name,
            "unit": one.metric.unit,
            "ranks": len(one.ranks.peers),
            "median": median(peer.value for peer in one.ranks.peers),
            "line": one.ranks.line,
            "noise": one.ranks.noise,
            "spread": one.ranks.spread,
            "visible": one.visible(),
            "worst": one.ranks.peers[0].value,
            "worst_rank": one.ranks.peers[0].name,
        }
        for one in (compared.classes if compared else ())
    ]


def look(
    run: RunState,
    results: Mapping[int, Measured],
    first: Look | None = None,
    good: Mapping[str, Collection[int]] | None = None,
) -> Look:
    """Compares the figures of a stage.

    results: of that stage. first: the first comparison, if this is the recheck. good: metric -> the
    only ranks to compare others with.
    """
    nodes = nodes_of(run)
    names = classes_of(run)
    shared = gpus.others(run)
    measured = [
        (metric, name, values)
        for metric in TABLE
        for name, values in _by_class(metric, results, names, shared)
    ]
    together = [one for one in measured if len(one[2]) > 1]
    count = sum(len(values) + len(_several(nodes, values)) for _, _, values in together)
    comparisons = first.comparisons if first else count
    found = []
    for row in together:
        before = first.of(*row[:2]) if first else None
        if first is None or before is not None:
            found.append(_compared(nodes, comparisons, good or {}, row, before))
    if first is None:
        found = _with_common_spreads(found, comparisons)
    else:
        found = _with_sure_lines(found, comparisons, first)
    alone = {rank for _, _, values in measured if len(values) == 1 for rank in values}
    return Look(tuple(found), comparisons, tuple(sorted(alone)))


def _with_common_spreads(classes: Sequence[Class], comparisons: int) -> list[Class]:
    """Gives figures of the same ranks that are judged alike a common spread."""
    found = []
    for same, ranks, nodes in _alike(classes):
        smallest, groups = same[0].metric.smallest, _groups(nodes)
        by_rank = peers.with_common_spread(ranks, smallest, comparisons, groups)
        by_node = iter(peers.with_common_spread(nodes, smallest, comparisons))
        found += [
            replace(one, ranks=of_ranks, nodes=next(by_node, None))
            for one, of_ranks in zip(same, by_rank, strict=True)
        ]
    return found


def _with_sure_lines(classes: Sequence[Class], comparisons: int, first: Look) -> list[Class]:
    """Adds the lines of the recheck, if it has all ranks of the class.
    Ranks that were chosen because they seem slow differ more than the whole class."""
    found = []
    for same, ranks, nodes in _alike(classes):
        before = first.of(same[0].metric, same[0].name)
        whole = before is not None and len(before.ranks.peers) == len(ranks[0].peers)
        smallest, groups = same[0].metric.smallest, _groups(nodes)
        sure_rank = peers.sure_line(ranks, smallest, comparisons, groups) if whole else 0.0
        sure_node = smallest if groups < _FEW else 0.0
        if whole and groups >= _FEW:
            sure_node = peers.sure_line(nodes, smallest, comparisons)
        found += [replace(one, sure_rank=sure_rank, sure_node=sure_node) for one in same]
    return found


def _alike(
    classes: Sequence[Class],
) -> Iterator[tuple[list[Class], list[peers.Comparison[int]], list[peers.Comparison[Node]]]]:
    """Yields figures of the same ranks that are judged alike: classes, by rank, by node if any."""
    alike = grouped(
        ((one.name, one.metric.smallest, frozenset(one.effects), one.nodes is None), one)
        for one in classes
    )
    for same in alike.values():
        yield same, [one.ranks for one in same], [one.nodes for one in same if one.nodes]


def _groups(nodes: Sequence[peers.Comparison[Node]]) -> int:
    return len(nodes[0].peers) if nodes else 0


def classes_of(run: RunState) -> dict[str, dict[int, str]]:
    """Returns scope -> rank -> its class."""
    names: dict[str, dict[int, str]] = defaultdict(dict)
    for rank, result in run.of(SPEED).items():
        for scope, name in result["classes"].items():
            names[scope][rank] = name
    return names


def _by_class(
    metric: Metric,
    results: Mapping[int, Measured],
    names: Mapping[str, Mapping[int, str]],
    shared: Collection[int],
) -> Iterator[tuple[str, dict[int, list[float]]]]:
    """Returns (class, rank -> values) of ranks with values that can be compared.
    Leaves out GPU figures of the ranks in `shared`: others use their GPUs, too."""
    classes: dict[str, dict[int, list[float]]] = defaultdict(dict)
    known = names.get(metric.scope, {})
    for rank, result in results.items():
        values: list[float] | None = result.get(metric.name)
        if rank in shared and metric.scope != "host":
            continue
        if rank in known and values and min(values) > 0 and sum(values) < math.inf:
            classes[known[rank]][rank] = values
    return iter(classes.items())


def _compared(
    nodes: Sequence[Node], comparisons: int, good: Mapping[str, Collection[int]],
    row: tuple[Metric, str, Values], before: Class | None,
) -> Class:  # fmt: skip
    """Compares the ranks of a class by one metric, and their nodes. The rest: see `look`."""
    metric, name, measured = row

    def compare(
        values: Mapping[_Name, Sequence[float]],
        first: peers.Comparison[_Name] | None,
        good: Collection[_Name],
    ) -> peers.Comparison[_Name]:
        spread, line = (first.spread, first.line) if first else (None, None)
        return peers.compare(
            values, smallest=metric.smallest, better="high", comparisons=comparisons,
            spread=spread, line=line, good=good,
        )  # fmt: skip

    known = set(good.get(metric.name, ()))
    ranks = compare(measured, before.ranks if before else None, known)
    several = _several(nodes, measured)
    if before:  # other nodes have only some of their ranks here
        whole = {node.name for node in before.nodes.peers} if before.nodes else set()
        several = [node for node in several if node in whole]
    if len(several) < 2:
        return Class(metric, name, ranks, None)
    middles = {node: _middle(node, measured) for node in several}
    good_nodes = [node for node in several if known.issuperset(node)]
    by_node = compare(middles, before.nodes if before else None, good_nodes)
    return Class(metric, name, ranks, by_node)


def _several(nodes: Sequence[Node], measured: Collection[int]) -> list[Node]:
    """Returns the ranks that have measured by node, for nodes with several of them."""
    here = [tuple(rank for rank in node if rank in measured) for node in nodes]
    return [node for node in here if len(node) > 1]


def _middle(node: Node, measured: Values) -> list[float]:
    """Returns the median of the node's ranks in each repeat."""
    low, high = (len(node) - 1) // 2, len(node) // 2
    repeats = map(sorted, zip(*(measured[rank] for rank in node), strict=False))
    return [(ordered[low] + ordered[high]) / 2 for ordered in repeats]
