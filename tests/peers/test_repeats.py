"""Each peer's median of its repeats, and how much one repeat varies over all."""

import math
import random

import pytest

from oddrank.errors import OddrankError
from oddrank.peers import _summed_up


def times(peers: int, repeats: int, noise: float) -> list[list[float]]:
    """Each peer takes 100 and `noise` of that more or less."""
    normal = random.Random(1).gauss
    return [[100 * math.exp(normal(0, noise)) for _ in range(repeats)] for _ in range(peers)]


def test_the_median_of_an_even_count_is_between_the_two_in_the_middle():
    medians, *_ = _summed_up([[1, 4, 100, 0.01], [7, 5, 9]], 1.0)
    assert medians == pytest.approx([math.log(2), math.log(7)])


@pytest.mark.parametrize("repeats", [2, 3, 4, 9, 100])
def test_the_noise_is_that_of_one_repeat_however_few_a_peer_has(repeats: int):
    _, _, noise, deviations = _summed_up(times(20_000 // repeats, repeats, 0.02), 1.0)
    assert noise is not None
    assert 0.0175 < noise < (0.027 if repeats == 3 else 0.0225)  # of three a bit too much
    assert deviations == (repeats - 1) * (20_000 // repeats)


def test_a_few_odd_ones_add_nothing_to_the_noise_nor_to_a_scatter():
    peers = times(8, 25, 0.02)
    _, _, before, _ = _summed_up(peers, 1.0)
    for peer in peers:
        peer[3] = peer[17] = 1e9
    _, scatters, after, _ = _summed_up(peers, 1.0)
    assert after == pytest.approx(before, abs=0.006)
    assert max(scatters) < 0.06


def test_who_jitters_more_has_more_scatter():
    peers = times(8, 25, 0.01)
    peers[5] = times(6, 25, 0.1)[5]
    _, scatters, _, _ = _summed_up(peers, 1.0)
    assert scatters[5] > 4 * scatters[4]


def test_one_repeat_each_tells_no_noise():
    _, scatters, noise, deviations = _summed_up([[1.0], [2.0]], 1.0)
    assert (scatters, noise, deviations) == ([0, 0], None, 0)


@pytest.mark.parametrize("values", [[], [1.0, 0.0], [math.inf], [math.nan]])
def test_what_is_no_time_cannot_be_compared(values: list[float]):
    with pytest.raises(OddrankError, match="cannot be compared"):
        _summed_up([[1.0], values], 1.0)
