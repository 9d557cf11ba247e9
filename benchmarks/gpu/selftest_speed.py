"""Compares the self-test's figures of a GPU with torch's, and measures how long it takes.

Goals: memory copy at least 0.9 of torch's, pattern test at least 0.7 of the GPU's own copy, matrix
products at least 0.97 of torch's in a plain loop, all patterns over nine tenths of the free memory
within 2 s, `selftest --quick` of one GPU within 30 s.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from oddrank import OddrankError, _native
from oddrank.selftest.probes import gpu

BYTES = 2 << 30
ROWS = 8192
PASSES = 10
QUICK = ("selftest", "--quick")


def timed(work: Callable[[], Any], calls: int) -> float:
    """Returns the seconds per call, from `calls` calls, on the GPU's clock."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    work()
    begin.record()
    for _ in range(calls):
        work()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) * 1e-3 / calls


def torch_copy() -> float:
    """Returns the GB/s of tensor.copy_, which reads and writes each byte."""
    source = torch.zeros(BYTES, dtype=torch.uint8, device="cuda:0")
    target = torch.empty_like(source)
    return 2 * BYTES / timed(lambda: target.copy_(source), PASSES) / 1e9


def our_copy() -> float:
    torch.cuda.empty_cache()
    times = _native.cuda().time_device_memory(0, BYTES, 5)
    return 2 * times["bytes"] / statistics.median(times["copy"]) / 1e9


def own_copy() -> float:
    return 2 * BYTES / statistics.median(_native.cuda().time_copies(0, BYTES, 5)) / 1e9


def pattern_test(which: str) -> Callable[[], float]:
    def rate() -> float:
        result = _native.cuda().verify_memory(0, BYTES, 7, thorough=True)
        if result["mismatches"]["count"]:
            raise OddrankError(f"the GPU does not hold what is written: {result['mismatches']}")
        return float(result["bytes"] / result[f"{which}_seconds"] / 1e9)

    return rate


def torch_product(dtype: torch.dtype) -> Callable[[], float]:
    def rate() -> float:
        a, b = (torch.randn(ROWS, ROWS, device="cuda:0").to(dtype) for _ in range(2))
        return 2 * ROWS**3 / timed(lambda: torch.mm(a, b), 2 * PASSES) / 1e12

    return rate


def our_product(name: str) -> Callable[[], float]:
    def rate() -> float:
        found = gpu.products(0, {name: 5})
        if name not in found:
            raise OddrankError(f"{name}: {gpu.reasons[name]}")
        return statistics.median(found[name])

    return rate


def verdict(report: Path, done: "subprocess.CompletedProcess[str]") -> str:
    """Returns the verdict of a self-test that has ended; OddrankError if it left no report."""
    try:
        return str(json.loads(report.read_text(encoding="utf-8"))["verdict"])
    except (OSError, ValueError, KeyError):
        said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        raise OddrankError(
            f"oddrank {' '.join(QUICK)} left no report (exit code {done.returncode}): {said}"
        ) from None


def quick_run(repetitions: int) -> dict[str, Any]:
    """Times a whole `selftest --quick` of one rank, including the interpreter's start."""
    seconds, verdicts = [], set()
    for _ in range(repetitions):
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder, "report.json")
            begin = time.monotonic()
            done = subprocess.run(
                [sys.executable, "-m", "oddrank", *QUICK, "--json", str(report)],
                check=False, capture_output=True, text=True, timeout=150,
            )  # fmt: skip
            seconds.append(time.monotonic() - begin)
            verdicts.add(verdict(report, done))
    row = {"what": "selftest --quick, s", "ours": harness.spread(seconds), "goal": "<= 30"}
    return {**row, "yardstick": ", ".join(sorted(verdicts)), "ratio": ""}


def whole_memory(repetitions: int) -> dict[str, Any]:
    """Times all patterns over nine tenths of the free memory, as stage device has them."""
    torch.cuda.empty_cache()
    cuda, seconds = _native.cuda(), []
    size = int(cuda.memory_info(0)[0] * 0.9) >> 20 << 20
    for _ in range(repetitions):
        begin = time.monotonic()
        result = cuda.verify_memory(0, size, 7, thorough=True, seconds=120.0)
        seconds.append(time.monotonic() - begin)
        if result["mismatches"]["count"]:
            raise OddrankError(f"the GPU does not hold what is written: {result['mismatches']}")
    row = {"what": f"{size >> 30} GiB tested, s", "ours": harness.spread(seconds), "goal": "<= 2"}
    return {**row, "yardstick": f"{result['passes']} patterns", "ratio": ""}


# Figure -> (ours, the yardstick, the goal for ours / yardstick).
SIDES: dict[str, tuple[Callable[[], float], Callable[[], float], float]] = {
    "memory copy, GB/s: torch's": (our_copy, torch_copy, 0.9),
    "pattern written, GB/s: the GPU's copy (read and write)": (
        pattern_test("write"),
        own_copy,
        0.7,
    ),
    "pattern read, GB/s: the GPU's copy (read and write)": (pattern_test("read"), own_copy, 0.7),
    "bf16 product, TFLOP/s: torch's": (
        our_product("gemm_bf16"),
        torch_product(torch.bfloat16),
        0.97,
    ),
    "fp16 product, TFLOP/s: torch's": (
        our_product("gemm_fp16"),
        torch_product(torch.float16),
        0.97,
    ),
}


def main() -> None:
    options = harness.parser(__doc__.splitlines()[0]).parse_args()
    if not torch.cuda.is_available():
        raise OddrankError("this benchmark needs a GPU, and torch sees none")
    # First: later this process has a context on the GPU, which the self-test would report.
    quick = quick_run(min(3, options.repetitions))
    rows = []
    for what, (ours, yardstick, goal) in SIDES.items():
        figures = harness.paired({"ours": ours, "yardstick": yardstick}, options.repetitions)
        rows.append(
            {
                "what": what,
                **{side: harness.spread(values) for side, values in figures.items()},
                "ratio": harness.ratio(figures["ours"], figures["yardstick"]),
                "goal": f">= {goal:g}",
            }
        )
    rows += [whole_memory(options.repetitions), quick]
    harness.report(
        "gpu/selftest_speed",
        rows,
        options.json,
        gpu=torch.cuda.get_device_name(0),
        torch=torch.__version__,
        cuda=_native.cuda().build_info,
    )


if __name__ == "__main__":
    harness.end(main, "selftest_speed")
