"""Runs every kernel under compute-sanitizer (make gpu-check)."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CSRC = Path(__file__).parents[2] / "csrc"
# Function of _cuda -> the kernels that it launches.
LAUNCHES = {
    "verify_memory": {"write_pattern", "check_pattern", "damage_word"},
    "time_device_memory": {"read_words", "write_words", "copy_words"},
    "gpu_fingerprint": {"fingerprint_blocks"}, "gpu_fill": {"write_table"},
    "gpu_check": {"compare_table"}, "gpu_noise": {"write_noise"},
    "gpu_digest": {"digest_chunks", "finish_rows"},
}  # fmt: skip
# Each kernel once, on little data: the tools are slow. Allocates by the driver, without torch.
EVERY_KERNEL = """
import ctypes
from oddrank import _native
cuda = _native.cuda()
cuda.verify_memory(0, 1 << 20, 7, thorough=True, damage=5, seconds=100)
cuda.time_device_memory(0, 1 << 20, 1, seconds=100)
cuda.time_transfers(0, 1 << 20, 1, seconds=100)
cuda.gpu_fingerprint(0, 0.0, seconds=400)
address = ctypes.c_uint64()
assert ctypes.CDLL("libcuda.so.1").cuMemAlloc_v2(ctypes.byref(address), 1 << 20) == 0
for dtype in ("int8", "bfloat16", "float32", "int64"):
    places = [(address.value, 0, 4000, 20_000), (address.value + 160_000, 0, 0, 300)]
    cuda.gpu_fill(0, dtype, "sum", 1, 1, places, seconds=100)
    right = cuda.gpu_check(0, dtype, "sum", 1, 1, places, seconds=100)[1][0]
    wrong = cuda.gpu_check(0, dtype, "avg", 3, 1, places, seconds=100)[0][0]
    assert right == 0 < wrong, (dtype, right, wrong)
    cuda.gpu_noise(0, address.value, 10_003, dtype, "sum", low=True, seconds=100)
ranges = [(address.value + i, 0, 9000) for i in range(130)]
assert cuda.gpu_digest(0, 0, ranges, 4096, address.value + 500_000, 390) == 390
"""


def kernels() -> set[str]:
    declared = r"__global__\s+void\s+(?:__launch_bounds__\(\w+\)\s+)?(\w+)\("
    return {name for file in CSRC.rglob("*.cu") for name in re.findall(declared, file.read_text())}


def test_no_kernel_is_left_out():
    assert set().union(*LAUNCHES.values()) == kernels()
    assert sum(file.read_text().count("__global__") for file in CSRC.rglob("*.cu")) == len(
        kernels()
    )
    assert set(LAUNCHES) <= set(re.findall(r"cuda\.(\w+)\(", EVERY_KERNEL))


@pytest.mark.gpu
@pytest.mark.needs("cuda-build", "compute-sanitizer")
@pytest.mark.timeout(540)
@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "initcheck", "synccheck"])
def test_compute_sanitizer_finds_nothing_in_any_kernel(tool: str):
    # --report-api-errors no: calls whose failure is expected, and the driver's own, are no finding.
    path = f"{os.environ['PATH']}{os.pathsep}/usr/local/cuda/bin"
    done = subprocess.run(
        ["compute-sanitizer", "--tool", tool, "--report-api-errors", "no", "--error-exitcode", "9",
         sys.executable, "-c", EVERY_KERNEL],
        env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
