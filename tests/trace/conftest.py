"""Fixtures that run scripts and give tests their records."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from oddrank.trace import jobs, ranks
from oddrank.trace.arm import HOOKS

# Replaces the empty first line of a script, so line numbers stay.
_WITH_HOOK = "import functools, oddrank; oddrank.arm = functools.partial(oddrank.arm, hook={!r})"


class Script:
    """Runs Python source in a separate process; its records are in `folder`/records.

    hook: the hook of oddrank.arm() in it; by default the first of HOOKS.
    """

    def __init__(self, folder: Path, hook: str) -> None:
        self.folder = folder
        self.hook = hook

    def __call__(self, source, *, check=True, wait=True, stdin=None, **environ):
        file = self.folder / "script.py"
        text = textwrap.dedent(source)
        if self.hook != HOOKS[0]:
            assert text.startswith("\n")
            text = _WITH_HOOK.format(self.hook) + text
        file.write_text(text)
        process = subprocess.Popen(
            [sys.executable, str(file)],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "ODDRANK_DIR": str(self.folder / "records"), **environ},
        )
        if not wait:
            return process
        out, err = process.communicate(timeout=60)
        assert not check or process.returncode == 0, err
        return subprocess.CompletedProcess([], process.returncode, out, err)

    def records(self, look: float = 0.0) -> list[ranks.Rank]:
        found, refused = ranks.read(jobs.find([str(self.folder / "records")]).files, look)
        assert not refused
        return found

    @staticmethod
    def functions(rank: ranks.Rank) -> list[str]:
        """Returns the functions of the main thread's stack, outermost first."""
        assert rank.main is not None
        return [frame.function for frame in rank.main.stack]


def _run_ranks(
    folder: Path, source: str, numbers: Iterable[int] = range(2), port: int = 29500
) -> Path:
    """Runs a script as ranks of a job of two, one after the other; returns the job's folder.

    The job is named after `port`.
    """
    script = folder / "script.py"
    script.write_text(source)
    for number in numbers:
        subprocess.run(
            [sys.executable, script],
            env={
                **os.environ, "ODDRANK_DIR": str(folder / "records"), "RANK": str(number),
                "WORLD_SIZE": "2", "LOCAL_RANK": str(number), "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            },
            check=False, timeout=60,
        )  # fmt: skip
    return folder / "records" / f"127.0.0.1:{port}"


@pytest.fixture(scope="session")
def run_ranks() -> Callable[..., Path]:
    return _run_ranks


@pytest.fixture(scope="module")
def dead_job(run_ranks, tmp_path_factory):
    """Returns the folder of a job of two killed ranks."""
    folder = tmp_path_factory.mktemp("job")
    run_ranks(
        folder,
        "import os, signal\nimport oddrank\noddrank.arm()\noddrank.step(5)\n"
        "def work():\n    value = 1\n    os.kill(os.getpid(), signal.SIGKILL)\nwork()\n",
    )
    return folder


@pytest.fixture(params=HOOKS)
def script(tmp_path: Path, request: pytest.FixtureRequest) -> Script:
    return Script(tmp_path, request.param)


@pytest.fixture
def waiting(script: Script) -> Callable[[], subprocess.Popen]:
    """Starts a process that waits in waits() for its stdin."""

    def start():
        process = script(
            """
            import sys
            import oddrank
            oddrank.arm()

            def waits():
                print("waits", flush=True)
                sys.stdin.readline()

            waits()
            """,
            wait=False,
            stdin=subprocess.PIPE,
        )
        process.stdout.readline()
        return process

    return start
