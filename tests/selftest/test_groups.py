"""Groups of ranks: all ranks, the ranks of a node, one rank per node; no group twice."""

import pytest

from oddrank.selftest.stages.connect import teams_of


@pytest.mark.parametrize(
    ("nodes", "named"),
    [
        ([(0,)], {"world": [(0,)]}),
        ([(0, 1, 2)], {"world": [(0, 1, 2)]}),
        ([(0,), (1,)], {"world": [(0, 1)]}),
        (
            [(0, 1), (2, 3)],
            {"world": [(0, 1, 2, 3)], "node": [(0, 1), (2, 3)], "across": [(0, 2), (1, 3)]},
        ),
        (  # ranks placed round-robin
            [(0, 2), (1, 3)],
            {"world": [(0, 1, 2, 3)], "node": [(0, 2), (1, 3)], "across": [(0, 1), (2, 3)]},
        ),
        (  # nodes of different sizes: rank 2 is alone, rank 1 is its node's second
            [(0, 1), (2,)],
            {"world": [(0, 1, 2)], "node": [(0, 1), (2,)], "across": [(0, 2), (1,)]},
        ),
    ],
)
def test_groups_of_ranks(nodes, named):
    assert teams_of(nodes) == named


def test_a_rank_is_in_three_groups_however_many_nodes_there_are():
    teams = teams_of([tuple(range(8 * node, 8 * node + 8)) for node in range(1000)])
    assert [sum(4321 in team for team in named) for named in teams.values()] == [1, 1, 1]
    assert [len(named) for named in teams.values()] == [1, 1000, 8]
