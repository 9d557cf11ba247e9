"""The recheck measures all suspects, the worst first, in no more rounds than the measurement."""

import pytest

from oddrank.bench.pairs.judge import PAIRS, Judge
from oddrank.bench.pairs.stages import games_of_all, games_of_recheck
from oddrank.control.stages import RunState
from pair_measurements import measured, named, nodes_of

MOST_TURNS = 24


def between(ranks_a_node, rates):
    """Returns rates of senders to other nodes."""

    def rate(cell):
        inside = cell[0] // ranks_a_node == cell[1] // ranks_a_node
        return 1.0 if inside else rates.get(cell[0], 1.0)

    return rate


def again(states, rate):
    run = RunState(len(states), states, {PAIRS: measured(states, rate)})
    judge = Judge(0.2)
    return judge.suspects(run), [
        game for game in games_of_recheck(judge, run) if game.where == "ranks"
    ]


def test_a_rank_beyond_the_eighth_of_its_node_is_measured_again_with_a_mate():
    suspects, games = again(nodes_of(6, ranks=12), between(12, {12 + 10: 0.2}))
    assert any("rank 22" in finding.what for finding in suspects)
    met = {rank for game in games for team in game.teams for rank in team}
    assert 22 in met
    assert met & {*range(12, 24)} - {22}


def test_a_rank_that_was_not_measured_again_is_said_not_to_have_been():
    states = nodes_of(6, ranks=2)
    seen = measured(states, between(2, {2: 0.2}))
    odd = [rank for rank in states if rank % 2]
    without = {rank: {} for rank in states} | measured(states, ranks=odd, alone=True)
    (finding, *_), _ = named(states, seen, measured(states), without)
    assert "no time to measure it again" in finding.what


def test_without_a_recheck_of_ranks_each_suspect_is_mentioned_and_none_is_named():
    states = nodes_of(8, ranks=2)
    first = measured(states, between(2, {2: 0.5, 9: 0.4}), alone=True)
    found, passed = named(states, first, {rank: {"inside": []} for rank in states})
    assert not passed
    assert all(finding.condition == "unknown" for finding in found)
    said = [finding.what for finding in found]
    for rank in ("rank 2 (node1, local rank 0)", "rank 9 (node4, local rank 1)"):
        (what,) = [text for text in said if text.startswith(rank)]
        assert "no time to measure it again" in what


@pytest.mark.parametrize("slow", [1, 2, 4, 8])
def test_doubted_ranks_are_measured_again_in_few_rounds_and_the_worst_among_them(slow):
    worst = 8 + 3
    rates = {8 * 3 * i + (3 + i) % 8: 0.4 for i in range(2, slow + 1)} | {worst: 0.2}
    suspects, games = again(nodes_of(26, ranks=8), between(8, rates))
    assert suspects
    assert 0 < sum(game.turns() for game in games) <= MOST_TURNS
    assert any((worst,) in game.teams for game in games)


def test_all_ranks_of_two_large_nodes_meet_alone_only_where_that_is_few_rounds():
    for ranks, all_alone in ((16, True), (32, False)):
        nodes = [tuple(range(ranks)), tuple(range(ranks, 2 * ranks))]
        alone = [game for game in games_of_all(nodes) if game.where == "ranks"]
        assert len(alone) == (ranks if all_alone else 0)
