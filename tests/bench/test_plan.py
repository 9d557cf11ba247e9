"""How the time for all that is measured is shared."""

import time

import pytest

from oddrank.bench.case import Case
from oddrank.bench.plan import Budget


def cases(count):
    return [Case("all_reduce", "float32", 1024)] * count


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_what_comes_before_the_cases_takes_its_part_and_leaves_the_rest_to_them(clock):
    budget = Budget(10, cases(4))
    assert budget.part(0.4) == 4
    clock[0] += 4
    assert budget.part(0.4) == 4
    clock[0] += 4
    assert budget.share() == pytest.approx(0.5)  # of the two seconds that are left


def test_what_quick_ones_leave_is_there_for_the_others(clock):
    budget = Budget(10, cases(2))
    assert budget.part(0.4) == 4
    clock[0] += 0.5
    assert budget.share() == pytest.approx(4.75)
    clock[0] += 1
    assert budget.share() == pytest.approx(8.5)


@pytest.mark.parametrize("sizes", [(3 << 20, 255 << 20), (255 << 20, 3 << 20)])
def test_large_cases_have_more_time_than_alike_for_all_and_less_than_by_their_bytes(clock, sizes):
    """So they have more runs than alike for all would leave them, and the small ones still most."""
    budget = Budget(10, [Case("all_reduce", "float32", size) for size in sizes])
    shares = [budget.share()]
    clock[0] += shares[0]
    shares.append(budget.share())
    assert sum(shares) == pytest.approx(10)
    small, large = sorted(shares)
    assert large == shares[sizes.index(max(sizes))]
    assert large > 10 / 2
    assert large / small < max(sizes) / min(sizes) / 5


def test_a_budget_that_is_used_up_leaves_every_case_a_little(clock):
    budget = Budget(1, cases(3))
    budget.share()
    clock[0] += 100
    assert budget.part(0.4) == 0
    assert 0 < budget.share() < 0.1
