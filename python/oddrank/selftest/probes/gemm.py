"""Measures a GPU's matrix products in each number format: torch's own, timed on the GPU.

`reasons` says why a format could not be measured here.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from oddrank.errors import OddrankError

_LARGE, _SMALL = 8192, 4096
# A repeat takes about so long: a GPU's clocks follow its power within milliseconds.
_SECONDS = 0.02
_MOST_CALLS = 200
_PATIENCE = 30.0

reasons: dict[str, str] = {}


def rates(index: int, repeats: Mapping[str, int]) -> dict[str, list[float]]:
    """Returns the TFLOP/s of each repeat, for wanted formats that this GPU and torch have."""
    import torch

    found = {}
    device = torch.device("cuda", index)
    for name, (rows, prepare) in _FORMATS.items():
        if name not in repeats:
            continue
        try:
            with torch.cuda.device(device):
                found[name] = _rates(torch, device, rows, prepare, repeats[name])
        except (RuntimeError, AttributeError, TypeError, ValueError) as error:
            if isinstance(error, OddrankError):
                raise
            reasons[name] = str(error).partition("\n")[0][:100]
    torch.cuda.empty_cache()
    return found


def _rates(torch: Any, device: Any, rows: int, prepare: Any, repeats: int) -> list[float]:
    precision = torch.get_float32_matmul_precision()
    try:
        multiply = prepare(torch, device, rows)
        _timed(torch, multiply, 1)  # warm-up: cuBLAS's setup, clocks
        once = _timed(torch, multiply, 3) / 3
        calls = max(1, min(_MOST_CALLS, round(_SECONDS / once)))
        operations = 2.0 * rows**3 * calls
        return [operations / _timed(torch, multiply, calls) / 1e12 for _ in range(repeats)]
    finally:
        torch.set_float32_matmul_precision(precision)


def _timed(torch: Any, multiply: Callable[[], Any], calls: int) -> float:
    """Returns the GPU's seconds for so many products. Polls: synchronize() has no deadline."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        multiply()
    end.record()
    until = time.monotonic() + _PATIENCE
    while not end.query():
        if time.monotonic() > until:
            raise OddrankError(f"a product of matrices on the GPU did not end in {_PATIENCE:g} s")
        time.sleep(5e-5)
    return float(begin.elapsed_time(end)) * 1e-3


def _plain(name: str, precision: str = "") -> Callable[..., Callable[[], Any]]:
    """Uses random numbers: a GPU's power, and so its clock, depends on the data."""

    def prepare(torch: Any, device: Any, rows: int) -> Callable[[], Any]:
        if precision:
            torch.set_float32_matmul_precision(precision)
        dtype = getattr(torch, name)
        a, b = (torch.randn(rows, rows, device=device).to(dtype) for _ in range(2))
        out = torch.empty(rows, rows, device=device, dtype=dtype)
        return lambda: torch.mm(a, b, out=out)

    return prepare


def _fp8(torch: Any, device: Any, rows: int) -> Callable[[], Any]:
    dtype = torch.float8_e4m3fn
    a, b = (torch.randn(rows, rows, device=device).to(dtype) for _ in range(2))
    one = torch.ones((), device=device)

    def multiply() -> Any:
        return torch._scaled_mm(
            a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
        )

    return multiply


# Metric -> (rows of the square matrices, a function that prepares their product).
_FORMATS: dict[str, tuple[int, Callable[..., Callable[[], Any]]]] = {
    "gemm_bf16": (_LARGE, _plain("bfloat16")),
    "gemm_fp16": (_LARGE, _plain("float16")),
    "gemm_tf32": (_LARGE, _plain("float32", "high")),
    "gemm_fp32": (_SMALL, _plain("float32", "highest")),
    "gemm_fp8": (_LARGE, _fp8),
}
