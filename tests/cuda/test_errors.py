"""The messages of CUDA errors that need no GPU to happen."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from processes import captured

pytestmark = [pytest.mark.whole_build, pytest.mark.needs("cuda-build")]

ROOT = Path(__file__).parents[2]
NO_KERNEL_IMAGE, INVALID_VALUE = 209, 1


def nvcc() -> str:
    """Returns the compiler that the build takes (OddrankCuda.cmake)."""
    folders = [f"{os.environ.get(name, '')}/bin" for name in ("CUDA_HOME", "CUDA_PATH")]
    path = os.pathsep.join([*folders, os.environ.get("PATH", os.defpath), "/usr/local/cuda/bin"])
    return os.environ.get("CUDACXX") or shutil.which("nvcc", path=path) or "nvcc"


@pytest.fixture(scope="module")
def message(tmp_path_factory):
    program = tmp_path_factory.mktemp("cuda") / "throw_error"
    sources = [ROOT / "csrc/cuda/runtime.cpp", Path(__file__).with_name("throw_error.cpp")]
    command = [nvcc(), "-std=c++20", "-I", ROOT / "csrc", *sources, "-o", program]
    subprocess.run(command, check=True)

    return lambda code: captured([program, str(code)], check=True).stdout


def test_a_gpu_without_code_is_told_with_what_to_do(message):
    told = message(NO_KERNEL_IMAGE)
    assert told.startswith("cudaCall failed with cudaErrorNoKernelImageForDevice (209): ")
    assert "rank 3. This oddrank has no code for the GPU" in told
    assert "`oddrank doctor`" in told
    assert "ODDRANK_CUDA_ARCHITECTURES=" in told


def test_other_errors_have_no_such_advice(message):
    told = message(INVALID_VALUE)
    assert told.startswith("cudaCall failed with cudaErrorInvalidValue (1): ")
    assert "no code" not in told
