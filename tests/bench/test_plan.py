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


def test_large_cases_have_more_time_and_more_runs_than_alike_for_all_would_leave_them(clock):
    small, large = (Case("all_reduce", "float32", size) for size in (3 << 20, 255 << 20))
    budget = Budget(10, [small, large])
    share = budget.share()
    assert share == pytest.approx(10 * 2 / (2 + 16))
    clock[0] += share
    assert budget.share() == pytest.approx(10 - share)


def test_a_budget_that_is_used_up_leaves_every_case_a_little(clock):
    budget = Budget(1, cases(3))
    budget.share()
    clock[0] += 100
    assert budget.part(0.4) == 0
    assert 0 < budget.share() < 0.1
