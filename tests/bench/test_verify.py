"""The native value check of collectives against reductions by torch in the same dtype."""

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

WORLDS = [1, 2, 3, 7, 8, 64, 1000]


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


def test_what_can_not_be_is_one_line(golden):
    data, said = torch.empty(8), []
    good = {"dtype": "float32", "op": "sum", "source": 0, "world": 8, "first": 0, "count": 8}
    for change in (
        {"dtype": "float33"}, {"op": "xor"}, {"world": 0}, {"source": 8}, {"count": -1},
        {"first": -1}, {"turn": -1}, {"address": 0},
    ):  # fmt: skip
        arguments = {"address": data.data_ptr(), **good, "turn": 0, **change}
        refused = []
        for function in (_native.core().bench_fill, _native.core().bench_check):
            with pytest.raises(OddrankError) as error:
                function(**arguments)
            refused.append(str(error.value))
        assert refused[0] == refused[1]
        said.append(refused[0])
    golden("\n".join(said))
