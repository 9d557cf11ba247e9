"""The native value check in a GPU's memory sees the same bits as in the host's."""

from itertools import product

import pytest

torch = pytest.importorskip("torch")

from bench.collective_data import DTYPES, RIGHT, Segment, as_integers  # noqa: E402 (after the skip)
from oddrank import OddrankError, _native  # noqa: E402
from oddrank.bench.case import OPS  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.needs("cuda-build"), pytest.mark.timeout(120)]


def gpu_filled(segment: Segment):
    data = segment.empty("cuda:0")
    torch.cuda.synchronize()
    _native.cuda().gpu_fill(0, *segment.at(data.data_ptr()))
    return data


def gpu_check(segment: Segment, data):
    torch.cuda.synchronize()
    (told,) = _native.cuda().gpu_check(0, *segment.at(data.data_ptr()))
    return told


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gpu_writes_the_hosts_bits_and_finds_what_the_host_finds(dtype):
    """With one rank the result equals the input."""
    for op, first in product([*OPS, "none"], (0, 4092, (1 << 31) - 7, (1 << 40) + 3)):
        for count in (1, 2, 4093, 5000, 1_000_003):
            segment = Segment(dtype, op, 5, first, count, turn=3, source=2)
            gpu = gpu_filled(segment).view(torch.uint8)
            assert torch.equal(gpu.cpu(), segment.filled().view(torch.uint8))
        segment = Segment(dtype, op, 1, first, 1_000_003)
        data = gpu_filled(segment)
        assert gpu_check(segment, data) == RIGHT
        host = data.cpu()
        before = float(host[777_777].double())
        for index in (999_999, 777_777):  # reports the first index, not the first one found
            host[index] = 3 if float(host[index].double()) != 3 else 5
        told = gpu_check(segment, host.cuda())
        assert told == (2, 777_777, before, float(host[777_777].double()))
        assert told == segment.check(host)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if DTYPES[d].is_floating_point])
def test_the_gpu_allows_an_average_what_the_host_allows(dtype):
    for world in (3, 100, 1000):
        segment = Segment(dtype, "avg", world, count=5000)
        right = segment.contributions().double().mean(dim=0).to(DTYPES[dtype])
        bits = as_integers(right)
        for off in range(-4, 5):
            moved = torch.where(right.double() > 0, (bits + off).clamp(min=0), bits)
            host = moved.view(DTYPES[dtype])
            assert gpu_check(segment, host.cuda()) == segment.check(host)


@pytest.mark.parametrize("dtype", DTYPES)
def test_many_segments_are_told_apart_though_one_launch_checks_them_all(dtype):
    """600 segments, of no element up to three blocks of the pattern: more than one launch holds."""
    counts = [(31 * i * i) % 13_000 if i % 7 else 0 for i in range(600)]
    begins = [sum(counts[:i]) for i in range(600)]
    room = torch.zeros(sum(counts), dtype=DTYPES[dtype], device="cuda:0")
    torch.cuda.synchronize()
    size = DTYPES[dtype].itemsize
    places = [
        (room.data_ptr() + begin * size, i, 5 * i, count)
        for i, (begin, count) in enumerate(zip(begins, counts, strict=True))
    ]
    every = (dtype, "none", 600, 3, places)
    _native.cuda().gpu_fill(0, *every)
    for i in (1, 2, 299, 598):
        segment = Segment(dtype, "none", 600, 5 * i, counts[i], turn=3, source=i)
        assert segment.check(room[begins[i] : begins[i] + counts[i]].cpu()) == RIGHT
    assert _native.cuda().gpu_check(0, *every) == [RIGHT] * 600
    spoilt = room.view(torch.uint8)
    spoilt[(begins[299] + 17) * size] ^= 1
    torch.cuda.synchronize()
    told = _native.cuda().gpu_check(0, *every)
    assert [(i, one[:2]) for i, one in enumerate(told) if one != RIGHT] == [(299, (1, 17))]


def test_a_check_takes_no_memory_beyond_the_first_one():
    segment = Segment("float32", "sum", 4, count=1 << 20)
    data = gpu_filled(segment)
    gpu_check(segment, data)
    before = torch.cuda.mem_get_info()[0]
    for _ in range(20):
        gpu_check(segment, data)
    assert torch.cuda.mem_get_info()[0] == before


def test_more_than_2_to_the_31_elements():
    count = (1 << 31) + 5
    if torch.cuda.mem_get_info()[0] < 2 * count:
        pytest.skip("needs 4 GiB of free GPU memory")
    segment = Segment("int8", "none", 2, count=count, source=1)
    data = gpu_filled(segment)
    assert gpu_check(segment, data) == RIGHT
    data[-1] += 1
    assert gpu_check(segment, data)[:2] == (1, count - 1)


def test_addresses_that_would_break_the_context_are_refused():
    host, data = torch.empty(100), torch.empty(100, device="cuda:0")
    for address, count, why in (
        (host.data_ptr(), 100, "not in the memory of GPU 0"),
        (data.data_ptr() + 1, 10, "no multiple of 4 bytes"),
        (0, 100, "not in the memory of GPU 0"),
    ):
        with pytest.raises(OddrankError, match=why):
            _native.cuda().gpu_fill(0, "float32", "sum", 1, 0, [(address, 0, 0, count)])
    segment = Segment("float32", "sum", 1)
    assert gpu_check(segment, gpu_filled(segment)) == RIGHT


def test_a_deadline_that_has_passed_ends_the_fill():
    data = torch.empty(4 << 30, dtype=torch.int8, device="cuda:0")
    torch.cuda.synchronize()
    arguments = (0, "int8", "none", 1, 0, [(data.data_ptr(), 0, 0, data.numel())])
    with pytest.raises(OddrankError, match="did not finish before the deadline"):
        _native.cuda().gpu_fill(*arguments, seconds=0.0)
    _native.cuda().gpu_fill(*arguments)
