"""A slow row is a sender, a slow column a receiver, a slow cell a link; else nothing is named."""

import math
from random import Random
from statistics import fmean, pvariance

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simulated_links as links
from oddrank.bench.pairs.matrix import Judgement, judge, parts_of
from oddrank.bench.pairs.noise import error_of_median, noise_of, spread_of
from simulated_links import Links, first_measurement, named

EXACT = 0.001


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


def test_two_racks_are_no_fault_of_anybody():
    judgement = judged(8, lambda cell: 0.5 * ((cell[0] < 4) != (cell[1] < 4)))
    assert judgement.uneven
    assert not judgement.suspects


def test_a_fault_below_the_line_is_not_named_and_noise_raises_the_line():
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
        assert spread_of([seen]) <= 0.1 * 1.4826 / 2**0.5 + 1e-9


def test_of_few_steps_the_largest_does_not_set_the_spread():
    assert spread_of([[1, 1.1, 1.2, 12]]) < spread_of([[1, 1.2, 1.4, 1.6]])
    passes = [[1, 1.01, 1], [1, 1.01, 1], [1, 1.01, 3]]
    assert spread_of(passes, 0.683) == pytest.approx(spread_of(passes[:2], 0.683))


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


def test_more_repeats_make_the_median_surer_and_one_says_nothing():
    assert error_of_median([1.0, 1.1] * 20) < error_of_median([1.0, 1.1] * 3) / 2
    assert error_of_median([1.0]) == float("inf")


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
