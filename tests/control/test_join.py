"""Two ranks of a host with one local rank: names the rank that deviates, not the other one."""

import pytest

from oddrank.control.root import RankState
from oddrank.control.stages import RunState
from oddrank.control.walk import judge_join


def misplaced(*local_ranks, nodes=1):
    """Returns the ranks named for these local ranks, spread over nodes in equal blocks."""
    here = len(local_ranks) // nodes
    states = {
        rank: RankState(rank, f"node{rank // here}", rank // here, local, contact="ok")
        for rank, local in enumerate(local_ranks)
    }
    return [f.who.ranks for f in judge_join(RunState(len(local_ranks), states))]


@pytest.mark.parametrize(
    ("local_ranks", "nodes", "named"),
    [
        ([0, 1, 2, 3], 1, []),
        ([0, 1, 0, 1], 2, []),
        ([0, 1, 1, 3], 1, [(2,)]),
        ([0, 0, 2, 3], 1, [(1,)]),
        ([1, 1], 1, [(0,)]),
        ([0, 1, 1, 1], 2, [(2,)]),
        ([0, 0, 0, 0], 1, [(1,), (2,), (3,)]),
        ([1, 0, 2, 3], 1, []),  # another order is unusual but harmless
    ],
)
def test_who_has_anothers_local_rank_is_named(local_ranks, nodes, named):
    assert misplaced(*local_ranks, nodes=nodes) == named


def test_ranks_dealt_out_to_the_hosts_in_turn_are_in_their_places():
    states = {
        rank: RankState(rank, f"node{rank % 2}", rank % 2, rank // 2, contact="ok")
        for rank in range(4)
    }
    assert judge_join(RunState(4, states)) == []
