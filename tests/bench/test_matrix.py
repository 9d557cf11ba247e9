"""Pairs: the schedule of their rounds, and what a slow row, column or cell of the matrix is."""

import json
import math
from collections import Counter
from random import Random
from statistics import fmean, pvariance

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simulated_links as links
from oddrank.bench.pairs.exchange import Effort, rates_of
from oddrank.bench.pairs.matrix import (
    Judgement,
    error_of_median,
    judge,
    noise_of,
    parts_of,
)
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
from simulated_links import Links, first_measurement, named, rounds_of

EXACT = 0.001


def pairs_of(tournament):
    return [pair for pairs in rounds_of(tournament) for pair in pairs]


@given(st.integers(1, 64))
def test_all_meet_each_other_once_in_the_fewest_rounds_and_one_rests_where_they_are_odd(members):
    rounds = rounds_of(Tournament.of(members))
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
        assert len({str(rounds_of(tournament)) for tournament in passes}) == (
            3 if members > 2 else 1
        )


def test_the_few_that_are_met_are_not_the_neighbours():
    met = pairs_of(Tournament.of(512))
    near = sum(high - low <= 16 for low, high in met)
    assert near < len(met) / 8  # 6 % by chance


@settings(max_examples=50)
@given(st.integers(1, 600), st.data())
def test_both_of_a_pair_know_of_it_and_are_in_no_other_pair_of_the_round(members, data):
    tournament = Tournament.of(members)
    for pairs in rounds_of(tournament):
        assert len({member for pair in pairs for member in pair}) == 2 * len(pairs)
    member = data.draw(st.integers(0, members - 1))
    for turn, other in enumerate(tournament.partners(member)):
        if other is not None:
            assert tournament.partners(other)[turn] == member
            assert (min(member, other), max(member, other)) in rounds_of(tournament)[turn]


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


def test_all_ranks_of_a_node_send_first_or_none_and_one_in_no_team_rests_as_others_meet():
    game = Game("nodes", [(0, 3), (1, 2), (4, 5)])
    for team in game.teams:
        first, second = (game.meetings(rank, 0) for rank in team)
        assert [meeting.first for meeting in first] == [meeting.first for meeting in second]
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


def judged(members, slow, noise=EXACT, seed=1, effect=0.2):
    return first_measurement(Links(members, noise, Random(seed), slow), effect)


def only(judgement):
    (suspect,) = judgement.suspects
    return suspect.part.kind, suspect.part.ranks, suspect.part.to


def test_a_hot_row_is_a_sender_a_column_a_receiver_and_a_cell_a_link():
    """Of three ranks where one is slow both ways four of six cells are slow, of four ranks half."""
    for members in (3, 4, 5, 8, 16):
        for slow, part in (
            (links.sender(1, 0.3), ("sender", (1,), ())),
            (links.receiver(0, 0.3), ("receiver", (0,), ())),
            (links.both(2, 0.5), ("both", (2,), ())),
            (links.link(0, 2, 0.3), ("link", (0,), (2,))),
            (links.way(2, 0, 0.3), ("way", (2,), (0,))),
        ):
            assert only(judged(members, slow)) == part, members
    # Few partners a rank suffice in a large world.
    assert only(judged(200, links.sender(17, 0.3), noise=0.03)) == ("sender", (17,), ())
    assert only(judged(201, links.both(0, 0.3), noise=0.03)) == ("both", (0,), ())


def test_of_two_ranks_only_the_link_can_be_named():
    judgement = judged(2, links.sender(0, 0.5))
    assert only(judgement) == ("way", (0,), (1,))
    assert judgement.suspects[0].others == 1
    assert not judged(2, links.both(0, 0.5)).suspects  # no other link to compare with


def test_among_few_ranks_a_slow_one_is_found_though_something_is_in_the_way_for_whole_passes():
    """Few links have few steps between passes: one disturbed pass must not set the noise."""
    world = {"noise": 0.1, "lasting": 0.1, "heavy": True, "slow": links.sender(1, 0.3)}
    for members in (3, 4):
        made = (Links(members, random=Random(seed), **world) for seed in range(40))
        found = [[s.part.ranks for s in first_measurement(one).suspects] for one in made]
        assert found.count([(1,)]) >= 34, members


def test_two_faults_are_both_found():
    def slow(cell):
        return max(links.sender(2, 0.4)(cell), links.link(5, 6, 0.6)(cell))

    found = {(s.part.kind, s.part.ranks) for s in judged(8, slow).suspects}
    assert found == {("sender", (2,)), ("link", (5,))}


def test_two_racks_and_a_fault_below_the_line_name_nobody_and_noise_raises_the_line():
    racks = judged(8, lambda cell: 0.5 * ((cell[0] < 4) != (cell[1] < 4)))
    assert (racks.uneven, [*racks.suspects]) == (True, [])
    judgement = judged(4, links.sender(1, 0.05))
    assert not judgement.suspects
    assert judgement.seen_end == pytest.approx(0.138, abs=0.01)  # 1 - 0.8 ** (2 / 3)
    quiet, loud = (judged(8, links.sender(1, 0), noise) for noise in (0.01, 0.8))
    assert quiet.smallest() < 0.2 < loud.smallest()


def test_nothing_measured_is_nothing_judged():
    assert judge({}, [], 0.2, 4) == Judgement()
    assert judge({(0, 1): [[]]}, parts_of([(0, 1)], [(0,), (1,)]), 0.2, 2) == Judgement()


@given(st.lists(st.floats(1, 1.1), min_size=8, max_size=40))
def test_one_repeat_that_something_came_between_does_not_count_as_noise(repeats):
    for seen in (repeats, [*repeats[:4], 0.01, *repeats[4:]]):
        assert noise_of([seen]).error <= 0.1 * 1.4826 / 2**0.5 + 1e-9


def test_of_few_steps_the_largest_does_not_set_the_spread_and_more_make_the_median_surer():
    assert noise_of([[1, 1.1, 1.2, 12]]).error < noise_of([[1, 1.2, 1.4, 1.6]]).error
    passes = [[1, 1.01, 1], [1, 1.01, 1], [1, 1.01, 3]]
    assert noise_of(passes, 0.683).error == pytest.approx(noise_of(passes[:2], 0.683).error)
    assert error_of_median([1.0, 1.1] * 20) < error_of_median([1.0, 1.1] * 3) / 2
    assert error_of_median([1.0]) == float("inf")


def test_the_spread_is_right_on_average_and_known_as_well_as_its_degrees_say():
    for cells, repeats, share in ((20, 4, 0.5), (6, 5, 0.683)):
        random, squares = Random(1), []
        for _ in range(1000):
            seen = [[math.exp(random.gauss(0, 0.1)) for _ in range(repeats)] for _ in range(cells)]
            noise = noise_of(seen, share)
            squares.append(noise.error**2)
        assert fmean(squares) == pytest.approx(0.1**2, rel=0.15)
        degrees = 2 * fmean(squares) ** 2 / pvariance(squares)
        assert degrees == pytest.approx(noise.degrees, rel=0.3)


@settings(max_examples=20)
@given(st.integers(2, 32), st.floats(0.01, 0.1), st.integers(0, 2**32), st.booleans())
def test_healthy_ranks_are_not_named(members, noise, seed, heavy):
    assert not named(Links(members, noise, Random(seed), heavy=heavy))


@settings(max_examples=20)
@given(st.integers(2, 16), st.floats(0.05, 0.3), st.integers(0, 2**32))
def test_what_is_in_the_way_for_a_whole_pass_names_nobody(members, lasting, seed):
    assert not named(Links(members, 0.02, Random(seed), lasting=lasting))


@settings(max_examples=20)
@given(st.integers(3, 16), st.floats(0.01, 0.05), st.integers(0, 2**32), st.data())
def test_who_is_slow_by_30_percent_is_named_and_nobody_else(members, noise, seed, data):
    first, second = data.draw(st.permutations(range(members)))[:2]
    kind = data.draw(st.sampled_from(["sender", "receiver", "both", "link", "way"]))
    ends = (first, second) if kind in ("link", "way") else (first,)
    slow = getattr(links, kind)(*ends, 0.3)
    (found,) = named(Links(members, noise, Random(seed), slow))
    assert found.touched() == set(ends)
