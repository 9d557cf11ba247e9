"""The healthy spread of few peers: one figure estimates it badly, twenty figures well."""

from random import Random

import pytest

from oddrank.peers import compare, sure_line, with_common_spread, z_of


def compared(*spreads, peers=20, slow=(), by=0.2):
    """Returns a comparison for each spread. slow: peers that are slower in all figures."""
    found = []
    for i, spread in enumerate(spreads):
        random = Random(i)
        times = {
            rank: [usual * random.lognormvariate(0, 0.005) for _ in range(25)]
            for rank, usual in enumerate(random.lognormvariate(0, spread) for _ in range(peers))
        }
        for rank in slow:
            times[rank] = [time * (1 + by) for time in times[rank]]
        found.append(compare(times, better="low", comparisons=len(spreads) * peers))
    return found


def figures(*spreads, peers=20, groups=0, slow=()):
    """Returns the thresholds after all figures were pooled."""
    found = compared(*spreads, peers=peers, slow=slow)
    return with_common_spread(found, 0.03, len(spreads) * peers, groups)


def sure(*spreads, peers=8, slow=()):
    return sure_line(compared(*spreads, peers=peers, slow=slow), 0.03, len(spreads) * peers)


def test_many_figures_of_the_same_peers_have_a_common_spread():
    found = figures(*[0.006] * 20)
    assert len({one.spread for one in found}) == 1
    assert found[0].spread == pytest.approx(0.006, rel=0.25)
    assert found[0].line == pytest.approx(found[0].spread * z_of(400, 150), rel=0.05)


def test_a_figure_that_differs_more_keeps_its_own_spread():
    *usual, uneven = figures(*[0.003] * 19, 0.03)
    assert all(one.line == pytest.approx(0.02) for one in usual)
    assert uneven.spread > 0.015
    assert uneven.line > 4 * uneven.spread


def test_few_figures_tell_their_spread_less_surely_and_the_line_is_further_away():
    few = figures(*[0.01] * 3)
    assert few[0].line == pytest.approx(few[0].spread * z_of(60, 22), rel=0.05)
    assert few[0].line > 1.2 * few[0].spread * z_of(60)


def test_of_one_figure_the_line_knows_how_few_peers_tell_its_spread():
    (alone,) = figures(0.01)
    assert alone.line > 1.5 * alone.spread * z_of(20)


def test_few_peers_have_no_common_spread():
    found = figures(*[0.01] * 20, peers=8)
    assert {one.spread for one in found} == {0.0}
    assert all(one.line == pytest.approx(0.02) for one in found)


def test_few_peers_show_their_spread_in_the_second_look():
    assert sure(*[0.001] * 20) == pytest.approx(0.02)
    assert sure(*[0.01] * 20) > 0.03
    assert sure(*[0.01] * 20, peers=3) == 0.0
    assert sure(*[0.01] * 2) == 0.0


@pytest.mark.parametrize("count", [1, 4])
def test_who_is_slow_in_several_figures_is_not_taken_for_healthy_spread(count):
    assert sure(*[0.001] * 6, slow=range(count)) == pytest.approx(0.02)
    (found, *_) = figures(*[0.001] * 6, slow=range(2 * count))
    assert found.line == pytest.approx(0.02)


def test_where_few_nodes_share_the_spread_more_of_it_is_expected():
    one, two = figures(*[0.01] * 20), figures(*[0.01] * 20, groups=2)
    assert two[0].line == pytest.approx(2**0.5 * one[0].line)
