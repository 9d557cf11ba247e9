"""Whom the self-test names."""

from collections.abc import Iterable, Sequence

from oddrank.control.nodes import nodes_of
from oddrank.control.stages import Rounds
from oddrank.finding import Who, fold

_MOST_NAMED = 4


def node_or_rank(rounds: Rounds, ranks: Iterable[int]) -> Who:
    """The node, where it is all of its ranks and there are others."""
    who = rounds.who(ranks)
    here = {r for r, s in rounds.states.items() if s.host == who.host}
    if who.host and here == set(who.ranks) and len(here) > 1:
        return Who("node", who.ranks, who.host)
    return who


class Places:
    """Ranks as whole nodes, where they are: made once for all findings of a judgement."""

    def __init__(self, rounds: Rounds) -> None:
        nodes = nodes_of(rounds)
        self._hosts = [rounds.states[ranks[0]].host for ranks in nodes]
        self._sizes = [len(ranks) for ranks in nodes]
        self._node = {rank: number for number, ranks in enumerate(nodes) for rank in ranks}
        self._said: dict[tuple[int, ...], str] = {}

    def names(self, ranks: Sequence[int]) -> str:
        """node1, node3; "" where the ranks are not whole nodes of several."""
        nodes = self._whole(ranks) or []
        more = f" and {len(nodes) - _MOST_NAMED} more" if len(nodes) > _MOST_NAMED else ""
        return ", ".join(nodes[:_MOST_NAMED]) + more

    def have(self, ranks: tuple[int, ...]) -> str:
        """Subject and verb: 7 nodes have, node3 has, ranks 0-5 have."""
        if ranks not in self._said:
            self._said[ranks] = self._have(ranks)
        return self._said[ranks]

    def _have(self, ranks: tuple[int, ...]) -> str:
        nodes = self._whole(ranks)
        if nodes is None:
            return f"rank {ranks[0]} has" if len(ranks) == 1 else f"ranks {fold(ranks)} have"
        if len(nodes) == 1:
            return f"{nodes[0]} has"
        return f"{len(nodes)} nodes have" if len(nodes) > 2 else f"{' and '.join(nodes)} have"

    def _whole(self, ranks: Sequence[int]) -> list[str] | None:
        held: dict[int, int] = {}
        for rank in ranks:
            node = self._node[rank]
            held[node] = held.get(node, 0) + 1
        if len(self._sizes) < 2 or any(self._sizes[node] != count for node, count in held.items()):
            return None
        return [self._hosts[node] for node in held]


def by_lowest_rank(rounds: Rounds) -> dict[int, Who]:
    """Every node, by the rank that measures what belongs to it."""
    return {
        ranks[0]: Who("node", ranks, rounds.states[ranks[0]].host) for ranks in nodes_of(rounds)
    }


def hosts(nodes: Iterable[Who], most: int = 8) -> str:
    """Their hosts in a sentence, not all of many."""
    names = [node.host or str(node) for node in nodes]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
