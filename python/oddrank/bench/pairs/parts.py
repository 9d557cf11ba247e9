"""What can be slow at once in a matrix of links: a sender, a receiver, both, a link, one way of it,
or all that is inside a node.

Each is a set of cells (from, to), between ranks or between nodes. Where two would be the same set,
the one that claims least is kept: of two ranks nobody can say whether the link, its sender or its
receiver is slow.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Cell = tuple[int, int]
# way: from `ranks` to `to`; link: both ways between them; both: sends and receives; among: moves
# between `ranks`.
Kind = Literal["way", "link", "both", "sender", "receiver", "among"]


@dataclass(frozen=True)
class Part:
    """`ranks` is who is slow; for a way and a link, `to` is the other end."""

    kind: Kind
    ranks: tuple[int, ...]
    to: tuple[int, ...] = ()
    cells: tuple[Cell, ...] = ()

    def is_between(self) -> bool:
        return self.kind in ("way", "link")

    def names_as(self, other: "Part") -> bool:
        """Whether both name the same ranks, in whatever direction."""
        return self.is_between() == other.is_between() and self.touched() == other.touched()

    def touched(self) -> set[int]:
        """The ranks that are named with it."""
        return {*self.ranks, *self.to}


def parts_of(
    cells: Iterable[Cell],
    groups: Sequence[tuple[int, ...]],
    *,
    directed: bool = True,
    nodes: Sequence[tuple[int, ...]] = (),
) -> list[Part]:
    """From what claims least to what claims most; undirected: no senders, no ways.

    groups: the ranks that the numbers in a cell stand for; nodes: whose insides may be slow.
    """
    links: dict[Cell, list[Cell]] = {}
    by: dict[Kind, dict[int, list[Cell]]] = {"both": {}, "sender": {}, "receiver": {}}
    known = sorted(cells)
    for cell in known:
        sender, receiver = cell
        links.setdefault((min(cell), max(cell)), []).append(cell)
        by["sender"].setdefault(sender, []).append(cell)
        by["receiver"].setdefault(receiver, []).append(cell)
        for end in cell:
            by["both"].setdefault(end, []).append(cell)
    kinds: tuple[Kind, ...] = ("both", "sender", "receiver") if directed else ("both",)
    found = _between("link", links, groups)
    if directed:
        found += _between("way", {cell: [cell] for cell in known}, groups)
    found += [
        Part(kind, groups[end], (), tuple(own))
        for kind in kinds
        for end, own in sorted(by[kind].items())
    ]
    found += _among(known, nodes)
    return _distinct(found)


def _between(
    kind: Kind, found: Mapping[Cell, list[Cell]], groups: Sequence[tuple[int, ...]]
) -> list[Part]:
    return [
        Part(kind, groups[first], groups[second], tuple(own))
        for (first, second), own in sorted(found.items())
    ]


def _among(cells: Iterable[Cell], nodes: Sequence[tuple[int, ...]]) -> list[Part]:
    node_of = {rank: node for node in nodes for rank in node}
    found: dict[tuple[int, ...], list[Cell]] = {}
    for cell in cells:
        node = node_of.get(cell[0])
        if node is not None and node is node_of.get(cell[1]):
            found.setdefault(node, []).append(cell)
    return [Part("among", node, (), tuple(own)) for node, own in found.items()]


def _distinct(parts: Iterable[Part]) -> list[Part]:
    """The first of those that are the same cells."""
    first: dict[tuple[Cell, ...], Part] = {}
    for part in parts:
        first.setdefault(part.cells, part)
    return list(first.values())
