"""Finds odd nodes and links in a matrix of letters: which node reaches which. Pure.

Node i tries the nodes i + d for each d of `distances(nodes)`, and has one letter for each. A node
is suspected if most attempts at it, or most of its own, failed. The worst node is taken out, since
the failures that it explains must not make others suspect, then the next worst. They are named only
if the rest is well: else it is unclear which nodes are odd.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Literal

CONNECTED, REFUSED, NO_ANSWER, UNREACHABLE, SILENT, OTHER = ".", "r", "t", "u", "s", "x"
NOT_TRIED = "-"
# Attempts of one node: among up to 65 nodes each tries all others.
PEERS = 64
# Share of the attempts at a node, or of its own, from which on it is suspected.
_MOST = 0.75
# More broken links than that are an unknown pattern.
_LINKS = 8

# (from, to, letter); nodes by number.
Failure = tuple[int, int, str]
How = Literal["deaf", "silent", "cut off"]


@lru_cache(maxsize=4)
def distances(nodes: int) -> tuple[int, ...]:
    """Returns the distances, the same on every node. A pair is tried both ways, or not at all."""
    if nodes - 1 <= PEERS:
        return tuple(range(1, nodes))
    half = sorted(Random(nodes).sample(range(1, (nodes - 1) // 2 + 1), PEERS // 2))
    return (*half, *(nodes - d for d in reversed(half)))


def peers(node: int, nodes: int) -> list[int]:
    """Returns the nodes that this node tries, in the order of its letters."""
    return [(node + d) % nodes for d in distances(nodes)]


def both(first: str, second: str) -> str:
    """Returns the letters that failed in both measurements. Keeps the first if not tried again."""
    return "".join(
        a if a in (CONNECTED, NOT_TRIED) or b == NOT_TRIED else b
        for a, b in zip(first, second, strict=True)
    )


@dataclass(frozen=True)
class Node:
    """An odd node: no node reaches it (deaf), it reaches none (silent), or both (cut off)."""

    node: int
    how: How
    failures: tuple[Failure, ...]
    tried: int  # attempts of that kind


@dataclass(frozen=True)
class Link:
    """Two nodes that reach the others, but not each other; or one does not reach the other."""

    ends: tuple[int, int]
    failures: tuple[Failure, ...]


@dataclass(frozen=True)
class Judgement:
    """all_closed: no attempt succeeded. scattered: failures without a pattern; nobody is named.
    groups: nodes that reach each other, if there are several such groups."""

    nodes: tuple[Node, ...] = ()
    links: tuple[Link, ...] = ()
    all_closed: bool = False
    scattered: bool = False
    failures: tuple[Failure, ...] = ()  # the first ones
    failed: int = 0
    tried: int = 0
    groups: tuple[tuple[int, ...], ...] = ()


class _Matrix:
    """Who tried whom, and the letter of it: node -> peer -> letter, and the other way round."""

    def __init__(self, rows: Sequence[str]) -> None:
        nodes = len(rows)
        self.out_of: list[dict[int, str]] = [
            {peer: x for peer, x in zip(peers(node, nodes), row, strict=True) if x != NOT_TRIED}
            for node, row in enumerate(rows)
        ]
        self.into: list[dict[int, str]] = [{} for _ in rows]
        for node, tried in enumerate(self.out_of):
            for peer, letter in tried.items():
                self.into[peer][node] = letter

    def share(self, node: int) -> float:
        """Returns the share of its own attempts, or of those at it, that failed: the larger one.

        A single attempt does not count.
        """
        shares = [0.0]
        for way in (self.out_of[node], self.into[node]):
            if len(way) > 1:
                shares.append(1 - [*way.values()].count(CONNECTED) / len(way))
        return max(shares)

    def describe(self, node: int) -> Node:
        ways = self.out_of[node], self.into[node]
        bad = [len(_failed(way)) >= _MOST * max(len(way), 1) for way in ways]
        how: How = "cut off" if all(bad) else "silent" if bad[0] else "deaf"
        out = [(node, peer, letter) for peer, letter in _failed(ways[0]).items()]
        into = [(peer, node, letter) for peer, letter in _failed(ways[1]).items()]
        shown = {"cut off": into + out, "silent": out, "deaf": into}[how]
        tried = {"silent": len(ways[0]), "deaf": len(ways[1])}
        return Node(node, how, tuple(shown), tried.get(how, sum(map(len, ways))))

    def take_out(self, node: int) -> set[int]:
        """Forgets all attempts by it and at it; returns the nodes whose share may have changed."""
        met = {*self.out_of[node], *self.into[node]}
        for peer in met:
            self.into[peer].pop(node, None)
            self.out_of[peer].pop(node, None)
        self.out_of[node], self.into[node] = {}, {}
        return met

    def failures(self) -> list[Failure]:
        return [
            (node, peer, letter)
            for node, tried in enumerate(self.out_of)
            for peer, letter in _failed(tried).items()
        ]


def _failed(tried: dict[int, str]) -> dict[int, str]:
    return {peer: letter for peer, letter in tried.items() if letter != CONNECTED}


def judge(rows: Sequence[str]) -> Judgement:
    """Judges a matrix. rows: the letters of each node."""
    nodes = len(rows)
    matrix = _Matrix(rows)
    failures = matrix.failures()
    failed, tried, first = len(failures), sum(map(len, matrix.out_of)), tuple(failures[:_LINKS])
    if nodes > 2 and failed == tried:
        return Judgement((), (), failed > 0, False, first, failed, tried)
    odd = _odd_nodes(matrix)
    links = _links(matrix)
    few = len(links) <= max(1, min(_LINKS, nodes // 4))
    if odd:  # most others must be well, which few nodes can't show beside a broken link
        few = few and (not links or nodes > 4) and 3 * len(odd) <= nodes
    if not few:
        groups = _groups(rows) if nodes <= PEERS + 1 else ()
        return Judgement((), (), False, True, first, failed, tried, groups)
    return Judgement(tuple(odd), tuple(links), False, False, first, failed, tried)


def _odd_nodes(matrix: _Matrix) -> list[Node]:
    """Returns the odd nodes, taken out of the matrix one by one, the worst first."""
    odd: list[Node] = []
    nodes = len(matrix.out_of)
    if nodes < 3:
        return odd
    heap = [(-matrix.share(node), node) for node in range(nodes)]
    heapq.heapify(heap)
    gone: set[int] = set()
    while heap and 3 * len(odd) <= nodes:
        share, node = heapq.heappop(heap)
        if node in gone or -share != matrix.share(node):
            continue
        if -share < _MOST:
            break
        odd.append(matrix.describe(node))
        gone.add(node)
        for peer in matrix.take_out(node):
            heapq.heappush(heap, (-matrix.share(peer), peer))
    return odd


def _links(matrix: _Matrix) -> list[Link]:
    found: dict[tuple[int, int], list[Failure]] = {}
    for node, peer, letter in matrix.failures():
        found.setdefault((min(node, peer), max(node, peer)), []).append((node, peer, letter))
    return [Link(ends, tuple(failures)) for ends, failures in found.items()]


def _groups(rows: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Returns groups of nodes that successful attempts connect; empty if they connect all."""
    nodes = len(rows)
    head = [*range(nodes)]

    def root(node: int) -> int:
        while head[node] != node:
            node = head[node]
        return node

    for node, row in enumerate(rows):
        for d, letter in zip(distances(nodes), row, strict=True):
            if letter == CONNECTED:
                head[root(node)] = root((node + d) % nodes)
    members: dict[int, list[int]] = {}
    for node in range(nodes):
        members.setdefault(root(node), []).append(node)
    return tuple(map(tuple, members.values())) if len(members) > 1 else ()
