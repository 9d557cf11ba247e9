"""Runs CMake: which torch the build uses, and its message if it uses none."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


class Configured:
    """A finished CMake run: its log and the file that it wrote for _native.py."""

    def __init__(self, done: subprocess.CompletedProcess[str], folder: Path) -> None:
        self.failed = done.returncode != 0
        self.log = done.stdout + done.stderr
        report = folder / "_build.py"
        namespace: dict[str, dict[str, dict[str, str]]] = {}
        if report.exists():
            exec(report.read_text(), namespace)
            self.part = namespace["PARTS"]["_torch"]


def configure(
    tmp_path: Path,
    mode: str,
    version: str | None = None,
    header: str | None = None,
    python: Path | str = sys.executable,
) -> Configured:
    """Configures with a fake torch of that version, first on the path, with one header."""
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("no cmake on PATH")
    pybind11 = subprocess.check_output(
        [sys.executable, "-m", "pybind11", "--cmakedir"], text=True
    ).strip()
    environ = dict(os.environ)
    if version is not None:
        package = tmp_path / "site" / "torch"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("raise SystemExit('the build must not import torch')")
        (package / "version.py").write_text(f"__version__ = '{version}'\n")
        if header is not None:
            file = package / "include/torch/csrc/distributed/c10d/ProcessGroup.hpp"
            file.parent.mkdir(parents=True)
            file.write_text(header)
            (package / "lib").mkdir()
            (package / "lib" / "libtorch_cpu.so").touch()
        environ["PYTHONPATH"] = str(tmp_path / "site")
    done = subprocess.run(
        [
            *(cmake, "-S", ROOT, "-B", tmp_path / "build", "-DODDRANK_CUDA=OFF"),
            *(f"-DODDRANK_TORCH={mode}", f"-Dpybind11_DIR={pybind11}"),
            f"-DPython_EXECUTABLE={python}",
        ],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    return Configured(done, tmp_path / "build")


def test_a_torch_that_is_too_old_is_skipped_with_the_reason(tmp_path: Path):
    done = configure(tmp_path, "AUTO", version="1.13.1")
    assert not done.failed, done.log
    assert done.part["reason"] == "torch 1.13.1 is too old, 2.11 is needed"
    assert "torch >= 2.11" in done.part["advice"]
    assert "oddrank: _torch is not built: torch 1.13.1 is too old" in done.log


def test_an_interpreter_without_torch_is_named(tmp_path: Path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    python = tmp_path / "bare" / "bin" / "python"
    done = configure(tmp_path, "AUTO", python=python)
    assert not done.failed, done.log
    assert done.part["reason"] == f"no torch was found by {python} when oddrank was built"
    assert "--no-build-isolation" in done.part["advice"]


def test_on_fails_where_auto_skips(tmp_path: Path):
    done = configure(tmp_path, "ON", version="1.13.1")
    assert done.failed
    assert "torch 1.13.1 is too old" in done.log


def test_a_torch_without_headers_is_skipped(tmp_path: Path):
    done = configure(tmp_path, "AUTO", version="2.12.0")
    assert not done.failed, done.log
    assert "no C++ headers" in done.part["reason"]


@pytest.mark.parametrize("version", ["2.99.0a0+git1", "2.11.0"])
def test_a_torch_that_is_not_proven_is_tried_and_skipped_where_its_interface_differs(
    tmp_path: Path, version: str
):
    done = configure(tmp_path, "AUTO", version=version, header="#error another interface")
    assert not done.failed, done.log
    assert f"torch {version} has another C++ interface" in done.part["reason"]
    assert "proven with (2.13)" in done.part["reason"]


@pytest.mark.parametrize("name", ["hip", "rocm"])
def test_a_torch_for_rocm_is_refused_in_words(tmp_path: Path, name: str):
    version = f"2.13.0+rocm7.1'\n{name}: Optional[str] = '7.1.25424"
    done = configure(tmp_path, "AUTO", version=version, header="")
    assert not done.failed, done.log
    assert "ROCm 7.1.25424: ROCm (AMD GPUs) is not supported" in done.part["reason"]
    assert "parts for the CPU work" in done.part["advice"]


def test_off_builds_none_and_says_how_to_get_it(tmp_path: Path):
    done = configure(tmp_path, "OFF")
    assert "OFF" in done.part["reason"]
    assert done.part["advice"].startswith("Type: ODDRANK_TORCH=ON pip install --no-cache-dir")


def test_the_tested_version_is_the_newest_of_the_proven():
    tested = next(
        line.removeprefix("torch==")
        for line in (ROOT / "requirements-torch.txt").read_text().splitlines()
        if line.startswith("torch==")
    )
    cmake = (ROOT / "csrc/cmake/OddrankTorch.cmake").read_text()
    proven = next(
        line for line in cmake.splitlines() if line.startswith("set(oddrank_torch_proven")
    )
    assert proven.rstrip(")").split()[-1] == ".".join(tested.split(".")[:2])
