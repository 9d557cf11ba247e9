"""Who is slower than its peers: from repeated figures to suspects and names. Pure.

A rank is held against the others of its class, and a node, by the medians of its ranks, against the
other nodes: where half of the ranks are slow since they share a node, that one is named. The first
look only doubts: whoever may lie beyond the line measures again, beside some that surely do not,
and only who surely lies beyond it then is named.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, TypeVar

from oddrank import peers
from oddrank.control.nodes import nodes_of
from oddrank.control.stages import Rounds
from oddrank.selftest import gpus, metrics
from oddrank.selftest.classes import Class, Look, Node
from oddrank.selftest.metrics import Metric
from oddrank.selftest.spread import sure_line, with_common_spread

Values = Mapping[int, Sequence[float]]
_Name = TypeVar("_Name", bound=Hashable)
# Fewer nodes can't tell what healthy ones differ by: only who lags by more than all of the effect
# looked for is named.
_FEW = 4


def as_data(rounds: Rounds) -> list[dict[str, Any]]:
    """What a report says of the comparison: a row a metric and class."""
    compared: Look | None = rounds.kept.get(metrics.SPEED)
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
        }
        for one in (compared.classes if compared else ())
    ]


def look(
    rounds: Rounds,
    stage: str,
    first: Look | None = None,
    good: Mapping[str, Collection[int]] | None = None,
) -> Look:
    """At the figures of `stage`. first: an earlier look, which this one is to confirm; good: by
    metric, the ranks to hold others against, if not everybody.
    """
    nodes = nodes_of(rounds)
    names = classes_of(rounds)
    shared = gpus.others(rounds)
    measured = [
        (metric, name, values)
        for metric in metrics.of_stage(metrics.SPEED if first else stage)
        for name, values in _by_class(metric, rounds.of(stage), names, shared)
    ]
    together = [one for one in measured if len(one[2]) > 1]
    count = sum(len(values) + len(_several(nodes, values)) for _, _, values in together)
    against = _Against(nodes, first.comparisons if first else count, good or {})
    found = []
    for metric, name, values in together:
        before = first.of(metric, name) if first else None
        if first is None or before is not None:
            found.append(against.judge(metric, name, values, before))
    if first is None:
        found = _with_common_spreads(found, against.comparisons)
    else:
        found = _with_sure_lines(found, against.comparisons, first)
    alone = {rank for _, _, values in measured if len(values) == 1 for rank in values}
    return Look(tuple(found), against.comparisons, tuple(sorted(alone)))


def _with_common_spreads(classes: Sequence[Class], comparisons: int) -> list[Class]:
    """Figures of one class of ranks that are judged alike have a common spread."""
    found = []
    for same, ranks, nodes in _alike(classes):
        smallest, groups = same[0].metric.smallest, _groups(nodes)
        by_rank = with_common_spread(ranks, smallest, comparisons, groups)
        by_node = iter(with_common_spread(nodes, smallest, comparisons))
        found += [
            replace(one, ranks=of_ranks, nodes=next(by_node, None))
            for one, of_ranks in zip(same, by_rank, strict=True)
        ]
    return found


def _with_sure_lines(classes: Sequence[Class], comparisons: int, first: Look) -> list[Class]:
    """Of the second look. A part of a class, chosen for seeming slow, differs by more than the
    whole class does, whose spread the first look tells well: it has no line of its own.
    """
    found = []
    for same, ranks, nodes in _alike(classes):
        before = first.of(same[0].metric, same[0].name)
        whole = before is not None and len(before.ranks.peers) == len(ranks[0].peers)
        smallest, groups = same[0].metric.smallest, _groups(nodes)
        sure_rank = sure_line(ranks, smallest, comparisons, groups) if whole else 0.0
        sure_node = smallest if groups < _FEW else 0.0
        if whole and groups >= _FEW:
            sure_node = sure_line(nodes, smallest, comparisons)
        found += [replace(one, sure_rank=sure_rank, sure_node=sure_node) for one in same]
    return found


def _alike(
    classes: Sequence[Class],
) -> Iterator[tuple[list[Class], list[peers.Comparison[int]], list[peers.Comparison[Node]]]]:
    """Figures of the same ranks that are judged alike: with their ranks, and their nodes if any."""
    alike: dict[Any, list[Class]] = defaultdict(list)
    for one in classes:
        alike[one.name, one.metric.smallest, frozenset(one.effects), one.nodes is None].append(one)
    for same in alike.values():
        yield same, [one.ranks for one in same], [one.nodes for one in same if one.nodes]


def _groups(nodes: Sequence[peers.Comparison[Node]]) -> int:
    return len(nodes[0].peers) if nodes else 0


def classes_of(rounds: Rounds) -> dict[str, dict[int, str]]:
    """Scope -> rank -> its class."""
    names: dict[str, dict[int, str]] = defaultdict(dict)
    for rank, result in rounds.of(metrics.SPEED).items():
        for scope, name in result["classes"].items():
            names[scope][rank] = name
    return names


def _by_class(
    metric: Metric,
    results: Mapping[int, Any],
    names: Mapping[str, Mapping[int, str]],
    shared: Collection[int],
) -> Iterator[tuple[str, dict[int, list[float]]]]:
    """A rank that has not measured it, or nothing that could be compared, is not there.

    Nor one of `shared`, where it is the GPU's figure: what it measures is others' as well.
    """
    classes: dict[str, dict[int, list[float]]] = defaultdict(dict)
    known = names.get(metric.scope, {})
    for rank, result in results.items():
        values = result.get(metric.name)
        if rank in shared and metric.scope != "host":
            continue
        if rank in known and values and min(values) > 0 and sum(values) < math.inf:
            classes[known[rank]][rank] = values
    return iter(classes.items())


@dataclass(frozen=True)
class _Against:
    """What is the same for all classes of a look: see `look`."""

    nodes: Sequence[Node]
    comparisons: int
    good: Mapping[str, Collection[int]]

    def judge(self, metric: Metric, name: str, measured: Values, before: Class | None) -> Class:
        good = set(self.good.get(metric.name, ()))
        ranks = self._compare(metric, measured, before.ranks if before else None, good)
        several = _several(self.nodes, measured)
        if before:  # of others only those ranks are here that may be slow
            whole = {node.name for node in before.nodes.peers} if before.nodes else set()
            several = [node for node in several if node in whole]
        if len(several) < 2:
            return Class(metric, name, ranks, None)
        middles = {node: _middle(node, measured) for node in several}
        good_nodes = [node for node in several if good.issuperset(node)]
        nodes = self._compare(metric, middles, before.nodes if before else None, good_nodes)
        return Class(metric, name, ranks, nodes)

    def _compare(
        self,
        metric: Metric,
        measured: Mapping[_Name, Sequence[float]],
        before: peers.Comparison[_Name] | None,
        good: Collection[_Name],
    ) -> peers.Comparison[_Name]:
        return peers.compare(
            measured,
            smallest=metric.smallest,
            better=metric.better,
            comparisons=self.comparisons,
            spread=before.spread if before else None,
            line=before.line if before else None,
            good=good,
        )


def _several(nodes: Sequence[Node], measured: Collection[int]) -> list[Node]:
    """Those with several ranks that have measured; of these alone."""
    here = [tuple(rank for rank in node if rank in measured) for node in nodes]
    return [node for node in here if len(node) > 1]


def _middle(node: Node, measured: Values) -> list[float]:
    """The median of its ranks in each repeat."""
    low, high = (len(node) - 1) // 2, len(node) // 2
    repeats = map(sorted, zip(*(measured[rank] for rank in node), strict=False))
    return [(ordered[low] + ordered[high]) / 2 for ordered in repeats]
