"""Measures a rank's GPU, with the same functions as probes.host."""

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from oddrank import _native
from oddrank.errors import OddrankError
from oddrank.launch import Launch
from oddrank.machine import nvml, placement
from oddrank.selftest import probes

_PATIENCE = 30.0


def wait_for(event: Any) -> None:
    """Waits until the GPU has come to an event. Polls: synchronize() has no deadline."""
    until = time.monotonic() + _PATIENCE
    while not event.query():
        if time.monotonic() > until:
            raise OddrankError(f"a product of matrices on the GPU did not end in {_PATIENCE:g} s")
        time.sleep(5e-5)


# All repeats in one turn, and no part to choose: no other rank uses the GPU.
A_TURN = 1 << 30
at = nullcontext
# Metric -> its name in the native part.
_MEMORY = {"gpu_read": "read", "gpu_write": "write", "gpu_copy": "copy"}
_TRANSFERS = {"pcie_to_device": "to_device", "pcie_to_host": "to_host"}
# Far beyond any L2 cache, and a small part of the memory.
_MOST_BYTES, _SHARE = 2 << 30, 16
_TRANSFER_BYTES = 256 << 20

# Matrix products: rows of the matrices. A repeat takes about so many seconds: a GPU's clocks follow
# its power within milliseconds.
_LARGE, _SMALL = 8192, 4096
_SECONDS, _MOST_CALLS = 0.02, 200
reasons: dict[str, str] = {}  # number format -> why its products could not be measured here


def kind(launch: Launch) -> str:
    """Returns the GPU's model or MIG profile, and its power cap: a lower cap makes it slower."""
    gpu = placement.of_rank(launch)
    reply = _asked(gpu)
    name = reply.get("gpu") or gpu.name
    cap = reply.get("readings", {}).get("power_cap_mW")
    return f"{name}, {cap // 1000} W" if cap else str(name)


def speed(launch: Launch, repeats: Mapping[str, int]) -> dict[str, list[float]]:
    """Measures GB/s of the GPU's memory and its link to the host, TFLOP/s of matrix products."""
    cuda, place = _native.cuda(), placement.of_rank(launch)
    index = place.index
    cuda.set_rank(launch.rank)
    found: dict[str, list[float]] = {}
    if count := probes.most(repeats, _MEMORY):
        free = cuda.memory_info(index)[0]
        size = min(_MOST_BYTES, 1 << (max(free // _SHARE, 1 << 20).bit_length() - 1))
        found |= probes.rates(cuda.time_device_memory(index, size, count), _MEMORY)
    if count := probes.most(repeats, _TRANSFERS):
        with placement.bound_to(place.cpus):  # else pinned memory may be far from the GPU
            times = cuda.time_transfers(index, _TRANSFER_BYTES, count)
        found |= probes.rates(times, _TRANSFERS)
    found |= products(index, repeats)
    return {name: values for name, values in found.items() if name in repeats}


def alone(launch: Launch, metric: str) -> str:
    """Returns the PCIe switch of a figure of its link: GPUs below one share it.
    If the kernel shows no switch, the GPUs of a host take turns: any two may share one."""
    if metric not in _TRANSFERS:
        return ""
    return placement.of_rank(launch).switch or "PCIe"


def fingerprint(launch: Launch, seconds: float) -> probes.GpuPrints:
    """Computes the fingerprint of every multiprocessor, repeatedly for so many seconds."""
    cuda, place = _native.cuda(), placement.of_rank(launch)
    cuda.set_rank(launch.rank)
    reply = cuda.gpu_fingerprint(place.index, seconds, seconds=seconds + 20)
    major, minor = place.architecture
    seen = ((f"SM {sm}", repeat, hashes) for sm, repeat, hashes in reply["seen"])
    code = f"compute capability {major}.{minor}, code of {reply['code'] / 10:g}"
    code += f", {cuda.build_info['nvcc']}"
    summary = probes.summary(code, reply["golden"], seen)
    return {**summary, "computed": reply["computed"], "places_there": reply["multiprocessors"]}


def _asked(gpu: placement.Placement) -> dict[str, Any]:
    """Returns NVML's reply; empty without NVML, which stage health reports."""
    try:
        return nvml.gpu_health(gpu.uuid.partition("-")[2])
    except OddrankError:
        return {}


def products(index: int, repeats: Mapping[str, int]) -> dict[str, list[float]]:
    """Returns the TFLOP/s of torch's products, for wanted formats that this GPU and torch have."""
    import torch

    found = {}
    device = torch.device("cuda", index)
    for name, (rows, prepare) in _FORMATS.items():
        if name not in repeats:
            continue
        try:
            with torch.cuda.device(device):
                found[name] = _products(torch, device, rows, prepare, repeats[name])
        except (RuntimeError, AttributeError, TypeError, ValueError) as error:
            if isinstance(error, OddrankError):
                raise
            reasons[name] = str(error).partition("\n")[0][:100]
    torch.cuda.empty_cache()
    return found


def _products(torch: Any, device: Any, rows: int, prepare: Any, repeats: int) -> list[float]:
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
    """Returns the GPU's seconds for so many products."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        multiply()
    end.record()
    wait_for(end)
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
    a, b = (torch.randn(rows, rows, device=device).to(torch.float8_e4m3fn) for _ in range(2))
    one, out = torch.ones((), device=device), torch.bfloat16
    return lambda: torch._scaled_mm(
        a, b.t(), scale_a=one, scale_b=one, out_dtype=out, use_fast_accum=True
    )


# Metric -> (rows of the square matrices, a function that prepares their product).
_FORMATS: dict[str, tuple[int, Callable[..., Callable[[], Any]]]] = {
    "gemm_bf16": (_LARGE, _plain("bfloat16")),
    "gemm_fp16": (_LARGE, _plain("float16")),
    "gemm_tf32": (_LARGE, _plain("float32", "high")),
    "gemm_fp32": (_SMALL, _plain("float32", "highest")),
    "gemm_fp8": (_LARGE, _fp8),
}
