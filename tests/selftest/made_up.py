"""Made-up ranks for tests of judgements: two on each node."""

from typing import Any

from oddrank.control.root import RankState
from oddrank.control.stages import Rounds


def rounds_of(results: dict[str, dict[int, Any]], *, ranks: int, on_node: int = 2) -> Rounds:
    states = {
        rank: RankState(
            rank, f"node{rank // on_node}", rank // on_node, rank % on_node, contact="ok"
        )
        for rank in range(ranks)
    }
    return Rounds(ranks, states, results)
