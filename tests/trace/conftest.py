"""A script of its own for each test, and what it has recorded."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from oddrank.trace import jobs, ranks


class Script:
    """Runs lines of Python in a process of their own, whose records lie in `folder`/records."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, source, *, check=True, wait=True, **environ):
        file = self.folder / "script.py"
        file.write_text(textwrap.dedent(source))
        process = subprocess.Popen(
            [sys.executable, str(file)],
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

    def records(self) -> list[ranks.Rank]:
        found, refused = ranks.read(jobs.files([str(self.folder / "records")]))
        assert not refused
        return found

    @staticmethod
    def functions(rank: ranks.Rank) -> list[str]:
        """Of the main thread's stack, outermost first."""
        assert rank.main is not None
        return [frame.function for frame in rank.main.stack]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)
