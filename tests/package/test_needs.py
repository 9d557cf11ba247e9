"""`make` names everything that the machine lacks, at once and before any download."""

import os
import sys
from pathlib import Path

import pytest

from processes import captured, shell_script

ROOT = Path(__file__).parents[2]
NEEDS = ROOT / ".ci" / "needs"
# Hides GoogleTest's headers in a mount namespace.
HIDDEN = [
    "unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', "/usr/include/gtest",
]  # fmt: skip
pytestmark = pytest.mark.skipif(
    not Path(HIDDEN[-1]).is_dir(), reason="GoogleTest is not where Debian puts it"
)


def run(*command, folder=ROOT, **environ):
    base = {name: value for name, value in os.environ.items() if name not in ("CXX", "GTEST_ROOT")}
    return captured(list(map(str, command)), env=base | environ, cwd=folder)


@pytest.fixture
def programs(tmp_path):
    """Makes a folder for PATH with all programs of /usr/bin except compilers."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for program in Path("/usr/bin").iterdir():
        if not program.name.startswith(("c++", "g++", "clang")):
            (folder / program.name).symlink_to(program)
    return folder


@pytest.mark.needs("netns")
def test_without_googletest_make_test_stops_before_it_makes_an_environment(tmp_path):
    line = ["make", "test", f"PYTHON={sys.executable}", f"VENV={tmp_path}/venv"]
    done = run(*HIDDEN, *line, ODDRANK_APT="no")
    assert done.returncode == 2
    assert "no GoogleTest for the C++ tests: libgtest-dev" in done.stderr
    assert "apt-get install libgtest-dev" in done.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.needs("netns")
def test_only_the_tests_need_googletest():
    assert run(*HIDDEN, NEEDS, sys.executable, "build").returncode == 0


@pytest.mark.needs("netns")
def test_as_root_it_is_installed(tmp_path):
    does = 'echo "$@" >>"$0.calls"\n[ "$2" = update ] || umount /usr/include/gtest'
    shell_script(tmp_path / "apt-get", does)
    done = run(*HIDDEN, NEEDS, sys.executable, "test", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
    assert "installing libgtest-dev" in done.stderr
    calls = (tmp_path / "apt-get.calls").read_text().splitlines()
    assert [call.split()[1] for call in calls] == ["update", "install"]


def test_all_that_is_missing_is_said_at_once(programs):
    done = run(NEEDS, "python3-that-is-not-here", "test", PATH=str(programs), ODDRANK_APT="no")
    assert done.returncode == 2
    assert "make PYTHON=/path/to/python3" in done.stderr
    done = run(NEEDS, sys.executable, "test", PATH=str(programs), ODDRANK_APT="no")
    assert done.returncode == 2
    assert "no C++ compiler: g++" in done.stderr
    assert done.stderr.rstrip().endswith("apt-get install g++")
    done = run(NEEDS, sys.executable, "lint", PATH=str(programs), ODDRANK_APT="no")
    assert done.stderr.rstrip().endswith("apt-get install g++ clang-format clang-tidy")


def test_an_old_python_and_an_old_compiler_are_told_apart_from_missing_ones(tmp_path):
    does = '[ "$1" = --version ] && echo Python 3.9.2 && exit\nexit 1'
    old = shell_script(tmp_path / "python", does)
    assert "Python 3.9.2 is too old, 3.10 is needed" in run(NEEDS, old, "build").stderr
    compiler = shell_script(tmp_path / "g++", "exit 1")
    done = run(NEEDS, sys.executable, "build", CXX=str(compiler))
    assert done.returncode == 2
    assert "does not know C++20" in done.stderr
