"""The native value check finds a wrong collective: the element and its values."""

import random

import pytest

torch = pytest.importorskip("torch")

from bench.collective_data import (  # noqa: E402 (after the skip)
    DTYPES,
    OPS,
    Segment,
    combine,
    divide,
    reduce_by_tree,
)

COUNT = 4000


@pytest.fixture(params=[2, 8, 64])  # powers of two: avg is exact there
def world(request):
    return request.param


@pytest.fixture(params=OPS)
def op(request):
    return request.param


@pytest.fixture(params=DTYPES)
def segment(request, op, world):
    return Segment(request.param, op, world, count=COUNT)


@pytest.fixture
def rows(segment):
    return segment.contributions()


def total_of(rows, segment: Segment):
    total = reduce_by_tree(rows, segment.op, random.Random(7))
    return divide(total, segment.world) if segment.op == "avg" else total


@pytest.fixture
def right(rows, segment):
    return total_of(rows, segment)


def number_found(damaged, right, segment: Segment) -> int:
    """Returns the number of wrong elements; asserts that the first one is reported right."""
    differ = (damaged.double() != right.double()).nonzero().flatten()
    wrong, index, expected, got = segment.check(damaged)
    assert wrong == len(differ)
    if wrong:
        assert index == int(differ[0])
        assert (expected, got) == (float(right[index].double()), float(damaged[index].double()))
    return wrong


def some_ranks(world: int) -> set[int]:
    return {0, world // 2, world - 1}


def rolled(data, places: int):
    return data.view(torch.uint8).roll(places * data.element_size()).view(data.dtype)


def with_row(rows, rank: int, row):
    changed = rows.clone()
    changed[rank] = row
    return changed


def test_one_changed_element_is_found(right, segment):
    for index in (0, 1, 1777, COUNT - 1):
        damaged = right.clone()
        damaged[index] = 3 if float(right[index].double()) != 3 else 5
        assert number_found(damaged, right, segment) == 1


def test_a_missing_rank_is_found(rows, right, segment, world):
    bits = rows.view(torch.uint8)
    for rank in some_ranks(world):
        others = torch.cat([bits[:rank], bits[rank + 1 :]]).view(rows.dtype)
        assert number_found(total_of(others, segment), right, segment) > 0


def test_a_rank_in_place_of_another_is_found(rows, right, segment, world):
    for rank in some_ranks(world):
        for other in {(rank + 1) % world, (rank + world // 2) % world}:
            damaged = total_of(with_row(rows, rank, rows[other]), segment)
            assert number_found(damaged, right, segment) > 0


@pytest.mark.parametrize("op", ["sum", "avg", "prod"], indirect=True)  # min and max hide it
def test_a_doubled_rank_is_found(rows, segment, op, world):
    total = reduce_by_tree(rows, op, random.Random(7))
    for rank in some_ranks(world):
        damaged = combine(op, total, rows[rank])
        assert segment.check(divide(damaged, world) if op == "avg" else damaged)[0] > 0


def test_a_shifted_contribution_is_found(rows, right, segment):
    for places in (1, 2, 8, 64, 1024):
        damaged = total_of(with_row(rows, 1, rolled(rows[1], places)), segment)
        assert number_found(damaged, right, segment) > 0, places


def test_a_shifted_or_swapped_result_is_found(right, segment):
    if (segment.dtype, segment.op, segment.world) == ("int8", "avg", 64):
        assert (right == 1).all()  # the only average whose sum fits int8
        return
    for places in (1, 2, 8, 64, 1024):
        assert number_found(rolled(right, places), right, segment) > COUNT // 10
    for size in (16, 64, 1024):
        bits = right.view(torch.uint8)
        bytes_ = size * right.element_size()
        swapped = torch.cat([bits[bytes_ : 2 * bytes_], bits[:bytes_], bits[2 * bytes_ :]])
        assert number_found(swapped.view(right.dtype), right, segment) > 0
