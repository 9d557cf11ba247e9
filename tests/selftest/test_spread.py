"""Few peers tell their healthy spread badly by one figure, and well by twenty."""

from random import Random

import pytest

from oddrank.peers import compare, z_of
from oddrank.selftest.spread import with_common_spread


def figures(*spreads, peers=20):
    """Comparisons of a figure for each spread, the lines as they are after all were seen."""
    found = []
    for i, spread in enumerate(spreads):
        random = Random(i)
        times = {
            rank: [usual * random.lognormvariate(0, 0.005) for _ in range(25)]
            for rank, usual in enumerate(random.lognormvariate(0, spread) for _ in range(peers))
        }
        found.append(compare(times, better="low", comparisons=len(spreads) * peers))
    return with_common_spread(found, 0.03, len(spreads) * peers)


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


@pytest.mark.parametrize(("count", "peers"), [(7, 20), (20, 8)])
def test_few_figures_or_few_peers_have_no_common_spread(count, peers):
    found = figures(*[0.01] * count, peers=peers)
    assert len({one.spread for one in found}) == (count if peers == 20 else 1)
    assert peers == 20 or all(one.line == pytest.approx(0.02) for one in found)
