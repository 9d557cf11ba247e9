"""Nodes and groups of ranks: one rank measures for its node; no group twice; plans are short."""

from made_up import run_by_node
from oddrank.selftest.nodes import by_lowest_rank, leads, pack_leaders
from oddrank.selftest.stages.connect import teams_of


def test_the_ranks_are_found_again_in_the_text_of_a_plan():
    packed = pack_leaders(by_lowest_rank(run_by_node("reach", [None] * 5000)))
    assert len(packed) <= 2500
    assert [leads(rank, packed) for rank in (0, 4, 5, 9998)] == [0, 2, None, 4999]


def test_groups_are_all_ranks_the_ranks_of_a_node_and_one_rank_of_each_node():
    four = (0, 1, 2, 3)
    for nodes, named in (
        ([(0,)], {"world": [(0,)]}),
        ([(0, 1, 2)], {"world": [(0, 1, 2)]}),
        ([(0,), (1,)], {"world": [(0, 1)]}),
        ([(0, 1), (2, 3)],
         {"world": [four], "node": [(0, 1), (2, 3)], "across": [(0, 2), (1, 3)]}),
        ([(0, 2), (1, 3)],  # ranks placed round-robin
         {"world": [four], "node": [(0, 2), (1, 3)], "across": [(0, 1), (2, 3)]}),
        ([(0, 1), (2,)],  # nodes of different sizes: rank 2 is alone, rank 1 is its node's second
         {"world": [(0, 1, 2)], "node": [(0, 1), (2,)], "across": [(0, 2), (1,)]}),
    ):  # fmt: skip
        assert teams_of(nodes) == named
    teams = teams_of([tuple(range(8 * node, 8 * node + 8)) for node in range(1000)])
    assert [sum(4321 in team for team in named) for named in teams.values()] == [1, 1, 1]
    assert [len(named) for named in teams.values()] == [1, 1000, 8]
