"""What can be slow at once in a matrix of links: a sender, a receiver, both, a link, one way of it.

Each is a set of cells (from rank, to rank). Where two would be the same set, the one that claims
least is kept: of two ranks nobody can say whether the link, its sender or its receiver is slow.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Cell = tuple[int, int]
# way: from `ranks` to `to`; link: both ways between them; both: sends and receives.
Kind = Literal["way", "link", "both", "sender", "receiver"]
Nodes = Sequence[tuple[int, ...]]
# A group of ranks that meet others as one: a node across nodes, or a rank.
_Group = tuple[int, ...]


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


def across(nodes: Nodes, cells: Iterable[Cell], *, directed: bool = True) -> list[Part]:
    """The parts of a matrix between nodes: whole nodes, then single ranks of them."""
    known = list(cells)
    node_of = {rank: node for node in nodes for rank in node}
    return _distinct(
        [
            *_parts(known, lambda rank: node_of[rank], directed),
            *_parts(known, lambda rank: (rank,), directed),
        ]
    )


def inside(cells: Iterable[Cell], *, directed: bool = True) -> list[Part]:
    """The parts of the matrices between the ranks of each node."""
    return _distinct(_parts(list(cells), lambda rank: (rank,), directed))


def _parts(cells: Sequence[Cell], group: Callable[[int], _Group], directed: bool) -> list[Part]:
    """From what claims least to what claims most; undirected: no senders, no ways."""
    links: dict[tuple[_Group, _Group], list[Cell]] = {}
    ways: dict[tuple[_Group, _Group], list[Cell]] = {}
    by: dict[Kind, dict[_Group, list[Cell]]] = {"both": {}, "sender": {}, "receiver": {}}
    for cell in cells:
        sender, receiver = group(cell[0]), group(cell[1])
        links.setdefault((min(sender, receiver), max(sender, receiver)), []).append(cell)
        ways.setdefault((sender, receiver), []).append(cell)
        by["sender"].setdefault(sender, []).append(cell)
        by["receiver"].setdefault(receiver, []).append(cell)
        for end in {sender, receiver}:
            by["both"].setdefault(end, []).append(cell)
    kinds: tuple[Kind, ...] = ("both", "sender", "receiver") if directed else ("both",)
    found = _between("link", links)
    if directed:
        found += _between("way", ways)
    return found + [
        Part(kind, ranks, (), tuple(sorted(own)))
        for kind in kinds
        for ranks, own in sorted(by[kind].items())
    ]


def _between(kind: Kind, found: Mapping[tuple[_Group, _Group], list[Cell]]) -> list[Part]:
    return [Part(kind, ranks, to, tuple(sorted(own))) for (ranks, to), own in sorted(found.items())]


def _distinct(parts: Iterable[Part]) -> list[Part]:
    """The first of those that are the same cells."""
    first: dict[tuple[Cell, ...], Part] = {}
    for part in parts:
        first.setdefault(part.cells, part)
    return list(first.values())
