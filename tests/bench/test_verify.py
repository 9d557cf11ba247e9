"""The native value check of collectives against reductions by torch in the same dtype."""

import math
import random
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402 (after the skip)
from hypothesis import strategies as st  # noqa: E402

from bench.collective_data import (  # noqa: E402
    DTYPES,
    OPS,
    RIGHT,
    Segment,
    divide,
    prescale,
    reduce_by_tree,
    reduce_in_a_row,
)
from oddrank import OddrankError, _native  # noqa: E402
from oddrank.machine.device import free_host_memory  # noqa: E402

WORLDS = [1, 2, 3, 7, 8, 64, 1000, 16384]


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


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_reduction_in_any_order_is_right(dtype, op):
    dice = random.Random(f"{dtype} {op}")
    for world in WORLDS:
        first, turn = dice.randrange(1 << 40), dice.randrange(100)
        segment = Segment(dtype, op, world, first, 200 if world <= 64 else 40, turn)
        for result in results_of(segment, dice):
            assert segment.check(result) == RIGHT, f"world {world}"


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


@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_mean_what_torch_takes_them_for(dtype):
    """The check reports the same value for any bits as torch."""
    size = DTYPES[dtype].itemsize
    kind = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
    segment = Segment(dtype, "none", world=1, count=1)
    right = float(segment.filled().double())
    dice = random.Random(1)
    values = range(256) if size == 1 else [dice.getrandbits(8 * size) for _ in range(2000)]
    for value in values:
        signed = value - (1 << (8 * size)) if value >> (8 * size - 1) else value
        data = torch.tensor([signed], dtype=kind).view(DTYPES[dtype])
        wrong, _, expected, got = segment.check(data)
        read = float(data.double())
        if wrong:
            assert got == read or (math.isnan(got) and math.isnan(read))
            assert expected == right
        else:
            assert read == right


def test_every_rank_contributes_over_the_turns():
    for dtype, world, count in (("float8_e5m2", 300, 3), ("float8_e4m3fn", 300, 1)):
        needed = _native.core().bench_turns(dtype, "sum", world, count, 1000)
        seen = torch.zeros(world, dtype=torch.bool)
        segment = Segment(dtype, "sum", world, count=count)
        for turn in range(needed):
            seen |= (replace(segment, turn=turn).contributions().float() != 0).any(dim=1)
        assert needed > 1
        assert seen.all()
        assert _native.core().bench_turns(dtype, "sum", world, count, 2) == 2
    assert _native.core().bench_turns("float32", "sum", 8, 1 << 40, 1000) == 1


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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"dtype": "float33"}, "unknown dtype 'float33'; known: float32,"),
        ({"op": "xor"}, "op 'xor' is none of sum,"),
        ({"world": 0}, "world is 0, not between 1 and"),
        ({"source": 8}, "source is 8, not between 0 and 7"),
        ({"count": -1}, "count is -1"),
        ({"first": -1}, "first is -1"),
        ({"turn": -1}, "turn is -1"),
        ({"address": 0}, "no buffer at address 0"),
    ],
)
def test_what_can_not_be_is_one_line(change, said):
    data = torch.empty(8)
    good = {"dtype": "float32", "op": "sum", "source": 0, "world": 8, "first": 0, "count": 8}
    arguments = {"address": data.data_ptr(), **good, "turn": 0, **change}
    for function in (_native.core().bench_fill, _native.core().bench_check):
        with pytest.raises(OddrankError, match=said):
            function(**arguments)
