"""A check of values on a GPU: one launch for all segments, memory and a stream that stay."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from bench.fake_gpu import HERE, compiler, make_fake_gpu

# The first test compiles.
pytestmark = [pytest.mark.needs("cuda-build"), pytest.mark.timeout(600)]

CSRC = HERE.parents[1] / "csrc"
# Of the CUDA sources, the check's; else what it calls.
SOURCES = ["bench/verify/*.cpp", "cuda/runtime.cpp"]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    nvcc = os.environ.get("CUDACXX") or shutil.which("nvcc", path=f"{home}/bin:{os.defpath}")
    if nvcc is None:
        pytest.skip("nvcc is needed to compile the kernels")
    folder = tmp_path_factory.mktemp("driver")
    fake, kernels, made = make_fake_gpu(folder), folder / "device.o", folder / "drive_check"
    options = ["-std=c++17", "-cudart", "none", f"-I{CSRC}", "-c", "-o", kernels]
    subprocess.run([nvcc, *options, CSRC / "bench/verify/device.cu"], check=True)
    sources = [file for pattern in SOURCES for file in CSRC.glob(pattern)]
    program = [HERE / "drive_check.cpp", kernels, *sources, fake, f"-Wl,-rpath,{folder}"]
    subprocess.run([*compiler(), f"-I{CSRC}", *program, "-o", made], check=True)
    return made


def drive(driver: Path, segments: int, checks: int) -> dict[str, int]:
    command = [str(driver), str(segments), str(checks)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("checks", [1, 10])
def test_512_segments_are_filled_by_one_launch_and_checked_by_one(driver: Path, checks: int):
    seen = drive(driver, 512, checks)
    assert seen["launches"] == 2 * checks
    assert (seen["allocations"], seen["streams"]) == (1, 1), "kept from call to call"
    assert seen["wrong"] == 0


def test_more_segments_than_the_workspace_holds_take_several_launches(driver: Path):
    seen = drive(driver, 1100, 1)
    assert seen["launches"] == 2 * 3
    assert seen["wrong"] == 0
