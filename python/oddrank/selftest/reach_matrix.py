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
from itertools import islice
from random import Random
from typing import Literal

from oddrank.finding import grouped

CONNECTED, REFUSED, NO_ANSWER, UNREACHABLE, SILENT, OTHER = ".", "r", "t", "u", "s", "x"
NOT_TRIED = "-"
PEERS = 64  # attempts of one node: among up to 65 nodes each tries all others
_MOST = 0.75  # share of the attempts at a node, or of its own, from which on it is suspected
_LINKS = 8  # more broken links than that are an unknown pattern

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
    """all_closed: no attempt succeeded. scattered: failures without a pattern; no node is named.
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
    """How many attempts there are out of each node and into it, and the letters of those failed.
    Few fail: with 64 attempts of each of 10,000 nodes, only those are kept."""

    def __init__(self, rows: Sequence[str]) -> None:
        nodes = len(rows)
        self.rows = rows
        self.gone: set[int] = set()
        self.tried_out, self.tried_into = ([len(distances(nodes))] * nodes for _ in range(2))
        self.failed_out: list[dict[int, str]] = [{} for _ in rows]  # node -> peer -> letter
        self.failed_into: list[dict[int, str]] = [{} for _ in rows]
        for node, row in enumerate(rows):
            if row.count(CONNECTED) == len(row):
                continue
            for peer, letter in zip(peers(node, nodes), row, strict=True):
                if letter == NOT_TRIED:
                    self.tried_out[node] -= 1
                    self.tried_into[peer] -= 1
                elif letter != CONNECTED:
                    self.failed_out[node][peer] = self.failed_into[peer][node] = letter

    def share(self, node: int) -> float:
        """Returns the share of its own attempts, or of those at it, that failed: the larger one.
        A single attempt does not count."""
        out, into = self.tried_out[node], self.tried_into[node]
        return max(
            len(self.failed_out[node]) / out if out > 1 else 0.0,
            len(self.failed_into[node]) / into if into > 1 else 0.0,
        )

    def describe(self, node: int) -> Node:
        out = [(node, peer, letter) for peer, letter in self.failed_out[node].items()]
        into = [(peer, node, letter) for peer, letter in self.failed_into[node].items()]
        tried_out, tried_into = self.tried_out[node], self.tried_into[node]
        if len(out) < _MOST * max(tried_out, 1):
            return Node(node, "deaf", tuple(into), tried_into)
        if len(into) < _MOST * max(tried_into, 1):
            return Node(node, "silent", tuple(out), tried_out)
        return Node(node, "cut off", (*into, *out), tried_out + tried_into)

    def take_out(self, node: int) -> list[int]:
        """Forgets all attempts by it and at it; returns the nodes whose share may have changed."""
        self.gone.add(node)
        met = []
        for place, peer in enumerate(peers(node, len(self.rows))):
            if peer in self.gone:
                continue
            met.append(peer)
            self.tried_into[peer] -= self.rows[node][place] != NOT_TRIED
            self.tried_out[peer] -= self.rows[peer][-1 - place] != NOT_TRIED  # the way back
            self.failed_into[peer].pop(node, None)
            self.failed_out[peer].pop(node, None)
        self.failed_out[node], self.failed_into[node] = {}, {}
        return met

    def failures(self, most: int) -> list[Failure]:
        """Returns the first failures, by node."""
        found = (
            (node, peer, letter)
            for node, failed in enumerate(self.failed_out)
            for peer, letter in failed.items()
        )
        return [*islice(found, most)]


def judge(rows: Sequence[str]) -> Judgement:
    """Judges a matrix. rows: the letters of each node."""
    nodes = len(rows)
    matrix = _Matrix(rows)
    failed, tried = sum(map(len, matrix.failed_out)), sum(matrix.tried_out)
    first = tuple(matrix.failures(_LINKS))
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
    nodes = len(matrix.rows)
    if nodes < 3:
        return odd
    heap = [(-matrix.share(node), node) for node in range(nodes)]
    heapq.heapify(heap)
    while heap and 3 * len(odd) <= nodes:
        share, node = heapq.heappop(heap)
        if node in matrix.gone or -share != matrix.share(node):
            continue
        if -share < _MOST:
            break
        odd.append(matrix.describe(node))
        for peer in matrix.take_out(node):
            heapq.heappush(heap, (-matrix.share(peer), peer))
    return odd


def _links(matrix: _Matrix) -> list[Link]:
    """Returns the broken links; of too many, the first: a link has at most two failures."""
    first = matrix.failures(2 * _LINKS + 1)
    found = grouped(((min(one[:2]), max(one[:2])), one) for one in first)
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
    members = grouped((root(node), node) for node in range(nodes))
    return tuple(map(tuple, members.values())) if len(members) > 1 else ()
