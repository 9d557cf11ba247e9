"""Which ranks share a node: by the launcher's number and the host's name together."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from oddrank.control.root import RankState
    from oddrank.control.stages import Rounds

Node: TypeAlias = "tuple[int, str]"


def node_of(state: "RankState") -> Node:
    """The same for all ranks of a node, and for no others."""
    return (state.node, state.host)


def by_node(states: Iterable["RankState"]) -> dict[Node, list["RankState"]]:
    """Those that have come."""
    nodes: dict[Node, list[RankState]] = {}
    for state in states:
        if state.contact != "never":
            nodes.setdefault(node_of(state), []).append(state)
    return nodes


def nodes_of(rounds: "Rounds") -> list[tuple[int, ...]]:
    """The ranks of each node; nodes by their lowest rank."""
    nodes: dict[Node, list[int]] = {}
    for rank, state in sorted(rounds.states.items()):
        nodes.setdefault(node_of(state), []).append(rank)
    return sorted(tuple(ranks) for ranks in nodes.values())
