"""Every value of moved data encodes its source and its index."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from bench.collective_data import DTYPES, RIGHT, Segment  # noqa: E402 (after the skip)
from oddrank import _native  # noqa: E402

pytestmark = pytest.mark.parametrize("dtype", DTYPES)
MOST = 180  # of 200 elements


def test_moved_data_is_right_for_its_source_and_wrong_for_others(dtype):
    segment = Segment(dtype, "none", world=1000, first=77)
    for source in (0, 1, 2, 62, 511, 999):
        data = segment.of(source).filled()
        assert segment.of(source).check(data) == RIGHT
        for other in (source + 1, source - 1, source ^ 1, (source + 500) % 1000):
            if 0 <= other < 1000:
                assert segment.of(other).check(data)[0] > MOST


def test_moved_blocks_at_another_place_are_wrong(dtype):
    segment = Segment(dtype, "none", world=8, source=3)
    for distance in (1, 2, 16, 61, 64, 4093, 4096, 1 << 20, 1 << 31, 1 << 32):
        data = replace(segment, first=distance).filled()
        assert segment.check(data)[0] > MOST, distance


def test_another_turn_moves_other_data(dtype):
    segment = Segment(dtype, "none", world=8, source=3, turn=1)
    assert replace(segment, turn=2).check(segment.filled())[0] > MOST


def test_a_segment_may_begin_at_any_byte(dtype):
    segment = Segment(dtype, "none", world=4, first=9, source=1)
    wanted = segment.filled().view(torch.uint8)
    room = torch.zeros(len(wanted) + 16, dtype=torch.uint8)
    core = _native.core()
    for shift in range(9):
        core.bench_fill(room.data_ptr() + shift, *segment.arguments)
        assert torch.equal(room[shift : shift + len(wanted)], wanted)
        assert core.bench_check(room.data_ptr() + shift, *segment.arguments) == RIGHT
