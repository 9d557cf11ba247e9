"""Everybody meets everybody once, nobody twice at a time; large worlds meet a few at random."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oddrank.bench.pairs.tournament import FEWEST_GOOD, MATCHINGS, MOST_SUSPECTS, Tournament, panel


def pairs_of(tournament):
    return [pair for pairs in tournament.rounds() for pair in pairs]


@given(st.integers(1, 64))
def test_everybody_meets_everybody_once(members):
    met = pairs_of(Tournament.of(members))
    assert len(met) == len(set(met)) == members * (members - 1) // 2
    assert all(0 <= low < high < members for low, high in met)


@given(st.integers(2, 64))
def test_there_are_no_more_rounds_than_needed_and_one_rests_where_the_number_is_odd(members):
    rounds = Tournament.of(members).rounds()
    assert len(rounds) == members - 1 + members % 2
    assert {len(pairs) for pairs in rounds} == {members // 2}


@given(st.integers(1, 600))
def test_the_pairs_of_a_round_are_disjoint(members):
    for pairs in Tournament.of(members).rounds():
        assert max(Counter(member for pair in pairs for member in pair).values()) == 1


@given(st.integers(65, 600))
def test_many_members_meet_a_few_different_ones_each(members):
    met = pairs_of(Tournament.of(members))
    assert len(met) == len(set(met)) == members // 2 * MATCHINGS
    meetings = Counter(member for pair in met for member in pair)
    assert set(meetings.values()) <= {MATCHINGS - 1, MATCHINGS}
    assert len(meetings) == members


@pytest.mark.parametrize("members", [2, 5, 64, 65, 200])
def test_in_every_visit_everybody_meets_the_same_in_another_order(members):
    visits = [Tournament.of(members, visit) for visit in range(3)]
    assert len({frozenset(pairs_of(tournament)) for tournament in visits}) == 1
    if members > 2:
        assert len({str(tournament.rounds()) for tournament in visits}) == 3


def test_the_few_that_are_met_are_not_the_neighbours():
    met = pairs_of(Tournament.of(512))
    near = sum(high - low <= 16 for low, high in met)
    assert near < len(met) / 8  # 6 % by chance


@given(st.integers(1, 200), st.data())
def test_both_of_a_pair_know_of_it(members, data):
    tournament = Tournament.of(members)
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


@pytest.mark.parametrize("members", [2, 3])
def test_so_few_all_meet_again(members):
    assert panel(members, [1]) == list(range(members))
