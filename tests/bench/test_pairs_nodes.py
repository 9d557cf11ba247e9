"""Tells apart one slow rank, a slow node, and slow links inside a node."""

from dataclasses import replace
from random import Random

import pytest

from oddrank.bench.pairs.judge import PAIRS, Judge
from oddrank.control.stages import RunState
from pair_measurements import measured, named, nodes_of


def test_a_slow_node_is_not_named_as_those_of_its_ranks_that_crossed_the_line():
    """Slow by 17 %, near the threshold: five of its eight ranks exceed it, the others nearly."""
    states = nodes_of(5, ranks=8)
    rate = dict.fromkeys(range(8, 13), 0.82) | dict.fromkeys(range(13, 16), 0.88)

    def slow(cell):
        return 1.0 if cell[0] // 8 == cell[1] // 8 else rate.get(cell[0], 1.0)

    seen = measured(states, slow)
    ((finding,), _) = named(states, seen, seen, measured(states, slow, alone=True))
    assert (finding.cause, finding.who.kind) == ("slow-sender", "node")
    assert finding.who.ranks == tuple(range(8, 16))


def test_a_node_of_which_most_ranks_are_slow_is_named_beside_them():
    states = nodes_of(5, ranks=4)
    rate = dict.fromkeys(range(4, 7), 0.5)

    def slow(cell):
        return 1.0 if cell[0] // 4 == cell[1] // 4 else rate.get(cell[0], 1.0)

    seen = measured(states, slow)
    found, _ = named(states, seen, seen, measured(states, slow, alone=True))
    assert [(f.who.kind, f.who.ranks) for f in found] == [
        *(("rank", (rank,)) for rank in (4, 5, 6)),
        ("node", (4, 5, 6, 7)),
    ]


def told(states, seen):
    """Returns findings and summary if nothing is suspected."""
    judge, run = Judge(0.2), RunState(len(states), states, {PAIRS: seen})
    assert not judge.suspects(run)
    return judge.unresolved(run), judge.all_well(run, "")


def test_links_between_nodes_of_other_numbers_of_ranks_are_not_said_to_be_judged():
    for fewer, said in (((), False), ((10, 11, 14, 15), True)):
        full = nodes_of(4, ranks=4).items()
        kept = [(rank, state) for rank, state in full if rank not in fewer]
        states = {number: replace(state, rank=number) for number, (_, state) in enumerate(kept)}
        _, summary = told(states, measured(states))
        assert ("not every link was judged" in summary) == said


@pytest.mark.parametrize("slow", [range(4, 8), range(2, 8)])
def test_local_ranks_that_move_less_on_every_node_are_told_and_not_healthy(slow):
    def rail(cell):
        inside = cell[0] // 8 == cell[1] // 8
        return 0.5 if not inside and cell[0] % 8 in slow else 1.0

    states = nodes_of(8, ranks=8)
    (finding,), _ = told(states, measured(states, rail))
    assert (finding.condition, finding.cause) == ("unknown", "uneven-places")
    assert f"local ranks {slow[0]}-{slow[-1]}" in finding.what


def test_ranks_that_share_a_way_by_chance_are_not_said_to_be_equal():
    """On each node other ranks get the larger share."""
    random = Random(1)
    share = {}
    for node in range(8):
        places = [0.5] * 4 + [1.5] * 4
        random.shuffle(places)
        share |= {8 * node + place: value for place, value in enumerate(places)}

    def uneven(cell):
        return 1.0 if cell[0] // 8 == cell[1] // 8 else share[cell[0]]

    states = nodes_of(8, ranks=8)
    found, summary = told(states, measured(states, uneven))
    assert not found
    assert summary.startswith("all 8 nodes move data equally fast")
    assert "single ranks not judged" in summary


def test_a_rank_that_is_slow_inside_its_node_only_is_named():
    states = nodes_of(2, ranks=4)

    def rate(cell):
        return 0.5 if cell[0] == 6 and cell[1] in {4, 5, 7} else 1.0

    seen = measured(states, rate)
    ((finding,), _) = named(states, seen, seen)
    assert (finding.cause, finding.who.ranks) == ("slow-sender", (6,))


def among(node, ranks, by):
    """Slows only the transfers between the ranks of this node, by slightly different shares."""
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
    assert "its ranks move among themselves" in finding.what
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
