"""Cases refused over torch's NCCL, because NCCL lacks them or computes them wrongly."""

from types import SimpleNamespace
from typing import Any

import pytest

from oddrank.bench.c10d import C10d
from oddrank.bench.case import DTYPES, NO_OP, OPS, Case
from oddrank.bench.collectives import COLLECTIVES

pytestmark = pytest.mark.needs("cuda-build")


def refuses(
    case: Case, *, world: int = 1, nccl: tuple[Any, ...] = (2, 28, 9), capability: int = 9
) -> str | None:
    """Returns the reason to refuse a case on made-up GPUs, or None."""
    cuda = SimpleNamespace(
        nccl=SimpleNamespace(version=lambda: nccl),
        get_device_capability=lambda device: (capability, 0),
    )
    torch = SimpleNamespace(cuda=cuda, uint8=None, empty=lambda *_, **__: None)
    device = SimpleNamespace(type="cuda", index=0)
    group: Any = SimpleNamespace(torch=torch, device=device, backend="nccl", world=world)
    return C10d(group).refuses(case)


def reduced(dtype: str, op: str = "sum", in_place: bool = True) -> Case:
    return Case("reduce_scatter", dtype, 4096, op, in_place)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_fp8_that_nccl_cannot_reduce_is_refused_and_never_raised(dtype: str):
    assert refuses(reduced(dtype, "avg")) == f"NCCL has no avg of {dtype} on one rank"
    old = refuses(reduced(dtype), world=8, capability=8)
    assert old == f"NCCL reduces {dtype} on GPUs of compute capability 9.0 and newer only"
    for world in (1, 8):
        assert refuses(reduced(dtype), world=world) is None
        assert refuses(Case("all_gather", dtype, 64, NO_OP), world=world, capability=8) is None


@pytest.mark.parametrize("nccl", [(2, 28, 9), (2, 29, 3, "rc1")])
def test_an_avg_on_one_rank_of_which_elements_are_left_out_is_refused(nccl: tuple[Any, ...]):
    said = refuses(reduced("float32", "avg", in_place=False), nccl=nccl)
    assert said is not None
    assert "leaves out elements of an avg of float32 on one rank" in said
    assert refuses(reduced("float32", "avg", in_place=False), nccl=(2, 29, 7)) is None
    assert refuses(reduced("float32", "avg", in_place=False), nccl=nccl, world=2) is None


def test_all_else_is_asked_for():
    for row in COLLECTIVES.values():
        for dtype in DTYPES:
            for op in OPS:
                case = row.case(dtype, 4096, op, row.in_place, 8)
                known = case.dtype not in ("uint32", "uint64")
                said = None if known else f"torch.distributed over nccl has no {dtype}"
                assert refuses(case, world=8) == said, str(case)
