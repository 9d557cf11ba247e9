"""Whom the self-test names."""

from collections.abc import Iterable

from oddrank.control.stages import Rounds
from oddrank.finding import Who


def node_or_rank(rounds: Rounds, ranks: Iterable[int]) -> Who:
    """The node, where it is all of its ranks and there are others."""
    who = rounds.who(ranks)
    here = {r for r, s in rounds.states.items() if s.host == who.host}
    if who.host and here == set(who.ranks) and len(here) > 1:
        return Who("node", who.ranks, who.host)
    return who
