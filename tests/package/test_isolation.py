"""Tests don't meet what a shell or other tests have set, and leave nothing."""

import os
import re
import shutil
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from processes import captured
from texts import texts

pytestmark = pytest.mark.job  # each starts a pytest of its own
TEXTS = texts(__file__)

ROOT = Path(__file__).parents[2]
SHELL = {
    "COLUMNS": "60", "LINES": "5", "NO_COLOR": "1", "FORCE_COLOR": "1", "TERM": "dumb",
    "LC_ALL": "POSIX", "LANG": "tr_TR.ISO-8859-9", "HOME": "/nowhere", "TMPDIR": "/nowhere/either",
    "PYTHONWARNINGS": "error::ResourceWarning", "TORCH_CPP_LOG_LEVEL": "INFO", "NCCL_DEBUG": "INFO",
    "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "far", "MASTER_PORT": "9",
    "SLURM_PROCID": "3", "OMPI_COMM_WORLD_RANK": "2", "PMI_RANK": "2", "XDG_CACHE_HOME": "/nowhere",
    "ODDRANK_DIR": "/nowhere", "ODDRANK_INJECT": "kill:rank=0", "ODDRANK_TORCH": "ON",
    "PYTEST_ADDOPTS": "-ra",
}  # fmt: skip


def run(folder: Path, text: str, *arguments: str, **environ: str) -> str:
    """Runs pytest on tests of this text, with this repository's conftest; returns its output."""
    file = folder / "test_inside.py"
    file.write_text(dedent(text))
    pytest_here = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml")]
    path = f"{ROOT}/tests:{os.environ.get('PYTHONPATH', '')}"
    done = captured(
        [*pytest_here, "-p", "conftest", "-p", "no:cacheprovider", *arguments, str(file)],
        cwd=folder, PYTHONPATH=path, **environ,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.parametrize("arguments", [["-n", "0"], ["-n", "1"]], ids=["alone", "worker"])
def test_nothing_of_the_shell_reaches_tests_and_their_folders_are_removed(
    tmp_path, arguments, source
):
    said = run(tmp_path, source, *arguments, **SHELL)
    assert "1 passed" in said, said
    for seen in eval(Path(tmp_path, "environ").read_text()):
        kept = {name for name, value in SHELL.items() if seen.get(name) == value}
        assert kept == {"ODDRANK_TORCH"}
        for name in ("HOME", "TMPDIR"):
            assert len(seen[name]) < 40
            assert not Path(seen[name]).parent.exists()
        assert seen["PATH"] == os.environ["PATH"]


def test_a_variable_that_a_test_sets_ends_with_it_and_a_fixtures_with_the_fixture(tmp_path, source):
    said = run(tmp_path, source)
    assert "2 passed" in said, said


PROCESSES = TEXTS["processes"]


def test_what_a_test_has_begun_ends_with_it_and_what_a_fixture_has_with_the_session(tmp_path):
    said = run(tmp_path, PROCESSES, "-rA")
    assert "2 passed" in said, said
    assert "sleep 1001" in said.partition("processes it left")[2]
    assert not Path("/proc", re.search(r"wide=(\d+)", said)[1]).exists()


HANGS = TEXTS["hangs"]


def test_a_test_that_hangs_shows_what_it_and_its_processes_do_and_leaves_none(tmp_path):
    said = run(tmp_path, HANGS, "-o", "timeout_func_only=true", ODDRANK_TEST_SLOWNESS="1")
    assert "1 failed" in said, said
    assert "Timeout" in said
    child = re.search(r"child=(\d+)", said)[1]
    shown = said.partition("in test_hangs")[2].partition(f"pid {child} ")[2]
    assert "waits_for_ever" in shown, said
    assert not shutil.which("py-spy") or "waits_for_ever (<string>:2)" in shown, said
    assert not Path("/proc", child).exists()
