"""Wheel, sdist and editable install, with old and new CMake, without git: built for real."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

import pytest

import oddrank
from processes import captured

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(1200)
# A wheel and an editable install on every change; the others before a release.
in_every_run = pytest.mark.whole_build
now_and_then = pytest.mark.soak


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """Makes an environment that sees the packages of the tests' own, except oddrank."""
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    seen = [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]
    (site,) = folder.glob("lib/python*/site-packages")
    # Plain lines add folders without running their .pth files, so no editable oddrank is seen.
    (site / "outer.pth").write_text("\n".join(seen))
    return folder


def pip(venv: Path, *arguments: object, path: str | None = None, **environ: str) -> None:
    """Runs pip; builds in a fresh folder, as deep as that of the first build.

    So the compiler cache, where there is one, recognizes the files.
    """
    environ = {"ODDRANK_CUDA": "OFF", "ODDRANK_TORCH": "OFF", **environ}
    environ |= {"PATH": path} if path else {}
    command = [venv / "bin" / "python", "-m", "pip", *arguments]
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as build:
        done = captured(command, limit=None, SKBUILD_BUILD_DIR=build, **environ)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def built_with(venv: Path, part: str = "core") -> dict[str, str]:
    """Returns the build facts of a part in the fresh environment, which loads it elsewhere."""
    code = f"import json, oddrank._native as n; print(json.dumps(n.{part}().build_info))"
    python = venv / "bin" / "python"
    return json.loads(subprocess.check_output([python, "-I", "-c", code], text=True, cwd="/"))


def path_without(*names: str, tmp_path: Path) -> str:
    """Returns a PATH with compiler, make and linker, but without the named programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for place in reversed(os.environ["PATH"].split(":")):
        for program in Path(place).glob("*") if Path(place).is_dir() else ():
            if program.name not in names:
                (folder / program.name).unlink(missing_ok=True)
                (folder / program.name).symlink_to(program)
    return str(folder)


@now_and_then
def test_an_sdist_installs_without_git_and_with_the_distribution_s_cmake(
    venv: Path, tmp_path: Path
):
    path = path_without("git", tmp_path=tmp_path)
    assert shutil.which("git", path=path) is None
    build = "import scikit_build_core.build as b, sys; b.build_sdist(sys.argv[1])"
    subprocess.run(
        [venv / "bin" / "python", "-c", build, tmp_path / "dist"], cwd=ROOT, check=True,
        env={**os.environ, "PATH": path}, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    (sdist,) = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"LICENSE", "Makefile", "csrc/modules/core.cpp", "tests/CMakeLists.txt"} <= names
    assert not [name for name in names if name.endswith((".so", ".o", ".pyc"))]
    cmake = shutil.which("cmake", path="/usr/bin")
    # No other build here uses these options, so the compiler cache is useless: build fast.
    distribution = {"SKBUILD_CMAKE_BUILD_TYPE": "None"}
    distribution |= {"CMAKE_EXECUTABLE": cmake} if cmake else {}
    install = ["install", "--no-build-isolation", "--no-deps", sdist]
    pip(venv, *install, path=path, **distribution)
    built = built_with(venv)
    assert built["version"] == oddrank.__version__
    if cmake is None:
        pytest.skip("installed, but there is no CMake from the distribution")
    version = subprocess.check_output([cmake, "--version"], text=True).split()[2]
    assert built["cmake"] == version


@in_every_run
def test_a_wheel_holds_the_package_and_nothing_else(venv: Path, tmp_path: Path):
    pip(venv, "wheel", "--no-build-isolation", "--no-deps", "-w", tmp_path / "dist", ROOT)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {
        "oddrank",
        f"{wheel.name.rsplit('-', 3)[0]}.dist-info",
    }
    assert "oddrank/py.typed" in names
    assert "oddrank/report.schema.json" in names
    assert "oddrank/machine/variables.txt" in names
    assert {"oddrank/SKILL.md", "oddrank/llms.txt", "oddrank/docs/triage.md"} <= {*names}
    for page in (name for name in names if name.endswith((".md", "llms.txt"))):
        text = (ROOT / page.removeprefix("oddrank/")).read_text()
        for target in re.findall(r"\]\(([^)#:]+)", text):
            file = os.path.normpath(f"{os.path.dirname(page)}/{target}")
            assert file in names or file.endswith(".png"), (page, target)


def has_index(venv: Path) -> bool:
    """Returns whether pip can download."""
    probe = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir"]
    probe += ["--timeout", "5", "--retries", "0", "-d", str(venv / "probe"), "pybind11"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


@now_and_then
def test_make_wheel_builds_one_for_any_linux_of_its_age_that_imports_elsewhere(venv: Path):
    if not has_index(venv):
        pytest.skip("no package index for auditwheel")
    began = time.time()
    line = ["make", "wheel", f"PYTHONS={sys.executable}"]
    done = captured(line, cwd=ROOT, limit=None, ODDRANK_CUDA="OFF", ODDRANK_TORCH="AUTO")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "_core: built" in done.stdout  # in the fresh environment
    (wheel,) = (one for one in (ROOT / "dist").glob("*.whl") if one.stat().st_mtime >= began - 1)
    tag = "cp{0}{1}-cp{0}{1}-manylinux_".format(*sys.version_info)
    assert wheel.name.startswith(f"oddrank-{oddrank.__version__}-{tag}")
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if "libtorch" in name]


@in_every_run
def test_an_editable_install_serves_python_from_the_tree(venv: Path):
    pip(venv, "install", "--no-build-isolation", "--no-deps", "-e", ROOT)
    code = "import oddrank; print(oddrank.__file__)"
    found = subprocess.check_output([venv / "bin" / "python", "-I", "-c", code], text=True, cwd="/")
    assert found.strip() == str(ROOT / "python" / "oddrank" / "__init__.py")
    assert built_with(venv)["version"] == oddrank.__version__


@now_and_then
@pytest.mark.needs("torch")
def test_an_isolated_build_finds_the_torch_that_the_environment_sees(venv: Path):
    import torch

    if not has_index(venv):
        pytest.skip("no package index for the isolated build")
    pip(venv, "install", "--no-deps", "--no-cache-dir", ROOT, ODDRANK_TORCH="ON")
    assert built_with(venv, "torch")["torch"] == torch.__version__


@now_and_then
@pytest.mark.needs("torch")
def test_a_wheel_s_torch_part_loads_in_another_environment(venv: Path, tmp_path: Path):
    import torch

    python = Path(sys.executable)
    pip(
        python.parents[1], "wheel", "--no-build-isolation", "--no-deps", "-w", tmp_path / "dist",
        ROOT, ODDRANK_TORCH="ON",
    )  # fmt: skip
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    pip(venv, "install", "--no-deps", "--no-index", wheel)
    assert built_with(venv, "torch")["torch"] == torch.__version__
