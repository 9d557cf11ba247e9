"""Runs CMake: which torch the build uses, and its message if it uses none."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from processes import configured

pytestmark = pytest.mark.whole_build

ROOT = Path(__file__).parents[2]


def configure(
    tmp_path: Path, mode: str, version: str | None = None, header: str | None = None,
    python: Path | str = sys.executable,
) -> tuple[bool, str, dict[str, str]]:  # fmt: skip
    """Configures with a fake torch of that version, first on the path, with one header.

    Returns whether it went well, the log, and what it wrote for _native.py.
    """
    environ = {}
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
    parts = ["-DODDRANK_CUDA=OFF", f"-DODDRANK_TORCH={mode}"]
    done = configured(tmp_path / "build", *parts, python=python, **environ)
    namespace: dict[str, dict[str, dict[str, str]]] = {"PARTS": {"_torch": {}}}
    report = tmp_path / "build" / "_build.py"
    if report.exists():
        exec(report.read_text(), namespace)
    return done.returncode == 0, done.stdout + done.stderr, namespace["PARTS"]["_torch"]


ROCM = "2.13.0+rocm7.1'\n{}: Optional[str] = '7.1.25424"
DIFFERS = "#error another interface"
# Mode, version and header of a torch; words of the reason and the advice.
SKIPPED = {
    "too old":
        ("AUTO", "1.13.1", None, "torch 1.13.1 is too old, 2.11 is needed", "torch >= 2.11"),
    "no headers": ("AUTO", "2.12.0", None, "no C++ headers", ""),
    "another interface of a newer one":
        ("AUTO", "2.99.0a0+git1", DIFFERS, "torch 2.99.0a0+git1 has another C++ interface", ""),
    "another interface of an older one":
        ("AUTO", "2.11.0", DIFFERS, "torch 2.11.0 has another C++ interface", ""),
    "hip": ("AUTO", ROCM.format("hip"), "", "ROCm 7.1.25424: ROCm (AMD GPUs) is not supported",
            "parts for the CPU work"),
    "rocm": ("AUTO", ROCM.format("rocm"), "", "ROCm 7.1.25424: ROCm (AMD GPUs) is not supported",
             "parts for the CPU work"),
    "off": ("OFF", None, None, "OFF", "Install oddrank again with ODDRANK_TORCH=ON"),
}  # fmt: skip


@pytest.mark.parametrize("name", SKIPPED)
def test_a_torch_that_does_not_fit_is_skipped_with_the_reason(tmp_path: Path, name: str):
    mode, version, header, reason, advice = SKIPPED[name]
    went_well, log, part = configure(tmp_path, mode, version, header)
    assert went_well, log
    assert reason in part["reason"]
    assert advice in part["advice"]
    assert ("proven with (2.13, 2.15)" in part["reason"]) == (header == DIFFERS)
    assert f"oddrank: _torch is not built: {part['reason'][:20]}" in log


def test_an_interpreter_without_torch_is_named(tmp_path: Path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    python = tmp_path / "bare" / "bin" / "python"
    went_well, log, part = configure(tmp_path, "AUTO", python=python)
    assert went_well, log
    assert part["reason"] == f"no torch was found by {python} when oddrank was built"
    assert "--no-build-isolation" in part["advice"]


def test_on_fails_where_auto_skips(tmp_path: Path):
    went_well, log, _ = configure(tmp_path, "ON", version="1.13.1")
    assert not went_well
    assert "torch 1.13.1 is too old" in log


def test_the_tested_version_is_one_of_the_proven():
    (tested,) = re.findall(r"(?m)^torch==(\d+\.\d+)", (ROOT / "requirements-torch.txt").read_text())
    cmake = (ROOT / "csrc/cmake/OddrankTorch.cmake").read_text()
    (proven,) = re.findall(r"(?m)^set\(oddrank_torch_proven (.*)\)", cmake)
    assert tested in proven.split()
