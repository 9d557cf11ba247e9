"""Groups ranks by node: by the node's number and the host's name together."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from oddrank.control.culprits import RankEvidence
    from oddrank.control.stages import RunState

Node: TypeAlias = "tuple[int, str]"


def node_of(state: "RankEvidence") -> Node:
    """Return the key of a rank's node: all ranks of the node have it, and no other rank."""
    return (state.node, state.host)


def by_node(states: Iterable["RankEvidence"]) -> dict[Node, list["RankEvidence"]]:
    """Return the ranks of each node, without ranks that never came."""
    nodes: dict[Node, list[RankEvidence]] = {}
    for state in states:
        if state.contact != "never":
            nodes.setdefault(node_of(state), []).append(state)
    return nodes


def nodes_of(run: "RunState") -> list[tuple[int, ...]]:
    """Return the ranks of each node; nodes in the order of their lowest rank."""
    nodes: dict[Node, list[int]] = {}
    for rank, state in sorted(run.states.items()):
        nodes.setdefault(node_of(state), []).append(rank)
    return sorted(tuple(ranks) for ranks in nodes.values())
