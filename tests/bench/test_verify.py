"""The native value check of collectives: right by torch's reductions, and every fault is found."""

import math
import random
from dataclasses import replace
from itertools import product

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402 (after the skip)
from hypothesis import strategies as st  # noqa: E402

from bench.collective_data import (  # noqa: E402
    DTYPES,
    RIGHT,
    Segment,
    combine,
    divide,
    prescale,
    reduce_by_tree,
    reduce_in_a_row,
)
from bench.told import refusal  # noqa: E402
from oddrank import _native  # noqa: E402
from oddrank.bench.case import OPS  # noqa: E402
from oddrank.machine.device import free_host_memory  # noqa: E402

WORLDS = [1, 2, 3, 7, 8, 64, 1000]
COUNT = 2100


def results_of(segment: Segment, dice: random.Random):
    """Returns results that correct implementations may give."""
    op, world, rows = segment.op, segment.world, segment.contributions()
    reduced = [reduce_by_tree(rows, op, dice), reduce_in_a_row(rows, op, dice)]
    if op != "avg":
        return reduced
    divided = [divide(total, world) for total in reduced]
    if not rows.dtype.is_floating_point:
        return divided
    scaled = prescale(rows, world)
    return [*divided, reduce_by_tree(scaled, op, dice), reduce_in_a_row(scaled, op, dice)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_reduction_in_any_order_is_right(dtype):
    large = [(op, 16384) for op in ("sum", "avg")]  # most depends on the order there
    for op, world in [*product(OPS, WORLDS), *large]:
        dice = random.Random(f"{dtype} {op} {world}")
        first, turn = dice.randrange(1 << 40), dice.randrange(100)
        segment = Segment(dtype, op, world, first, 200 if world <= 64 else 40, turn)
        for result in results_of(segment, dice):
            assert segment.check(result) == RIGHT, f"{op}, world {world}"


segments = st.builds(
    Segment,
    dtype=st.sampled_from(list(DTYPES)),
    op=st.sampled_from(OPS),
    world=st.integers(1, 70),
    first=st.integers(0, 1 << 50),
    count=st.integers(1, 150),
    turn=st.integers(0, 1 << 60),
)


@given(segment=segments, dice=st.randoms(use_true_random=False))
@settings(max_examples=200)
def test_whatever_the_segment_a_right_result_is_right(segment, dice):
    for result in results_of(segment, dice):
        assert segment.check(result) == RIGHT


def test_bits_mean_what_torch_takes_them_for():
    """The check reports the same value for any bits as torch."""
    dice = random.Random(1)
    for dtype, kind in DTYPES.items():
        size = kind.itemsize
        values = range(256) if size == 1 else [dice.getrandbits(8 * size) for _ in range(2000)]
        bits = b"".join(value.to_bytes(size, "little") for value in values)
        data = torch.frombuffer(bytearray(bits), dtype=kind)
        segment = Segment(dtype, "none", world=1, count=1)
        right = float(segment.filled().double())
        for i, read in enumerate(data.double().tolist()):
            wrong, _, expected, got = segment.check(data[i : i + 1])
            if wrong:
                assert got == read or (math.isnan(got) and math.isnan(read)), dtype
                assert expected == right
            else:
                assert read == right, dtype


def test_moved_values_encode_their_source_their_place_and_their_turn():
    most = 180  # of 200 elements
    for dtype in DTYPES:
        segment = Segment(dtype, "none", world=1000, first=77, source=3, turn=1)
        for source in (0, 1, 2, 62, 511, 999):
            data = segment.of(source).filled()
            assert segment.of(source).check(data) == RIGHT
            for other in {source + 1, source - 1, source ^ 1, (source + 500) % 1000} - {-1, 1000}:
                assert segment.of(other).check(data)[0] > most, (dtype, source, other)
        for distance in (1, 2, 16, 61, 64, 4093, 4096, 1 << 20, 1 << 31, 1 << 32):
            data = replace(segment, first=77 + distance).filled()
            assert segment.check(data)[0] > most, (dtype, distance)
        assert replace(segment, turn=2).check(segment.filled())[0] > most, dtype
        # A run of elements is the same wherever it is cut.
        for first, cut in product((0, 4090, (1 << 33) - 5), (1, 4092, 4093, 4094, 9000)):
            whole = replace(segment, first=first, count=12_279)
            rest = replace(whole, first=first + cut, count=whole.count - cut)
            bits = [one.filled().view(torch.uint8) for one in (whole, rest)]
            assert torch.equal(bits[0][-len(bits[1]) :], bits[1]), (dtype, first, cut)


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
    for op, world in product(OPS, (2, 64)):  # powers of two: avg is exact there
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


def test_more_than_2_to_the_31_elements():
    count = (1 << 31) + 5
    if free_host_memory() < 2 * count:
        pytest.skip("needs 4 GiB of free memory")
    segment = Segment("int8", "none", world=2, count=count, source=1)
    data = segment.filled()
    assert segment.check(data) == RIGHT
    data[-1] += 1
    wrong, index, expected, got = segment.check(data)
    assert (wrong, index, got - expected) == (1, count - 1, 1)


def test_what_can_not_be_is_one_line(golden):
    data, said = torch.empty(8), []
    good = {"dtype": "float32", "op": "sum", "source": 0, "world": 8, "first": 0, "count": 8}
    for change in (
        {"dtype": "float33"}, {"op": "xor"}, {"world": 0}, {"source": 8}, {"count": -1},
        {"first": -1}, {"turn": -1}, {"address": 0},
    ):  # fmt: skip
        arguments = {"address": data.data_ptr(), **good, "turn": 0, **change}
        said.append(refusal(_native.core().bench_fill, *arguments.values()))
        assert refusal(_native.core().bench_check, *arguments.values()) == said[-1]
    golden("\n".join(said))
