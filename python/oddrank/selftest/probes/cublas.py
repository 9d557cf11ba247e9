"""Hashes a GPU's matrix products by cuBLAS: GPUs of one kind must give the same bits.

cuBLAS promises that: same version, architecture and number of multiprocessors, one stream (cuBLAS
documentation, "Results Reproducibility"). The right bits are not known beforehand.
"""

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from oddrank.errors import OddrankError
from oddrank.machine import placement
from oddrank.selftest.probes import prints

if TYPE_CHECKING:
    from oddrank.launch import Launch

_ROWS = 4096  # more tiles than any GPU has multiprocessors
_PATIENCE = 30.0
_LIBRARIES = ("libcublas.so.13", "libcublas.so.12")
# An odd number: each bit of an index changes many bits of its product.
_MIX = 0x2545F4914F6CDD1D


def fingerprint(launch: "Launch", seconds: float) -> prints.Prints | None:
    """Computes products again and again for so many seconds. None if no format can be had here."""
    import torch

    gpu = placement.of_rank(launch)
    device = torch.device("cuda", gpu.index)
    with torch.cuda.device(device):
        seen = [("the GPU", repeat, hashes) for repeat, hashes in _seen(torch, device, seconds)]
        count = torch.cuda.get_device_properties(device).multi_processor_count
    torch.cuda.empty_cache()
    kind = f"{gpu.name}, {count} multiprocessors, {_libraries(torch)}"
    return prints.summary(kind, {}, seen) if seen else None


def _seen(torch: Any, device: Any, seconds: float) -> Iterator[tuple[int, dict[str, int]]]:
    products = {}
    for name, prepare in _FORMATS.items():
        # A format that torch, cuBLAS or the GPU lacks.
        with suppress(RuntimeError, AttributeError, TypeError, ValueError):
            multiply = prepare(torch, device)
            multiply()
            products[name] = multiply
    end, repeat = time.monotonic() + seconds, 0
    while products and (repeat == 0 or time.monotonic() < end):
        yield repeat, {name: hash_of(torch, multiply()) for name, multiply in products.items()}
        repeat += 1


def hash_of(torch: Any, matrix: Any) -> int:
    """Returns 64 bits that change if any one element does: each counts by an odd number of its own.

    Whole numbers, so that the order of the sum does not matter.
    """
    bits = matrix.contiguous().view(torch.int32).flatten().to(torch.int64)
    odd = torch.arange(bits.numel(), device=bits.device, dtype=torch.int64).mul_(2).add_(1)
    total = odd.mul_(bits).sum()
    if total.device.type == "cuda":
        done = torch.cuda.Event()
        done.record()
        wait_for(done)  # item() has no deadline
    return int(total.item()) & 0xFFFFFFFFFFFFFFFF


def wait_for(event: Any) -> None:
    """Waits until the GPU has come to an event. Polls: synchronize() has no deadline."""
    until = time.monotonic() + _PATIENCE
    while not event.query():
        if time.monotonic() > until:
            raise OddrankError(f"a product of matrices on the GPU did not end in {_PATIENCE:g} s")
        time.sleep(5e-5)


def numbers(torch: Any, device: Any, rows: int, seed: int) -> Any:
    """Returns a square matrix of numbers in [-1, 1), the same bits everywhere.

    Not torch's generator: only whole numbers and exact conversions are the same in every version.
    """
    index = torch.arange(rows * rows, device=device, dtype=torch.int64)
    mixed = (index + seed * rows * rows).mul_(_MIX)
    mixed.bitwise_xor_(mixed >> 29).mul_(_MIX)
    return (mixed >> 40).to(torch.float32).div_(1 << 23).reshape(rows, rows)


def _bf16(torch: Any, device: Any) -> Callable[[], Any]:
    """Prepares a product with float32 sums, which keep the bits that bfloat16 rounds off."""
    a, b = (numbers(torch, device, _ROWS, seed).to(torch.bfloat16) for seed in range(2))
    return lambda: torch.mm(a, b, out_dtype=torch.float32)


def _fp8(torch: Any, device: Any) -> Callable[[], Any]:
    a, b = (numbers(torch, device, _ROWS, seed).to(torch.float8_e4m3fn) for seed in range(2))
    one = torch.ones((), device=device)
    return lambda: torch._scaled_mm(
        a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=False
    )


# Unit of the fingerprint -> a function that prepares its product.
_FORMATS: dict[str, Callable[[Any, Any], Callable[[], Any]]] = {
    "cublas_bf16": _bf16,
    "cublas_fp8": _fp8,
}


def _libraries(torch: Any) -> str:
    """Returns what decides how cuBLAS computes: its version, torch's, and its settings."""
    settings = sorted(
        f"{name}={value}"
        for name, value in os.environ.items()
        if name.startswith("CUBLAS") or name == "TORCH_BLAS_PREFER_CUBLASLT"
    )
    return ", ".join([f"torch {torch.__version__}", f"cuBLAS {_cublas_version()}", *settings])


def _cublas_version() -> str:
    """Returns the version of the cuBLAS that torch has loaded."""
    for name in _LIBRARIES:
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            part = ctypes.c_int()
            parts = []
            for which in range(3):  # libraryPropertyType: major, minor, patch
                library.cublasGetProperty(which, ctypes.byref(part))
                parts.append(part.value)
            return ".".join(map(str, parts))
    return "unknown"
