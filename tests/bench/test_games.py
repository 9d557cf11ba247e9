"""What all ranks are told of who meets whom, and what ranks that share a way moved at once."""

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oddrank.bench.pairs.exchange import Effort, rates_of
from oddrank.bench.pairs.games import Game, pack, unpack

MOST_BYTES = 65_000  # of a message to all ranks


def nodes(world, per_node, order):
    ranks = list(range(world))
    if order == "cyclic":
        ranks = [
            rank for first in range(world // per_node) for rank in ranks[first :: world // per_node]
        ]
    elif order == "random":
        Random(1).shuffle(ranks)
    return [tuple(sorted(ranks[i : i + per_node])) for i in range(0, world, per_node)]


@pytest.mark.parametrize("order", ["by node", "cyclic", "random"])
@pytest.mark.parametrize(("world", "per_node"), [(6, 2), (10_000, 1), (10_000, 8), (16_384, 8)])
def test_the_plan_fits_one_message_however_many_ranks_there_are(world, per_node, order):
    teams = nodes(world, per_node, order)
    games = [
        Game("nodes", teams),
        Game("inside", teams),
        Game("ranks", [team[:1] for team in teams]),
    ]
    told = json.dumps(pack(games, world))
    assert len(told) < MOST_BYTES
    assert unpack(json.loads(told)) == games


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.sampled_from(["nodes", "inside"]))
def test_both_of_a_meeting_know_of_it_and_one_of_them_sends_first(sizes, where):
    first = [sum(sizes[:i]) for i in range(len(sizes))]
    game = Game(where, [tuple(range(f, f + size)) for f, size in zip(first, sizes, strict=True)])
    met = {rank: game.meetings(rank, 1) for rank in range(sum(sizes))}
    for rank, meetings in met.items():
        assert len(meetings) == game.turns()
        for turn, meeting in enumerate(meetings):
            if meeting.peer is not None:
                other = met[meeting.peer][turn]
                assert (other.peer, other.first) == (rank, not meeting.first)


def test_all_ranks_of_a_node_send_first_or_none():
    game = Game("nodes", [(0, 3), (1, 2), (4, 5)])
    for team in game.teams:
        first, second = (game.meetings(rank, 0) for rank in team)
        assert [meeting.first for meeting in first] == [meeting.first for meeting in second]


def test_who_is_in_no_team_rests_as_often_as_others_meet():
    assert [meeting.peer for meeting in Game("ranks", [(0,), (2,), (4,)]).meetings(1, 0)] == [
        None
    ] * 3


def test_what_ranks_moved_by_turns_adds_up_to_what_their_way_lets_through():
    """Each has all of 10 GB/s for two seconds, then nothing for two."""
    one = rates_of([0, 1, 2, 5, 6, 9], 10, 8, 4)
    other = rates_of([0, 3, 4, 7, 8], 10, 8, 4)
    assert sum(one) / 4 + sum(other) / 4 == pytest.approx(10, rel=0.1)
    assert rates_of([0, 1, 2, 3, 4.5], 10, 4, 2) == pytest.approx([10, 10 * (1 + 1 / 1.5) / 2])


def test_a_repeat_longer_than_a_part_is_one_figure_and_not_several_that_agree():
    assert rates_of([0, 2], 10, 2, 4) == pytest.approx([5])
    assert rates_of([0, 1, 4], 10, 4, 4) == pytest.approx([20 / 3, 10 / 3])


@pytest.mark.parametrize(
    ("longest", "seconds", "window"),
    [(0.1, 5, 0.8), (0.1, 0.6, 0.6), (1.0, 3, 4), (1.0, 2, 4), (10, 3, 6)],
)
def test_all_go_on_until_each_part_has_a_repeat_but_not_for_a_link_that_needs_forever(
    longest, seconds, window
):
    assert Effort(1, 0.1, seconds, 4).window(longest) == pytest.approx(window)
