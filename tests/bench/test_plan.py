"""The sizes of a sweep as typed, the time that a deadline leaves for it, and its memory."""

import re
import time
from itertools import pairwise, product
from unittest import mock
from unittest.mock import MagicMock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bench.told import refusal, refusals
from oddrank.bench.case import COLLECTIVES, Case, parse_size, parse_sizes
from oddrank.bench.plan import (
    ARRIVALS,
    LEAST,
    Budget,
    cases_of,
    limits,
    longest,
    memory_of,
    passes_within,
    reserve,
)
from oddrank.finding import size_text

MIB, GIB = 1 << 20, 1 << 30


def test_sizes_are_a_range_with_a_factor():
    for text, sizes in {
        "8:64": [8, 16, 32, 64], "8:64:x8": [8, 64], "1K:1M:x1024": [1 << 10, 1 << 20],
        "256M": [256 << 20], "4kib": [4096], "12:52": [12, 24, 48, 52], "6": [6],
        "1M:3M:+1M": [1 << 20, 2 << 20, 3 << 20], "8:20:+8": [8, 16, 20],
        "1M,8,1K:2K": [8, 1 << 10, 2 << 10, 1 << 20], "8,8:16": [8, 16],
    }.items():  # fmt: skip
        assert parse_sizes(text) == sizes, text
    assert parse_size("16M") == 16 << 20


def test_what_makes_no_sense_is_refused_with_what_to_write(golden):
    ranges = [
        "", "x", "8:", ":8", "64:8", "8:64:2", "8:64:x1", "8:64:x0", "1:2:3:4", "0", "-8", "8.5",
        "8T", "9999G", "8:64:x-2", "\u0668", "8 : 64 : x2 :", "1e9",
        "8,,9", "8:64:+0", "8:64:+x", "1:9G:+1",
    ]  # fmt: skip
    one = refusals(["", "x", "0", "1M:2M", "1M,2M", "9999G"], parse_size)
    golden(f"{refusals(ranges, parse_sizes)}\n\nof one size\n{one}")


def test_a_case_counts_elements_of_its_dtype():
    assert Case("all_reduce", "float32", 64).count == 16
    assert Case("all_reduce", "bfloat16", 64).count == 32
    assert str(Case("all_reduce", "float32", 64 << 20)) == "all_reduce float32 64 MiB"
    # Only exact sizes are shortened.
    texts = {8: "8 B", 1 << 10: "1 KiB", 1536: "1536 B", 3 << 30: "3 GiB"}
    assert {size: size_text(size, exact=True) for size in texts} == texts


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
    assert budget.share(0)[0] == pytest.approx(0.5)  # of the remaining two seconds
    clock[0] += 100
    assert budget.part(0.4) == 0
    assert 0 < budget.share(1)[0] < 0.1  # a case always has a little


def test_a_pass_has_its_part_and_may_take_what_others_leave(clock):
    budget = Budget(12, cases(2), 3)
    assert budget.share(0) == pytest.approx((2, 6))
    clock[0] += 1
    assert budget.share(1) == pytest.approx((2.2, 6.6))
    clock[0] += 7
    budget.end(1)
    assert budget.is_over(1)
    assert not budget.is_over(0)
    assert budget.share(0) == pytest.approx((2, 4))


@pytest.mark.parametrize("sizes", [(3 << 20, 255 << 20), (255 << 20, 3 << 20)])
def test_large_cases_have_more_time_than_alike_for_all_and_less_than_by_their_bytes(clock, sizes):
    """Large cases run more often than with equal shares; small ones still run most."""
    budget = Budget(10, [Case("all_reduce", "float32", size) for size in sizes])
    shares = [budget.share(0)[0]]
    clock[0] += shares[0]
    shares.append(budget.share(1)[0])
    assert sum(shares) == pytest.approx(10)
    small, large = sorted(shares)
    assert large == shares[sizes.index(max(sizes))]
    assert large > 10 / 2
    assert large / small < max(sizes) / min(sizes) / 5


@settings(deadline=None, max_examples=150)
@given(
    seconds=st.floats(1, 1000),
    sizes=st.lists(st.sampled_from([8, 8, 8, 1 << 20, 1 << 30]), min_size=1, max_size=80),
    copies=st.sampled_from([1, 1, 4]),
    world=st.sampled_from([1, 2, 8]),
    whole=st.sets(st.integers(0, 319)),
)
@example(seconds=5, sizes=[1 << 30, *[8] * 300], copies=1, world=2, whole={0, 300})
@example(seconds=60, sizes=[*[8] * 300, 1 << 30], copies=1, world=2, whole=set(range(299)))
@example(seconds=1000, sizes=[8], copies=1, world=1, whole=set())
def test_a_sweep_never_takes_longer_than_is_said(seconds, sizes, copies, world, whole):
    """whole: number of cases that take the time of all passes at once."""
    now = 1000.0

    def clock():
        return now

    sizes = sizes * copies
    times = passes_within(seconds, len(sizes), world)
    with mock.patch.object(time, "monotonic", clock):
        budget = Budget(seconds, [Case("all_reduce", "float32", size) for size in sizes], times)
        for _ in range(2 * (world > 1)):
            now += budget.part(ARRIVALS)
        for number in range(times):
            for index in range(len(sizes)):
                if not budget.is_over(index):
                    one, of_all = budget.share(index)
                    takes_all = number == 0 and index in whole
                    now += of_all if takes_all else one
                    if takes_all:
                        budget.end(index)
    assert now - 1000 <= longest(seconds, len(sizes), world) * (1 + 1e-6)


def test_without_a_deadline_there_is_one_that_is_long_enough():
    assert limits(None, None, cases(26), 4) == (60, 300)
    budget, deadline = limits(600, None, cases(26), 4)
    assert budget == 600 < deadline
    many = cases(5000)
    assert limits(None, None, many, 4).deadline > longest(60, 5000, 4) + 100
    large = [Case("all_reduce", "float32", 8 << 30)] * 10
    assert limits(None, None, large, 4).deadline > limits(None, None, cases(10), 4).deadline


def test_a_deadline_alone_makes_the_budget_as_short_as_it_must_be():
    for world, number in product((1, 4), (1, 26, 100)):
        found = [limits(None, limit, cases(number), world) for limit in (60, 100, 200, 300, 900)]
        budgets = [budget for budget, _ in found]
        assert budgets == sorted(budgets)
        assert budgets[0] < 60 == budgets[-1]
        for budget, deadline in found:
            assert longest(budget, number, world) < deadline


def test_a_budget_or_cases_that_do_not_fit_are_refused_and_every_advice_is_good(golden):
    said = []
    for number, world, budget, deadline in (
        (26, 4, 60, 30), (26, 1, 600, 300), (300, 2, 60, 120),
        (2000, 2, None, 60), (2000, 2, 1, 60), (2000, 2, 60, 60),
    ):  # fmt: skip
        said.append(refusal(limits, budget, deadline, cases(number), world))
        (least,) = map(int, re.findall(r"give --deadline (\d+)", said[-1]))
        assert limits(budget, least, cases(number), world).deadline == least
        refusal(limits, budget, least - 2, cases(number), world)
        for most in map(int, re.findall(r"or --budget (\d+)$", said[-1])):
            assert limits(most, deadline, cases(number), world) == (most, deadline)
            refusal(limits, most + 1, deadline, cases(number), world)
    golden("\n".join(said))


def test_cases_have_as_many_passes_as_there_is_time_for():
    assert passes_within(60, 26, 8) == 4
    assert passes_within(60, 13, 8) == 9
    assert passes_within(60, 5, 8) == 10  # more passes would add little
    assert passes_within(1, 26, 8) == passes_within(60, 5000, 8) == 1
    assert passes_within(60, 26, 10_000) == 1  # so many ranks take long to agree
    assert passes_within(60, 50, 8) == 1  # two passes would not show their spread
    # One rank has no arrivals to compare.
    assert passes_within(10, 10, 1) > passes_within(10, 10, 2)


def test_what_checks_take_is_gone_for_further_passes_and_not_for_the_first(clock):
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


def sums(collectives, sizes, world=2):
    kind = {"dtypes": ["float32"], "ops": ["sum"]}
    return cases_of(collectives=collectives, sizes=sizes, world=world, **kind)


def test_memory_is_for_the_largest_case_that_fits_and_64_mib_for_windows_at_most():
    one = sums(["all_gather"], [8, MIB, GIB])
    # 16 GiB in place and twice 8 GiB out of place share 16 GiB, not the sum of both.
    both = sums(["all_reduce", "all_gather"], [8 * GIB, 16 * GIB])
    for todo, limit, reserved in (
        (one, 4.0 * GIB, 2 * GIB),
        (one, 1.0 * GIB, 64 * MIB),
        (one, 3.0 * MIB, 3 * MIB),  # 1 MB of it is for windows
        (one, 8.0, 0),
        (both, 18.7 * GIB, 16 * GIB),
        (both, 40.0 * GIB, 32 * GIB),
    ):
        assert reserve(todo, 2, limit) == reserved, limit


def test_no_more_is_reserved_than_there_is_and_enough_for_every_case_that_fits():
    limits = (0, 100, 5000, MIB + 1, 20.5 * MIB, 100 * MIB, 3.3 * GIB)
    for world, limit in product((1, 3, 8), limits):
        todo = sums(COLLECTIVES, [1, 1000, 4096, MIB, 48 * MIB, GIB, 2 * GIB], world)
        reserved = reserve(todo, world, limit)
        assert reserved <= limit
        for case in todo:
            memory = memory_of(case, world)
            assert (memory <= reserved) == (memory <= limit), (case, world, limit)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", COLLECTIVES)
def test_each_case_sends_from_and_receives_into_memory_of_its_own(name):
    import torch

    from oddrank.bench.c10d import C10d

    world, sizes = 3, [64, 3000, 50_000, MIB]
    for limit, rank in product((5000, MIB + 1, 20 * MIB), range(world)):
        todo = sums([name], sizes, world)
        fitting = [case for case in todo if memory_of(case, world) <= limit]
        assert fitting
        device = torch.device("cpu")
        group = MagicMock(rank=rank, world=world, ranks=range(world), torch=torch, device=device)
        backend = C10d(group)
        backend.reserve(reserve(fitting, world, limit))
        first = backend._memory.data_ptr()
        for case in fitting:
            layout = COLLECTIVES[name].layout(case, rank, world)
            seen = []
            for ours, got in backend.prepare(case)._windows:
                assert (len(ours), len(got)) == (layout.send_count, layout.recv_count)
                seen += [max(ours, got, key=len)] if case.in_place else [ours, got]
            seen = [(t.data_ptr(), 4 * len(t)) for t in seen if len(t)]
            assert {(at - first) % 512 for at, _ in seen} <= {0}, case
            ends = sorted((at, at + size) for at, size in seen)
            for (_, end), (begin, _) in pairwise([(first, first), *ends, (first + limit, 0)]):
                assert end <= begin, case
