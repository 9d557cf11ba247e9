"""Who is slower than its peers: named if it is sure, a suspect if it is not, and else nobody.

And who deviates from what most have.
"""

import statistics
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oddrank.errors import OddrankError
from oddrank.peers import ALARM, compare, majority, medians_of_others, z_of


def measured(peers, repeats=9, noise=0.01, seed=0, **slow):
    """Times of p0, p1, ...; p2=0.05 makes p2 5 % slower."""
    random = Random(seed)
    return {
        f"p{i}": [
            100 * (1 + slow.get(f"p{i}", 0)) * random.lognormvariate(0, noise)
            for _ in range(repeats)
        ]
        for i in range(peers)
    }


def slow_of(found):
    return [peer for peer in found.peers if found.is_slow(peer)]


def suspects_of(found):
    """Returns the peers to measure again: their effect is over the line, its lower bound is not."""
    return [peer for peer in found.peers if peer.effect > found.line and not found.is_slow(peer)]


def names(found):
    return [peer.name for peer in found]


def test_one_that_is_a_tenth_slower_is_named_and_of_rates_the_lowest():
    for peers in (3, 4, 8, 64):
        found = compare(measured(peers, p2=0.10), better="low")
        assert names(slow_of(found)) == ["p2"]
        assert found.peers[0].effect == pytest.approx(0.10, abs=0.02)
        assert found.peers[0].lower > found.line
    rates = {name: [1 / t for t in times] for name, times in measured(8, p2=0.1).items()}
    found = compare(rates, better="high")
    assert names(slow_of(found)) == ["p2"]
    assert found.peers[0].effect == pytest.approx(0.10, abs=0.02)
    assert found.peers[0].value < found.peers[0].reference
    assert not slow_of(compare({n: [1 / v for v in r] for n, r in rates.items()}, better="high"))


def test_nobody_is_named_among_equals():
    for seed in range(100):
        for peers in (2, 3, 5, 16, 40):
            assert not slow_of(compare(measured(peers, seed=seed), better="low"))


def test_who_is_only_faster_is_not_slow_and_makes_nobody_slow():
    found = compare(measured(8, p3=-0.3), better="low")
    assert not slow_of(found)
    assert not suspects_of(found)


def test_a_small_lag_is_a_suspect_and_named_once_measured_often_with_good_ones():
    times = measured(8, repeats=9, noise=0.02, seed=1, p2=0.045)
    first = compare(times, better="low", comparisons=80)
    assert "p2" in names(suspects_of(first))
    assert "p2" not in names(slow_of(first))
    panel = measured(4, repeats=400, noise=0.02, seed=2, p2=0.045)
    again = compare(panel, better="low", comparisons=80, spread=first.spread)
    assert names(slow_of(again)) == ["p2"]


def test_a_suspect_that_was_only_unlucky_is_cleared_when_measured_again():
    panel = measured(4, repeats=400, noise=0.02, seed=3)
    again = compare(panel, better="low", comparisons=80)
    assert not slow_of(again)
    assert not suspects_of(again)


def test_jitter_alone_names_nobody():
    for seed in range(50):
        times = measured(8, seed=seed)
        random = Random(seed)
        times["p2"] = [100 * random.lognormvariate(0, 0.2) for _ in range(9)]
        assert not slow_of(compare(times, better="low"))


def test_the_reference_leaves_the_suspect_out():
    found = compare({"a": [100, 100, 101], "b": [120, 120, 121]}, better="low")
    assert found.peers[0].reference == pytest.approx(100)
    assert found.peers[0].effect == pytest.approx(0.2)  # of all four values it would be half


def test_of_two_peers_a_name_is_never_sure():
    assert compare(measured(2), better="low").level == "low"
    assert compare(measured(3), better="low").level == "medium"
    assert compare(measured(8), better="low").level == "high"


def test_many_peers_show_a_healthy_spread_and_the_line_stays_above_it():
    random = Random(4)
    usual = {f"p{i}": random.gauss(0, 0.007) for i in range(64)}
    found = compare(measured(64, repeats=25, **usual), better="low")
    assert found.spread == pytest.approx(0.007, rel=0.35)
    assert found.line == pytest.approx(found.spread * z_of(64, 0.37 * 64), rel=0.05)
    assert not slow_of(found)


def test_single_values_of_few_peers_tell_nothing():
    found = compare({"a": [1.0], "b": [1.0], "c": [2.0]}, better="low")
    assert not slow_of(found)
    assert names(suspects_of(found)) == ["c"]
    assert found.visible == float("inf")


def test_single_values_of_many_peers_have_their_own_spread():
    random = Random(5)
    values = {i: [random.gauss(100, 1)] for i in range(40)}
    assert not slow_of(compare(values, better="low"))
    assert names(slow_of(compare(values | {7: [130.0]}, better="low"))) == [7]


def test_the_smallest_effect_that_could_be_seen_shrinks_with_repeats_and_grows_with_noise():
    few = compare(measured(8, repeats=5), better="low").visible
    many = compare(measured(8, repeats=100), better="low").visible
    noisy = compare(measured(8, repeats=100, noise=0.05), better="low").visible
    assert 0.02 < many < few
    assert many < noisy


def test_an_effect_of_the_visible_size_is_found_19_times_of_20():
    found = 0
    for seed in range(200):
        visible = compare(measured(8, seed=seed), better="low").visible
        slow = slow_of(compare(measured(8, seed=seed, p2=visible), better="low"))
        found += names(slow) == ["p2"]
    assert found >= 180


def test_what_can_not_be_compared_is_refused():
    odd = ([], [0.0], [-1.0], [float("nan")], [float("inf")])
    for wrong in ({}, {"a": [1.0]}, *({"a": [1.0], "b": values} for values in odd)):
        with pytest.raises(OddrankError):
            compare(wrong, better="low")


@given(st.lists(st.integers(-5, 5), min_size=2, max_size=12))
def test_the_median_of_the_others_is_what_leaving_one_out_gives(values):
    expected = [statistics.median(values[:i] + values[i + 1 :]) for i in range(len(values))]
    assert medians_of_others(values) == expected


@given(
    st.dictionaries(
        st.integers(0, 30), st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=6), min_size=2,
        max_size=25,
    )
)  # fmt: skip
def test_whatever_was_measured_everybody_is_there_once_and_the_slowest_first(times):
    found = compare(times, better="low")
    assert {peer.name for peer in found.peers} == set(times)
    effects = [peer.effect for peer in found.peers]
    assert effects == sorted(effects, reverse=True)
    assert all(peer.lower <= peer.effect for peer in found.peers)
    assert found.line > 0.0199


def test_the_good_ones_alone_are_what_others_are_held_against():
    times = measured(8, p0=0.03, p1=0.03, p2=0.03, p3=0.03, p4=0.03)
    against = compare(times, better="low", good={"p5", "p6", "p7"}, line=0.025)
    by_name = {peer.name: peer for peer in against.peers}
    assert all(by_name[f"p{i}"].effect == pytest.approx(0.03, abs=0.015) for i in range(5))
    assert all(abs(by_name[f"p{i}"].effect) < 0.015 for i in range(5, 8))
    assert against.line == 0.025


def test_more_repeats_make_smaller_effects_visible():
    found = compare(measured(8, noise=0.02), better="low", comparisons=80)
    assert found.line < found.visible_after(1600) < found.visible_after(100) < found.visible
    assert compare({"a": [1.0], "b": [1.0]}, better="low").visible_after(10) == float("inf")


def test_the_quantile_is_that_of_students_t():
    assert z_of(1) == pytest.approx(statistics.NormalDist().inv_cdf(1 - ALARM))
    assert z_of(1, 10) == pytest.approx(2.764, rel=0.005)  # t tables, one-sided 0.01
    assert z_of(10, 20) == pytest.approx(3.552, rel=0.005)  # and 0.001
    for degrees, share, quantile in (
        (1, 0.001, 318.31), (2, 0.001, 22.327), (3, 0.001, 10.215), (4, 0.0001, 13.034),
        (5, 0.01, 3.365),
    ):  # fmt: skip
        assert z_of(ALARM / share, degrees) == pytest.approx(quantile, rel=0.001)
    assert z_of(10, 0.2) == z_of(10, 1)


def test_peers_that_deviate_may_be_named_only_if_more_than_half_agree():
    for values, value, deviants, is_enough in (
        ("A", "A", (), True), ("AAA", "A", (), True), ("AB", "A", (1,), False),
        ("BAA", "A", (0,), True), ("BBAA", "B", (2, 3), False), ("ABC", "A", (1, 2), False),
        ("CABAB", "A", (2, 4, 0), False), ("CABAA", "A", (0, 2), True),
    ):  # fmt: skip
        found = majority(dict(enumerate(values)))
        assert (found.value, found.deviants, found.is_enough) == (value, deviants, is_enough)
        assert (found.count, found.votes) == (values.count(value), len(values))


def test_a_larger_majority_can_be_asked_for_and_peers_can_have_parts_of_a_vote():
    values = {"a": 1, "b": 1, "c": 1, "d": 2}
    assert majority(values, least=0.7).is_enough
    assert not majority(values, least=0.75).is_enough
    by_node = majority(values, weights={"a": 1 / 3, "b": 1 / 3, "c": 1 / 3, "d": 2.0})
    assert (by_node.value, by_node.votes) == (2, 3.0)
