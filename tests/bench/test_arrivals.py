"""Late ranks are found by median arrival, never by duration or jitter."""

import random
import statistics

import pytest

from oddrank.bench.arrivals import are_enough, smallest_effect
from oddrank.lateness import Arrival, late_ranks, quantiles_of


def arrivals(
    world, *, late=None, by=0.0, jitter=None, spread=50.0, n=400, error=0.0, skew=0.0, seed=1
):
    """Simulates arrivals: ranks leave a collective within `spread` us; one is late, one jitters.

    skew: us that rank 0 always leaves after the others.
    """
    chance = random.Random(seed)
    gaps = [[chance.expovariate(1) for _ in range(world)] for _ in range(n)]
    left = [[chance.expovariate(3 / spread) for _ in range(world)] for _ in range(n)]
    for gap, leave in zip(gaps, left, strict=True):
        leave[0] += skew
        if late is not None:
            gap[late] += by
        if jitter is not None and chance.random() < 0.3:
            gap[jitter] += 20 * spread
    came = [[a + b for a, b in zip(*rows, strict=True)] for rows in zip(gaps, left, strict=True)]
    behind = [[t - min(row) for t in row] for row in came]
    own = [statistics.median(column) for column in zip(*gaps, strict=True)]
    level = [[t - m for t, m in zip(row, own, strict=True)] for row in came]
    healthy = statistics.median(max(row) - min(row) for row in level)
    return {
        rank: Arrival(n, statistics.median(column), own[rank], quantiles_of(sorted(column)),
                      healthy, error)
        for rank, column in enumerate(zip(*behind, strict=True))
    }  # fmt: skip


def spread_of(world):
    return arrivals(world)[0].spread


@pytest.mark.parametrize("world", [2, 3, 4, 8, 32])
@pytest.mark.parametrize("times", [3, 10, 30])
def test_a_late_rank_is_named_and_nobody_else(world, times):
    for seed in range(5):
        came = arrivals(world, late=1, by=times * spread_of(world), seed=seed)
        (late,) = late_ranks(came)
        assert late.rank == 1
        assert late.by == pytest.approx(times * spread_of(world), rel=0.35)
        assert late.share > 0.5


@pytest.mark.parametrize("world", [2, 3, 4, 8, 32])
def test_a_healthy_job_has_no_late_rank(world):
    assert not any(late_ranks(arrivals(world, seed=seed)) for seed in range(20))


@pytest.mark.parametrize("world", [2, 4, 8])
def test_jitter_names_nobody(world):
    assert not any(late_ranks(arrivals(world, jitter=0, seed=seed)) for seed in range(20))


def test_two_late_ranks_are_both_named_the_latest_first():
    came = arrivals(8, late=3, by=3000)
    more = arrivals(8, late=5, by=9000)
    came[5] = more[5]
    assert [late.rank for late in late_ranks(came)] == [5, 3]


def test_too_few_iterations_make_a_suspicion_of_whoever_is_late():
    few = arrivals(4, late=1, by=5000, n=200)
    assert [one.rank for one in late_ranks(few)] == [1]
    assert not are_enough(few)
    assert are_enough(arrivals(4))


def test_clocks_that_are_not_known_well_enough_name_nobody():
    assert late_ranks(arrivals(4, late=1, by=500))
    assert not late_ranks(arrivals(4, late=1, by=500, error=400))
    assert smallest_effect(arrivals(4, error=400)) > 800


def test_a_rank_that_a_collective_always_lets_go_last_is_not_late():
    came = arrivals(2, skew=500)
    assert came[0].median > 400
    assert not late_ranks(came)


def test_a_rank_that_is_let_go_first_and_comes_late_is_named_by_its_own_part():
    came = arrivals(2, skew=100, late=1, by=5 * 110)
    assert [late.rank for late in late_ranks(came)] == [1]


def test_too_few_iterations_are_not_called_a_healthy_job():
    assert smallest_effect(arrivals(4, n=200)) is None


def test_one_rank_is_never_late():
    assert not late_ranks(arrivals(1))
