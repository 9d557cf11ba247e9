"""What a look at figures shows: the classes of peers, who is slow, and who only seems so. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from oddrank import peers
from oddrank.selftest.metrics import Metric

Node = tuple[int, ...]


@dataclass(frozen=True)
class Slow:
    """A rank, or the ranks of a node, that may be slower than its peers by one metric."""

    metric: Metric
    ranks: tuple[int, ...]
    is_node: bool
    peer: peers.Peer[Any]
    spread: float
    level: peers.Level
    """How sure a name is, by how many peers there are."""

    @property
    def below(self) -> float:
        """How far its figure is from its peers' median, as a share of that."""
        return abs(self.peer.value / self.peer.reference - 1)

    @property
    def badness(self) -> float:
        return self.peer.effect / self.metric.smallest


@dataclass(frozen=True)
class Class:
    """The ranks that are compared with each other by one metric, and their nodes.

    nodes: None where there are fewer than two with several ranks of the class. sure_rank,
    sure_node: who is named lags by this at least; between the line and this one only seems slow.
    """

    metric: Metric
    name: str
    ranks: peers.Comparison[int]
    nodes: peers.Comparison[Node] | None
    sure_rank: float = 0.0
    sure_node: float = 0.0

    def slow(self) -> Iterator[Slow]:
        """Those that surely are: the nodes, then the ranks whose node does not explain it.

        Where they are half of all, nobody can say which half is odd.
        """
        found = list(self._chosen(lambda peer, found, sure: peer.lower > max(found.line, sure)))
        for one in found:
            alike = sum(other.is_node == one.is_node for other in found)
            all_ = self.nodes if one.is_node and self.nodes else self.ranks
            yield replace(one, level="low") if 2 * alike >= len(all_.peers) else one

    def seems_slow(self) -> Iterator[Slow]:
        return self._chosen(lambda peer, found, sure: peer.effect > found.line)

    def doubted(self) -> set[int]:
        """Ranks that may be slow, and the ranks of such nodes."""
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
        """Whether it is the node, and not a few of its ranks."""
        half = peers.LINE * self.metric.smallest / 2  # where half of all are slow, no line is near
        slow = sum(self.effects[rank] > half for rank in node)
        return 2 * slow > len(node)

    def visible(self) -> float:
        """The smallest effect that would have been named in 95 of 100 runs."""
        most = self.metric.most
        return self.ranks.visible_after(most) if most else self.ranks.visible

    @cached_property
    def effects(self) -> dict[int, float]:
        return {peer.name: peer.effect for peer in self.ranks.peers}


@dataclass(frozen=True)
class Look:
    """All classes of a stage. alone: the ranks that have no peer by some metric."""

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
    """Were it slower by so many standard errors than it seems."""
    error = (peer.effect - peer.lower) / found.z if times else 0.0
    return peer.effect + times * error > found.line


def _worst_first(found: Iterable[Slow]) -> list[Slow]:
    return sorted(found, key=lambda slow: -slow.badness)
