"""The native value check finds a wrong collective: the element and its values."""

import random
from itertools import product

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

COUNT = 2100


def divided(total, segment: Segment):
    return divide(total, segment.world) if segment.op == "avg" else total


def rolled(data, places: int):
    return data.view(torch.uint8).roll(places * data.element_size()).view(data.dtype)


def hurt_elements(right):
    for index in (0, 1, 1777, COUNT - 1):
        damaged = right.clone()
        damaged[index] = 3 if float(right[index].double()) != 3 else 5
        yield f"element {index} is another", damaged, 1


def hurt_contributions(rows, segment: Segment):
    op, world, bits = segment.op, segment.world, rows.view(torch.uint8)
    for rank in {0, 1, world // 2, world - 1}:
        others = torch.cat([bits[:rank], bits[rank + 1 :]]).view(rows.dtype)
        missing = reduce_by_tree(others, op, random.Random(7))
        yield f"rank {rank} is missing", missing, 1
        for other in {(rank + 1) % world, (rank + world // 2) % world}:
            yield f"rank {other} in place of {rank}", combine(op, missing, rows[other]), 1
        for places in (1, 2, 8, 64, 1024):
            shifted = combine(op, missing, rolled(rows[rank], places))
            yield f"rank {rank} shifted by {places}", shifted, 1
        if op in ("sum", "avg", "prod"):  # min and max hide it
            twice = combine(op, combine(op, missing, rows[rank]), rows[rank])
            yield f"rank {rank} twice", twice, 1


def moved_results(right, segment: Segment):
    if (segment.dtype, segment.op, segment.world) == ("int8", "avg", 64):
        assert (right == 1).all()  # the only average whose sum fits int8
        return
    for places in (1, 2, 8, 64, 1024):
        yield f"a result shifted by {places}", rolled(right, places), COUNT // 10
    for size in (16, 64, 1024):
        bits, half = right.view(torch.uint8), size * right.element_size()
        swapped = torch.cat([bits[half : 2 * half], bits[:half], bits[2 * half :]])
        yield f"blocks of {size} swapped", swapped.view(right.dtype), 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_fault_of_a_reduction_is_found_at_its_first_element(dtype):
    for op, world in product(OPS, (2, 8, 64)):  # powers of two: avg is exact there
        segment = Segment(dtype, op, world, count=COUNT)
        rows = segment.contributions()
        right = divided(reduce_by_tree(rows, op, random.Random(7)), segment)
        reduced = hurt_contributions(rows, segment)
        made = [(name, divided(damaged, segment), least) for name, damaged, least in reduced]
        for name, damaged, least in [*hurt_elements(right), *made, *moved_results(right, segment)]:
            where = f"{op}, {world} ranks: {name}"
            differ = (damaged.double() != right.double()).nonzero().flatten()
            wrong, index, expected, got = segment.check(damaged)
            assert wrong == len(differ) >= least, where
            assert index == int(differ[0]), where
            assert expected == float(right[index].double()), where
            assert got == float(damaged[index].double()), where
