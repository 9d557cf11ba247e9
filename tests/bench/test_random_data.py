"""Values to time on: random, never zero, and finite for as many runs as they are said to stand."""

import math

import pytest

torch = pytest.importorskip("torch")

from bench.collective_data import DTYPES  # noqa: E402 (after the skip)
from oddrank import _native  # noqa: E402
from oddrank.bench.case import OPS, Case  # noqa: E402
from oddrank.bench.random_data import runs_of  # noqa: E402

FLOATS = [name for name, dtype in DTYPES.items() if dtype.is_floating_point]
COUNT = 5003


def noise(dtype: str, op: str = "sum", *, low: bool = True):
    data = torch.zeros(COUNT, dtype=DTYPES[dtype])
    _native.core().bench_noise(data.data_ptr(), data.nbytes, dtype, op, low=low)
    return data.double() if data.is_floating_point() else data


@pytest.mark.parametrize("low", [True, False])
@pytest.mark.parametrize("dtype", FLOATS)
def test_no_value_is_zero_or_subnormal_and_many_differ(dtype: str, low: bool):
    values = noise(dtype, low=low)
    assert torch.isfinite(values).all()
    assert values.abs().min() >= torch.finfo(DTYPES[dtype]).smallest_normal
    assert 0.4 < (values > 0).double().mean() < 0.6
    mantissas = 1 / torch.finfo(DTYPES[dtype]).eps
    assert len(values.unique()) > 0.9 * min(COUNT / 2, 2 * mantissas)


@pytest.mark.parametrize("world", [2, 3, 8, 512])
@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_in_place_stay_finite_for_as_many_runs_as_they_stand(dtype: str, world: int):
    runs = runs_of(Case("all_reduce", dtype, 64), world)
    assert runs >= 2
    if (dtype, world) == ("float8_e4m3fn", 512):
        return  # two runs are too many for it: it saturates in a block
    largest = math.log2(noise(dtype).abs().max().item()) + runs * math.log2(world)
    assert largest <= math.log2(torch.finfo(DTYPES[dtype]).max)


def test_what_does_not_grow_stands_all_runs():
    assert runs_of(Case("all_reduce", "float32", 64, in_place=False), 8) > 1 << 40
    assert runs_of(Case("all_reduce", "float32", 64, "max"), 8) > 1 << 40
    assert runs_of(Case("all_reduce", "float32", 64), 1) > 1 << 40
    assert runs_of(Case("all_gather", "float32", 64, "none"), 8) > 1 << 40


def test_another_reduction_in_place_adds_the_same_again_each_time():
    assert runs_of(Case("reduce", "float8_e4m3fn", 64), 8) == 2**10 // 8


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_product_stays_what_it_is(dtype: str):
    assert set(noise(dtype, "prod").tolist()) == {1.0, -1.0}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", sorted(set(DTYPES) - set(FLOATS)))
def test_integers_are_random(dtype: str, op: str):
    values = noise(dtype, op)
    assert len(values.unique()) > (100 if dtype in ("int8", "uint8") else 0.99 * COUNT)
    if op == "prod":
        assert (values & 1).all(), "a product of odd numbers is never 0"


def test_it_writes_no_byte_beyond_its_end():
    data = torch.zeros(64, dtype=torch.uint8)
    _native.core().bench_noise(data.data_ptr(), 13, "int8", "sum", low=False)
    assert data[:13].count_nonzero() > 8
    assert not data[13:].any()


def test_doublings_are_those_of_the_dtype():
    for dtype in FLOATS:
        limits = torch.finfo(DTYPES[dtype])
        room = math.log2(limits.max) - math.log2(noise(dtype).abs().max().item())
        runs = runs_of(Case("all_reduce", dtype, 64), 2)
        assert room / 2 <= runs <= room, (dtype, room)
