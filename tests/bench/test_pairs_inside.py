"""What is slow inside a node only: a rank, or all that its ranks move to each other."""

from random import Random

import pytest

from pair_looks import measured, named, nodes_of


def test_a_rank_that_is_slow_inside_its_node_only_is_named():
    states = nodes_of(2, ranks=4)

    def rate(cell):
        return 0.5 if cell[0] == 6 and cell[1] in {4, 5, 7} else 1.0

    seen = measured(states, rate)
    ((finding,), _) = named(states, seen, seen)
    assert (finding.cause, finding.who.ranks) == ("slow-sender", (6,))


def among(node, ranks, by):
    """Only what the ranks of that node move to each other is slow, by a little more or less."""
    random = Random(1)

    def rate(cell):
        inside = cell[0] // ranks == cell[1] // ranks == node
        return (by if inside else 1.0) * random.uniform(0.97, 1.03)

    return rate


@pytest.mark.parametrize(("nodes", "ranks"), [(2, 4), (4, 3), (4, 4), (3, 5), (8, 8)])
@pytest.mark.parametrize("by", [0.5, 0.7])
def test_a_node_inside_of_which_all_is_slow_is_named_and_none_of_its_ranks(nodes, ranks, by):
    states = nodes_of(nodes, ranks=ranks)
    rate = among(1, ranks, by)
    ((finding,), _) = named(states, measured(states, rate), measured(states, rate))
    assert (finding.cause, finding.who.kind) == ("slow-node", "node")
    assert finding.who.ranks == tuple(range(ranks, 2 * ranks))
    assert "its ranks move, each to each," in finding.what
    assert any("nvidia-smi topo -m" in step for step in finding.next)


def test_a_rank_that_is_slow_alone_does_not_explain_that_all_is_slow_inside_its_node():
    states = nodes_of(4, ranks=4)

    def rate(cell):
        inside = cell[0] // 4 == cell[1] // 4
        return 0.5 if (inside and cell[0] // 4 == 2) or (not inside and cell[0] == 9) else 1.0

    seen = measured(states, rate)
    found, _ = named(states, seen, seen, measured(states, rate, alone=True))
    assert {(one.cause, one.who.ranks) for one in found} == {
        ("slow-sender", (9,)),
        ("slow-node", (8, 9, 10, 11)),
    }
