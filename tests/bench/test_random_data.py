"""Values to time on: random, never zero, and finite for as many runs as they are said to stand."""

import math
from itertools import product

import pytest

torch = pytest.importorskip("torch")

from bench.collective_data import DTYPES  # noqa: E402 (after the skip)
from oddrank import _native  # noqa: E402
from oddrank.bench.backend import runs_of  # noqa: E402
from oddrank.bench.case import OPS, Case  # noqa: E402

FLOATS = [name for name, dtype in DTYPES.items() if dtype.is_floating_point]
COUNT = 5003


def noise(dtype: str, op: str = "sum", *, low: bool = True):
    data = torch.zeros(COUNT, dtype=DTYPES[dtype])
    _native.core().bench_noise(data.data_ptr(), data.nbytes, dtype, op, low=low)
    return data.double() if data.is_floating_point() else data


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_are_normal_differ_and_stay_finite_for_as_many_runs_as_they_stand(dtype: str):
    limits = torch.finfo(DTYPES[dtype])
    for low in (True, False):
        values = noise(dtype, low=low)
        assert torch.isfinite(values).all()
        assert values.abs().min() >= limits.smallest_normal
        assert 0.4 < (values > 0).double().mean() < 0.6
        assert len(values.unique()) > 0.9 * min(COUNT / 2, 2 / limits.eps)
    room = math.log2(limits.max) - math.log2(noise(dtype).abs().max().item())
    for world in (2, 3, 8, 512):
        runs = runs_of(Case("all_reduce", dtype, 64), world)
        few = (dtype, world) == ("float8_e4m3fn", 512)  # two runs are too many for it: it saturates
        assert runs == 2 if few else 2 <= runs <= room / math.log2(world)
    assert runs_of(Case("all_reduce", dtype, 64), 2) >= room / 2
    assert set(noise(dtype, "prod").tolist()) == {1.0, -1.0}


def test_what_does_not_grow_stands_all_runs_and_what_adds_the_same_again_few():
    for case, world in (
        (Case("all_reduce", "float32", 64, in_place=False), 8),
        (Case("all_reduce", "float32", 64, "max"), 8),
        (Case("all_reduce", "float32", 64), 1),
        (Case("all_gather", "float32", 64, "none"), 8),
    ):
        assert runs_of(case, world) > 1 << 40, case
    assert runs_of(Case("reduce", "float8_e4m3fn", 64), 8) == 2**10 // 8


def test_integers_are_random_and_odd_where_they_are_multiplied():
    for dtype, op in product(sorted(set(DTYPES) - set(FLOATS)), OPS):
        values = noise(dtype, op)
        assert len(values.unique()) > (100 if dtype in ("int8", "uint8") else 0.99 * COUNT)
        if op == "prod":
            assert (values & 1).all(), "a product of odd numbers is never 0"


def test_it_writes_no_byte_beyond_its_end():
    data = torch.zeros(64, dtype=torch.uint8)
    _native.core().bench_noise(data.data_ptr(), 13, "int8", "sum", low=False)
    assert data[:13].count_nonzero() > 8
    assert not data[13:].any()
