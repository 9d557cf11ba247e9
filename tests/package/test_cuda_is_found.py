"""Configures the build with good and bad installations of nvcc and nccl.h."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from processes import configured, shell_script

pytestmark = [pytest.mark.whole_build, pytest.mark.needs("cuda-build"), pytest.mark.timeout(1200)]


def configure(folder: Path, *arguments: str, cmake: str = "cmake", **environ: str) -> str:
    """Configures; returns the log, errors included."""
    own = ["-DCMAKE_BUILD_TYPE=Release", "-DODDRANK_TORCH=OFF"]
    done = configured(folder, *own, *arguments, cmake=cmake, **environ)
    log = " ".join((done.stdout + done.stderr).split())
    assert (done.returncode == 0) == ("CMake Error" not in log), log
    return log


def test_a_cudacxx_that_is_no_compiler_leaves_cuda_out_and_rocm_is_not_supported(tmp_path: Path):
    hipcc = shell_script(tmp_path / "bin" / "hipcc", "")
    log = configure(tmp_path / "build", CUDACXX="/bin/false", ROCM_PATH=str(tmp_path))
    assert "oddrank: _cuda is not built: /bin/false cannot compile CUDA code" in log
    assert f"and ROCm ({hipcc}) is not supported. On AMD GPUs only the parts for the CPU" in log
    assert "oddrank: _core is built" in log


def test_where_cuda_was_asked_for_its_absence_is_an_error(tmp_path: Path):
    log = configure(tmp_path, "-DODDRANK_CUDA=ON", CUDACXX="/bin/false")
    assert "CMake Error" in log
    assert "ODDRANK_CUDA=ON, but /bin/false cannot compile CUDA code" in log


def test_without_nccl_h_the_reason_names_the_wheel_to_install(tmp_path: Path):
    empty = tmp_path / "empty"
    empty.mkdir()
    log = configure(tmp_path / "build", f"-DODDRANK_NCCL_INCLUDE={empty}")
    assert re.search("_cuda is not built: nccl.h was not found .* pip install nvidia-nccl-cu", log)


def test_an_old_nccl_h_is_refused_by_its_version(tmp_path: Path):
    (tmp_path / "nccl.h").write_text("#define NCCL_MAJOR 2\n#define NCCL_MINOR 8\n")
    log = configure(tmp_path / "build", f"-DODDRANK_NCCL_INCLUDE={tmp_path}")
    assert "nccl.h is of NCCL 2.8, older than 2.19" in log


@pytest.mark.soak
def test_the_distribution_s_cmake_builds_cuda_too(tmp_path: Path):
    system = shutil.which("cmake", path="/usr/bin")
    if system is None:
        pytest.skip("no CMake from the distribution")
    log = configure(tmp_path, "-DODDRANK_CUDA_ARCHITECTURES=90-real", cmake=system)
    assert "oddrank: _cuda is built" in log, log
    subprocess.run([system, "--build", tmp_path, "--target", "_cuda"], check=True)
