"""Few peers tell their healthy spread badly by one figure, and well by twenty."""

from random import Random

import pytest

from oddrank.peers import compare, z_of
from oddrank.selftest.spread import with_common_spread


def figures(*spreads, peers=20, groups=0, again=False):
    """Comparisons of a figure for each spread, the lines as they are after all were seen."""
    found = []
    for i, spread in enumerate(spreads):
        random = Random(i)
        times = {
            rank: [usual * random.lognormvariate(0, 0.005) for _ in range(25)]
            for rank, usual in enumerate(random.lognormvariate(0, spread) for _ in range(peers))
        }
        found.append(compare(times, better="low", comparisons=len(spreads) * peers))
    return with_common_spread(found, 0.03, len(spreads) * peers, groups=groups, again=again)


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


def test_few_peers_show_their_spread_in_the_second_look_and_no_line_comes_nearer_by_it():
    even = figures(*[0.001] * 20, peers=8, again=True)
    assert all(one.line == pytest.approx(0.02) for one in even)
    uneven = figures(*[0.01] * 20, peers=8, again=True)
    assert all(one.line > 0.03 for one in uneven)
    assert figures(*[0.01] * 20, peers=3, again=True)[0].line == pytest.approx(0.02)


def test_where_few_nodes_share_the_spread_more_of_it_is_expected():
    one, two = figures(*[0.01] * 20), figures(*[0.01] * 20, groups=2)
    assert two[0].line == pytest.approx(2**0.5 * one[0].line)
