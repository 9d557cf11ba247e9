"""Statistics of a sweep: when to stop, and which rank arrives late."""

import random
import statistics
from itertools import product

import pytest

from oddrank.bench.arrivals import are_enough, smallest_effect
from oddrank.bench.case import Case
from oddrank.bench.plan import Budget
from oddrank.bench.sampling import StoppingRule, error_of_passes, relative_error
from oddrank.peers import Arrival, late_ranks, quantiles_of


class Machine:
    """A clock that only iterations move. slow_until: seconds of 4 times slower iterations."""

    def __init__(self, one_us, noise, seed=1, slow_until=0.0):
        self.now, self.one, self.noise, self.slow_until = 0.0, one_us, noise, slow_until
        self.random = random.Random(seed)

    def iteration(self):
        slower = 4 if self.now < self.slow_until else 1
        us = self.one * slower * (1 + self.noise * self.random.random())
        self.now += us / 1e6
        return us

    def run(self, target, seconds, **more):
        """Returns (all counted times, number of uncounted iterations)."""
        kept, dropped = [], 0
        for block, counts in self.blocks(StoppingRule(target, seconds, **more)):
            kept += block if counts else []
            dropped += 0 if counts else len(block)
        return kept, dropped

    def blocks(self, rule, count=1):
        """Yields each block, and whether it counts."""
        began, counts = self.now, False
        while count:
            block = [self.iteration() for _ in range(count)]
            yield block, counts
            count, counts = rule.after(block, self.now - began)


def test_a_quiet_machine_needs_few_iterations_and_a_noisy_one_more():
    kept, dropped = Machine(100, 0.001).run(0.01, 60)
    assert relative_error(kept) <= 0.01
    assert len(kept) <= 250
    assert dropped >= 1
    noisy, _ = Machine(100, 2.0).run(0.01, 60)
    assert relative_error(noisy) <= 0.01
    assert len(noisy) > len(Machine(100, 0.5).run(0.05, 60)[0])


def test_time_is_the_limit_where_the_error_is_never_reached():
    for one in (100, 10_000, 400_000):
        machine = Machine(one, 3.0)
        assert machine.run(1e-9, 2)[0]
        assert machine.now < 2 * 1.01 + 24 * one / 1e6
    machine = Machine(100_000, 0.5)
    assert len(machine.run(0.001, 20)[0]) > 100
    assert 19 < machine.now < 20.2


def test_long_iterations_are_not_repeated_for_nothing():
    for one, target, seconds, number in ((500_000, 0.01, 60, 6), (30_000, 0.01, 0.08, 2)):
        kept, dropped = Machine(one, 0.001).run(target, seconds)
        assert (len(kept), dropped) == (number, 1)


def test_a_slow_start_does_not_count_however_short_the_time():
    for seconds in (0.001, 0.05, 10):
        kept, _ = Machine(100, 0.001, slow_until=0.04).run(0.01, seconds)
        assert statistics.median(kept) == pytest.approx(100, rel=0.01), seconds
    # The least time that a case has leaves iterations that count.
    share = Budget(1e-9, [Case("all_reduce", "float32", 1024)]).share(0)[0]
    for one in (100, 1000, 5000):
        kept, dropped = Machine(one, 0.001).run(1e-9, share)
        assert dropped >= 0.04 / (one / 1e6), one
        assert len(kept) >= 6, "with fewer a median has no error"


def test_the_error_covers_the_true_median_as_often_as_it_says():
    chance = random.Random(7)
    inside = 0
    for _ in range(400):
        times = [chance.lognormvariate(0, 0.5) for _ in range(100)]
        error = relative_error(times) * statistics.median(times)
        inside += abs(statistics.median(times) - 1) <= error * 1.15  # the interval is not symmetric
    assert inside >= 0.93 * 400
    assert relative_error([1.0] * 5) == float("inf")
    assert relative_error([1.0] * 6) == 0


def test_where_few_iterations_fit_into_a_pass_it_takes_the_time_of_all():
    for one, takes_all in ((1000, False), (100_000, True)):
        machine, rule = Machine(one, 3.0), StoppingRule(1e-9, 0.3, 1.5)
        list(machine.blocks(rule))
        assert rule.takes_all == takes_all
        assert machine.now == pytest.approx(1.5 if takes_all else 0.3, rel=0.3)


def test_one_long_iteration_takes_no_time_from_later_passes():
    machine, rule = Machine(1000, 3.0), StoppingRule(1e-9, 0.3, 1.5)
    count, _ = rule.after([100_000], 0.1)
    list(machine.blocks(rule, count))
    assert not rule.takes_all
    assert machine.now < 0.4


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 10])
def test_the_error_of_few_passes_covers_what_they_have_in_common_in_95_percent(number):
    """Passes differ by 10 %, each known well: 95 % of intervals contain the true median."""
    dice = random.Random(number)
    held = 0
    for _ in range(300):
        levels = [dice.gauss(100, 10) for _ in range(number)]
        passes = [[dice.gauss(level, 0.5) for _ in range(40)] for level in levels]
        center = statistics.fmean(statistics.median(one_pass) for one_pass in passes)
        held += abs(center - 100) <= error_of_passes(passes) * center
    if number >= 3:
        assert 0.92 <= held / 300 <= 0.98
    else:  # how passes differ is unknown: no interval
        assert error_of_passes(passes) == float("inf")


def test_blocks_that_count_are_long_beside_the_agreement_after_them():
    for agreement, wanted in ((0.0, 20), (0.05, 200)):
        rule, spent, count, counts = StoppingRule(1e-9, 60), 0.0, 1, False
        dice = random.Random(3)
        while not counts:
            spent += count * 1e-3 + agreement
            block = [1000 * dice.uniform(0.9, 1.1) for _ in range(count)]
            count, counts = rule.after(block, spent, agreement)
        assert count == pytest.approx(wanted, rel=0.2)


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


def ranks(came):
    return [late.rank for late in late_ranks(came)]


def test_a_late_rank_is_named_and_nobody_else():
    for world, times, seed in product((2, 3, 4, 8, 32), (3, 10, 30), range(3)):
        by = times * arrivals(world)[0].spread
        (late,) = late_ranks(arrivals(world, late=1, by=by, seed=seed))
        assert late.rank == 1, (world, times)
        assert late.by == pytest.approx(by, rel=0.35)
        assert late.share > 0.5


def test_a_healthy_job_and_jitter_name_nobody():
    for world, jitter in product((1, 2, 3, 4, 8, 32), (None, 0)):
        assert not any(late_ranks(arrivals(world, jitter=jitter, seed=seed)) for seed in range(10))


def test_whoever_is_late_by_its_own_part_and_known_to_be_is_named_the_latest_first():
    two = arrivals(8, late=3, by=3000)
    two[5] = arrivals(8, late=5, by=9000)[5]
    few = arrivals(4, late=1, by=5000, n=200)
    always_last = arrivals(2, skew=500)
    for came, late in (
        (two, [5, 3]),
        (few, [1]),  # a suspicion
        (arrivals(4, late=1, by=500), [1]),
        (arrivals(4, late=1, by=500, error=400), []),  # clocks are not known well enough
        # A collective lets it go last, or the other one first.
        (always_last, []),
        (arrivals(2, skew=100, late=1, by=5 * 110), [1]),
    ):
        assert ranks(came) == late
    assert always_last[0].median > 400
    assert (are_enough(few), are_enough(arrivals(4))) == (False, True)
    assert smallest_effect(arrivals(4, n=200)) is None
    assert smallest_effect(arrivals(4, error=400)) > 800
