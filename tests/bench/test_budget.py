"""How much time a deadline leaves for measuring, and how that is shared."""

import re
import time
from dataclasses import replace

import pytest

from job import job
from oddrank import launch
from oddrank.bench import report
from oddrank.bench.budget import ARRIVALS, LEAST, Budget, Limits, limits, longest, visits
from oddrank.bench.case import Case
from oddrank.bench.plan import Task
from oddrank.errors import OddrankError


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
    assert budget.share(0)[0] == pytest.approx(0.5)  # of the two seconds that are left


def test_what_quick_ones_leave_is_there_for_the_others(clock):
    budget = Budget(10, cases(2))
    assert budget.part(0.4) == 4
    clock[0] += 0.5
    assert budget.share(0)[0] == pytest.approx(4.75)
    clock[0] += 1
    assert budget.share(1)[0] == pytest.approx(8.5)


@pytest.mark.parametrize("sizes", [(3 << 20, 255 << 20), (255 << 20, 3 << 20)])
def test_large_cases_have_more_time_than_alike_for_all_and_less_than_by_their_bytes(clock, sizes):
    """So they have more runs than alike for all would leave them, and the small ones still most."""
    budget = Budget(10, [Case("all_reduce", "float32", size) for size in sizes])
    shares = [budget.share(0)[0]]
    clock[0] += shares[0]
    shares.append(budget.share(1)[0])
    assert sum(shares) == pytest.approx(10)
    small, large = sorted(shares)
    assert large == shares[sizes.index(max(sizes))]
    assert large > 10 / 2
    assert large / small < max(sizes) / min(sizes) / 5


def test_a_budget_that_is_used_up_leaves_every_case_a_little(clock):
    budget = Budget(1, cases(3))
    budget.share(0)
    clock[0] += 100
    assert budget.part(0.4) == 0
    assert 0 < budget.share(1)[0] < 0.1


@pytest.mark.parametrize("seconds", [1, 5, 60, 1000])
@pytest.mark.parametrize("sizes", [[1 << 30, *[8] * 300], [*[8] * 300, 1 << 30], [8] * 2325])
@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("whole", [(), (0,), (0, 300), range(299)])
def test_a_sweep_never_takes_longer_than_is_said(clock, seconds, sizes, world, whole):
    began = clock[0]
    times = visits(seconds, len(sizes), world)
    budget = Budget(seconds, [Case("all_reduce", "float32", size) for size in sizes], times)
    for _ in range(2 * (world - 1)):
        clock[0] += budget.part(ARRIVALS)
    for number in range(times):
        for place in range(len(sizes)):
            if not budget.is_over(place):
                one, of_all = budget.share(place)
                takes_all = number == 0 and place in whole
                clock[0] += of_all if takes_all else one
                if takes_all:
                    budget.end(place)
    assert clock[0] - began <= longest(seconds, len(sizes), world) * (1 + 1e-6)


def test_without_a_deadline_there_is_one_that_is_long_enough():
    assert limits(None, None, cases(26), 4) == (60, 300)
    budget, deadline = limits(600, None, cases(26), 4)
    assert budget == 600 < deadline
    many = cases(5000)
    assert limits(None, None, many, 4).deadline > longest(60, 5000, 4) + 100
    large = [Case("all_reduce", "float32", 8 << 30)] * 10
    assert limits(None, None, large, 4).deadline > limits(None, None, cases(10), 4).deadline


@pytest.mark.parametrize("world", [1, 4])
@pytest.mark.parametrize("number", [1, 26, 100])
def test_a_deadline_alone_makes_the_budget_as_short_as_it_must_be(number, world):
    found = [limits(None, deadline, cases(number), world) for deadline in (60, 100, 200, 300, 900)]
    budgets = [budget for budget, _ in found]
    assert budgets == sorted(budgets)
    assert budgets[0] < 60 == budgets[-1]
    for budget, deadline in found:
        assert longest(budget, number, world) < deadline


def test_a_budget_that_does_not_fit_is_refused_and_either_advice_is_good():
    for number, world, budget, deadline in ((26, 4, 60, 30), (26, 1, 600, 300), (300, 2, 60, 120)):
        with pytest.raises(OddrankError) as error:
            limits(budget, deadline, cases(number), world)
        said = str(error.value)
        assert said.startswith(f"--deadline {deadline} is too short for {number} cases and")
        least, most = map(int, re.findall(r"give --deadline (\d+),.* --budget (\d+)$", said)[0])
        assert limits(budget, least, cases(number), world) == (budget, least)
        assert limits(most, deadline, cases(number), world) == (most, deadline)
        with pytest.raises(OddrankError):
            limits(budget, least - 2, cases(number), world)
        with pytest.raises(OddrankError):
            limits(most + 1, deadline, cases(number), world)


@pytest.mark.parametrize("budget", [None, 1, 60])
def test_cases_that_do_not_fit_into_a_deadline_are_refused_with_the_least_that_they_need(budget):
    with pytest.raises(OddrankError, match="or fewer --sizes") as error:
        limits(budget, 60, cases(2000), 2)
    (least,) = map(int, re.findall(r"give --deadline (\d+)", str(error.value)))
    assert limits(budget, least, cases(2000), 2).deadline == least


@pytest.mark.parametrize(
    ("number", "world", "said"),
    [
        (10, 1, "Measuring takes up to 20 s (--budget)"),
        (4500, 1, "up to 360 s: 0.08 s for each case at least, whatever --budget says"),
        (4500, 2, "up to 376 s: 0.08 s for each case at least, whatever --budget says, of them"),
    ],
)
def test_a_dry_run_tells_the_time_that_many_cases_take_whatever_the_budget(number, world, said):
    todo = [Task("auto", case, "") for case in cases(number)]
    here = replace(launch.current({}), world=world, local_world=world)
    _, sentence = report.plan_rows(todo, here, Limits(20, 700))
    assert said in sentence
    assert "Everything ends within 700 s (--deadline)" in sentence


@pytest.mark.needs("torch")
def test_a_deadline_alone_leaves_every_case_its_part():
    verdict = job(2, command=("bench", "run", "--sizes", "8:1M:x2"), deadline=60)
    assert verdict.healthy(), str(verdict)
    assert verdict.report["data"]["not_measured"] == []


def test_cases_are_visited_as_often_as_there_is_time_for():
    assert visits(60, 26, 8) == 4
    assert visits(60, 13, 8) == 9
    assert visits(60, 5, 8) == 10  # more would show little more
    assert visits(1, 26, 8) == visits(60, 5000, 8) == 1
    assert visits(60, 26, 10_000) == 1  # whose ranks take long to agree
    assert visits(60, 50, 8) == 1  # two would not tell how far they lie apart
    assert visits(10, 10, 1) > visits(10, 10, 2)  # nobody to compare arrivals with


def test_a_visit_has_its_part_and_may_take_that_of_all_that_are_left(clock):
    budget = Budget(12, cases(2), 3)
    assert budget.share(0) == pytest.approx((2, 6))
    clock[0] += 2
    assert budget.share(1) == pytest.approx((2, 6))
    clock[0] += 6
    budget.end(1)
    assert budget.is_over(1)
    assert not budget.is_over(0)
    assert budget.share(0) == pytest.approx((2, 4))


def test_what_checks_take_is_gone_for_further_visits_and_not_for_the_first(clock):
    check, number = 2.0, 12
    budget = Budget(20, cases(number), 5)
    made = [0] * number
    for _ in range(5):
        for place in range(number):
            if not budget.is_over(place):
                clock[0] += check + budget.share(place)[0]
                made[place] += 1
    assert min(made) == 1
    assert clock[0] - 1000 <= (number + 1) * (check + LEAST)
