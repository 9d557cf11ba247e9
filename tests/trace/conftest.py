"""Fixtures that run scripts and give tests their records."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

import pytest

from collect.collecting import KILLED
from oddrank.trace import jobs, ranks
from patience import PATIENCE

# Replaces the empty first line of a script, so line numbers stay.
_HEAD = (
    "import os, signal, sys, threading, time, oddrank; from oddrank import _native; "
    "core = _native.core()"
)


class Script:
    """Runs Python source in a separate process; its records are in `folder`/records."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, source, *, check=True, **environ):
        """Runs a script that ends well or is killed; check=False: in any way."""
        process = self.start(source, **environ)
        out, err = process.communicate(timeout=PATIENCE.limit)
        assert not check or process.returncode in (0, -signal.SIGKILL), err
        return subprocess.CompletedProcess([], process.returncode, out, err)

    def armed(self, source, arm="", **options):
        """Runs a script that begins with oddrank.arm(...)."""
        assert source.startswith("\n")
        return self(f"; armed = oddrank.arm({arm}){textwrap.dedent(source)}", **options)

    def rank(self, source, arm="", **options) -> ranks.Rank:
        """Runs a script that begins with oddrank.arm(...); returns its only record."""
        self.armed(source, arm, **options)
        (found,) = self.records()
        return found

    def start(self, source, **environ):
        file = self.folder / "script.py"
        source = textwrap.dedent(source)
        assert source.startswith(("\n", ";"))
        file.write_text(_HEAD + source)
        return subprocess.Popen(
            [sys.executable, str(file)], stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True,
            env={**os.environ, "ODDRANK_DIR": str(self.folder / "records"), **environ},
        )  # fmt: skip

    @contextmanager
    def running(self, source, **environ):
        """Runs a script that prints a line when it is ready, and kills it at the end."""
        process = self.start(source, **environ)
        try:
            assert process.stdout.readline()
            yield process
        finally:
            process.kill()
            process.communicate()

    @property
    def files(self) -> list[Path]:
        return jobs.find([str(self.folder / "records")]).files

    def records(self, look: float = 0.0) -> list[ranks.Rank]:
        found, refused = ranks.read(self.files, look)
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
            check=False, timeout=PATIENCE.limit,
        )  # fmt: skip
    return folder / "records" / f"127.0.0.1_{port}"


@pytest.fixture(scope="session")
def run_ranks() -> Callable[..., Path]:
    return _run_ranks


@pytest.fixture(scope="session")
def dead_job(run_ranks, tmp_path_factory):
    """Returns the folder of a job of two killed ranks."""
    folder = tmp_path_factory.mktemp("job")
    run_ranks(folder, KILLED)
    return folder


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


@pytest.fixture
def waiting(script: Script) -> Iterator[subprocess.Popen]:
    """Returns a process that waits in waits() for its stdin."""
    with script.running("""
        oddrank.arm()
        def waits():
            print("waits", flush=True)
            sys.stdin.readline()
        waits()
    """) as process:
        yield process
