"""Runs every kernel under compute-sanitizer (make gpu-check)."""

import os
import re
import sys
from pathlib import Path

import pytest

from processes import captured
from texts import texts

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
EVERY_KERNEL = texts(__file__)["every kernel"]


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
    done = captured(
        ["compute-sanitizer", "--tool", tool, "--report-api-errors", "no", "--error-exitcode", "9",
         sys.executable, "-c", EVERY_KERNEL], limit=500, PATH=path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
