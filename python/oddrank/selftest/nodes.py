"""Nodes: the rank that measures for each, and their names in sentences."""

from collections import Counter
from collections.abc import Iterable, Sequence

from oddrank.control.stages import RunState, nodes_of
from oddrank.finding import Who, ranks_text, some

_MOST_NAMED = 4


def pack_leaders(ranks: Iterable[int]) -> str:
    """Packs the ranks that measure for their nodes: short enough for a plan of 10,000 nodes."""
    return f"{sum(1 << rank for rank in ranks):x}"


def leads(rank: int, leaders: str) -> int | None:
    """Returns the number of the rank's node if it measures for it: 0, 1, ..., else None."""
    mask = int(leaders, 16)
    below = mask & ((1 << rank) - 1)
    return bin(below).count("1") if mask >> rank & 1 else None


def node_or_rank(run: RunState, ranks: Iterable[int]) -> Who:
    """Names the node if these are all of its ranks and more than one; else the ranks."""
    who = run.who(ranks)
    if who.host and len(who.ranks) > 1 and who.ranks in nodes_of(run):
        return Who("node", who.ranks, who.host)
    return who


class Places:
    """Names ranks by their nodes if they are whole nodes. Made once for all findings of a stage."""

    def __init__(self, run: RunState) -> None:
        nodes = nodes_of(run)
        self._hosts = [run.states[ranks[0]].host for ranks in nodes]
        self._sizes = [len(ranks) for ranks in nodes]
        self._node = {rank: number for number, ranks in enumerate(nodes) for rank in ranks}

    def names(self, ranks: Sequence[int]) -> str:
        """Returns "node1, node3"; "" if the ranks are not whole nodes, or there is one node."""
        return some(self._whole(ranks) or [], _MOST_NAMED)

    def have(self, ranks: tuple[int, ...]) -> str:
        """Returns subject and verb: 7 nodes have, node3 has, ranks 0-5 have."""
        nodes = self._whole(ranks)
        if nodes is None:
            return f"{ranks_text(ranks)} {'has' if len(ranks) == 1 else 'have'}"
        if len(nodes) == 1:
            return f"{nodes[0]} has"
        return f"{len(nodes)} nodes have" if len(nodes) > 2 else f"{' and '.join(nodes)} have"

    def _whole(self, ranks: Sequence[int]) -> list[str] | None:
        held = Counter(self._node[rank] for rank in ranks)
        if len(self._sizes) < 2 or any(self._sizes[node] != count for node, count in held.items()):
            return None
        return [self._hosts[node] for node in held]


def by_lowest_rank(run: RunState) -> dict[int, Who]:
    """Returns every node by the rank that measures for it."""
    return {ranks[0]: Who("node", ranks, run.states[ranks[0]].host) for ranks in nodes_of(run)}


def hosts(nodes: Iterable[Who]) -> str:
    """Returns the nodes' hosts for a sentence, at most eight of them."""
    return some([node.host or str(node) for node in nodes], 8)
