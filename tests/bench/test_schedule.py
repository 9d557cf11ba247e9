"""The schedule of pairs: rounds, and the transfers in them."""

import json
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oddrank.bench.pairs.exchange import Effort, rates_of
from oddrank.bench.pairs.schedule import (
    FEWEST_GOOD,
    MATCHINGS,
    MOST_SUSPECTS,
    Game,
    Tournament,
    pack,
    panel,
    unpack,
)


def pairs_of(tournament):
    return [pair for pairs in tournament.rounds() for pair in pairs]


@given(st.integers(1, 64))
def test_all_meet_each_other_once_in_the_fewest_rounds_and_one_rests_where_they_are_odd(members):
    rounds = Tournament.of(members).rounds()
    met = [pair for pairs in rounds for pair in pairs]
    assert len(met) == len(set(met)) == members * (members - 1) // 2
    assert all(0 <= low < high < members for low, high in met)
    if members > 1:
        assert len(rounds) == members - 1 + members % 2
        assert {len(pairs) for pairs in rounds} == {members // 2}


@given(st.integers(65, 600))
def test_many_members_meet_a_few_different_ones_each(members):
    met = pairs_of(Tournament.of(members))
    assert len(met) == len(set(met)) == members // 2 * MATCHINGS
    meetings = Counter(member for pair in met for member in pair)
    assert set(meetings.values()) <= {MATCHINGS - 1, MATCHINGS}
    assert len(meetings) == members


def test_in_every_pass_everybody_meets_the_same_in_another_order():
    for members in (2, 5, 64, 65, 200):
        passes = [Tournament.of(members, one_pass) for one_pass in range(3)]
        assert len({frozenset(pairs_of(tournament)) for tournament in passes}) == 1
        assert len({str(tournament.rounds()) for tournament in passes}) == (3 if members > 2 else 1)


def test_the_few_that_are_met_are_not_the_neighbours():
    met = pairs_of(Tournament.of(512))
    near = sum(high - low <= 16 for low, high in met)
    assert near < len(met) / 8  # 6 % by chance


@settings(max_examples=50)
@given(st.integers(1, 600), st.data())
def test_both_of_a_pair_know_of_it_and_are_in_no_other_pair_of_the_round(members, data):
    tournament = Tournament.of(members)
    for pairs in tournament.rounds():
        assert len({member for pair in pairs for member in pair}) == 2 * len(pairs)
    member = data.draw(st.integers(0, members - 1))
    for turn, other in enumerate(tournament.partners(member)):
        if other is not None:
            assert tournament.partners(other)[turn] == member
            assert (min(member, other), max(member, other)) in tournament.rounds()[turn]


@given(st.integers(4, 512), st.data())
def test_suspects_meet_more_good_ones_than_suspects_where_there_are_enough(members, data):
    suspects = data.draw(st.lists(st.integers(0, members - 1), min_size=1, max_size=20))
    chosen = panel(members, suspects)
    doubted = set(suspects) & set(chosen)
    good = set(chosen) - set(suspects)
    assert len(chosen) == len(set(chosen)) <= 2 * MOST_SUSPECTS + 1
    assert len(good) >= min(max(FEWEST_GOOD, len(doubted) + 1), members - len(set(suspects)))
    assert suspects[0] in chosen
    for few in (2, 3):  # all meet again
        assert panel(few, [1]) == list(range(few))


def test_the_plan_fits_one_message_however_many_ranks_there_are():
    for world, per_node in ((6, 2), (10_000, 1), (10_000, 8), (16_384, 8)):
        ranks, nodes = list(range(world)), world // per_node
        cyclic = [rank for first in range(nodes) for rank in ranks[first::nodes]]
        for order in (ranks, cyclic, Random(1).sample(ranks, world)):
            teams = [tuple(sorted(order[i : i + per_node])) for i in range(0, world, per_node)]
            games = [Game("nodes", teams), Game("inside", teams)]
            games.append(Game("ranks", [team[:1] for team in teams]))
            told = json.dumps(pack(games, world))
            assert len(told) < 65_000
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


def test_a_rank_in_no_team_rests_as_often_as_others_meet():
    resting = Game("ranks", [(0,), (2,), (4,)]).meetings(1, 0)
    assert [meeting.peer for meeting in resting] == [None] * 3


def test_what_ranks_moved_by_turns_adds_up_to_what_their_way_lets_through():
    """Each rank has all 10 GB/s for two seconds, then nothing for two."""
    one = rates_of([0, 1, 2, 5, 6, 9], 10, 8, 4)
    other = rates_of([0, 3, 4, 7, 8], 10, 8, 4)
    assert sum(one) / 4 + sum(other) / 4 == pytest.approx(10, rel=0.1)
    assert rates_of([0, 1, 2, 3, 4.5], 10, 4, 2) == pytest.approx([10, 10 * (1 + 1 / 1.5) / 2])
    # A repeat longer than a part is one figure, not several that agree.
    assert rates_of([0, 2], 10, 2, 4) == pytest.approx([5])
    assert rates_of([0, 1, 4], 10, 4, 4) == pytest.approx([20 / 3, 10 / 3])


def test_all_go_on_until_each_part_has_a_repeat_but_not_for_a_link_that_needs_forever():
    for longest, seconds, window in (
        (0.1, 5, 0.8), (0.1, 0.6, 0.6), (1.0, 3, 4), (1.0, 2, 4), (10, 3, 6),
    ):  # fmt: skip
        assert Effort(1, 0.1, seconds, 4).window(longest) == pytest.approx(window)
