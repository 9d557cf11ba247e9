"""pytest around tests with ranks: Ctrl-C, SIGKILL, --pdb, -s, -k, xdist, no torch, its own cost."""

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from patience import PATIENCE, until
from processes import Marked
from texts import texts

pytestmark = [pytest.mark.job, pytest.mark.timeout(600)]

TEXTS = texts(__file__)
SLEEPING = TEXTS["sleeping"]


@pytest.fixture
def mark() -> Iterator[Marked]:
    mark = Marked()
    yield mark
    mark.kill_all()


def start(mark: Marked, *options: str, **how: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    environ = {**os.environ, **mark.environ}
    return subprocess.Popen(command, env=environ, text=True, **how)  # type: ignore[call-overload]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_ctrl_c_or_the_death_of_pytest_ends_all_ranks_and_what_they_started(pytester, mark, number):
    pytester.makepyfile(SLEEPING)
    running = start(mark, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    ready = [pytester.path / f"ready{rank}" for rank in range(2)]
    until(lambda: all(file.exists() for file in ready), 300)
    running.send_signal(number)
    said, _ = running.communicate(timeout=PATIENCE.limit)
    interrupted = number == signal.SIGINT
    assert ("KeyboardInterrupt" in said) == interrupted
    assert running.returncode == (pytest.ExitCode.INTERRUPTED if interrupted else -number)
    until(lambda: mark.living() == [])  # those that were killed need a core to end in
    prefix = f"oddrank-ranks-{running.pid}-"
    until(lambda: not any(name.startswith(prefix) for name in os.listdir("/dev/shm")))


def test_pdb_has_rank_0_at_the_terminal(pytester, mark, source):
    pytester.makepyfile(source)
    terminal, theirs = pty.openpty()
    running = start(mark, "--pdb", stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = ""

    def read_until(text: str) -> None:
        nonlocal said
        end = time.monotonic() + PATIENCE.job
        while text not in said:
            assert time.monotonic() < end, said
            try:
                said += os.read(terminal, 4096).decode(errors="replace")
            except OSError:  # all others have closed the terminal
                break
        assert text in said, said

    read_until("(Pdb)")
    time.sleep(6)  # longer than the deadline, which does not end a debugger
    said = ""
    os.write(terminal, b"p 'value is', value\n")
    read_until("('value is', 40)")
    os.write(terminal, b"continue\n")
    read_until("1 failed")
    assert "ranks 0-1 raised AssertionError: assert 40 < 0" in said.replace("41", "40")
    running.wait()
    os.close(terminal)
    until(lambda: mark.living() == [])


def test_s_shows_lines_at_once_with_their_rank_and_k_chooses(pytester, source):
    pytester.makepyfile(source)
    done = pytester.runpytest_subprocess("-s", "-k", "prints[2]")
    done.assert_outcomes(passed=1, deselected=1)
    for rank in range(2):
        done.stdout.fnmatch_lines([f"*[[]rank {rank}[]] size 2"])


def test_ports_never_collide_under_xdist(pytester, source):
    pytester.makepyfile(source)
    pytester.runpytest_subprocess("-n", "2").assert_outcomes(passed=10)


def test_without_torch_only_process_group_and_store_fail(pytester, monkeypatch, source):
    (pytester.mkdir("fake") / "torch.py").write_text("raise ImportError('no torch here')")
    monkeypatch.setenv("PYTHONPATH", str(pytester.path / "fake"))
    pytester.makepyfile(source)
    done = pytester.runpytest_subprocess()
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["*process_group takes torch: pip install torch*"])


# Tests that fail -> what is told of them.
FAILING = {
    "a timeout of another plugin": "rank 1 did not end within Timeout*25*test_sleeps*",
    "names that differ": "ranks 0-1 did not run the test: it did not find the test*",
    "a rank that hangs in its imports": "rank*1 did not begin the test within 5 s*",
}


@pytest.mark.parametrize("name", FAILING)
def test_why_a_test_failed_is_told(pytester, name):
    if name == "a rank that hangs in its imports":
        pytester.makeconftest("import oddrank.marker.rank_group as g; g._IMPORT = 5.0")
    pytester.makepyfile(TEXTS[name])
    done = pytester.runpytest_subprocess()
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines([FAILING[name]])


def test_a_pytest_that_is_paused_beyond_the_deadline_blames_no_rank(pytester):
    pytester.makeconftest(TEXTS["waits late"])
    pytester.makepyfile(TEXTS["with a deadline"])
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_loading_the_plugin_imports_nothing_but_itself():
    code = (
        "import sys, pytest; before = set(sys.modules); import oddrank.marker.plugin;"
        " print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert set(done.split()) <= {
        "oddrank", "oddrank._version", "oddrank.errors", "oddrank.forks", "oddrank.marker",
        "oddrank.marker.plugin",
    }  # fmt: skip


def test_a_pytest_without_such_tests_starts_nothing(pytester, source):
    pytester.makepyfile(source)
    pytester.runpytest_subprocess().assert_outcomes(passed=1)
