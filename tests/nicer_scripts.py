"""Runs scripts that use NicerTrace, with a folder of installed packages."""

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

from patience import PATIENCE
from texts import texts

# Replaces the empty first line of a script, so line numbers stay.
HEAD = (
    "import os, signal, sys, threading, time, traceback; from oddrank import NicerTrace; "
    "from oddrank.trace import Tee; UNINSTALLED = {'packages_to_include': 'uninstalled'}; "
    "run = lambda *work, **named: NicerTrace(**UNINSTALLED).runfunc(*work, **named)"
)

IMAGE = texts(__file__)["image"][1:]


class Scripts:
    """A folder with a script, a module of its own beside it, and an installed package `pkg`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "script.py"
        package = folder / "site-packages" / "pkg"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "image.py").write_text(IMAGE)
        (folder / "own.py").write_text("def mine():\n    return 1\n")

    @contextmanager
    def started(self, source: str) -> "Iterator[subprocess.Popen[str]]":
        """Runs the script with pipes, and kills it at the end."""
        process = self._start(source)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def _start(self, source: str, stdout: int = PIPE, **environ: str) -> "subprocess.Popen[str]":
        text = textwrap.dedent(source)
        assert text.startswith("\n")
        self.file.write_text(HEAD + text)
        paths = [str(self.folder / "site-packages"), os.environ.get("PYTHONPATH", "")]
        own = {"ODDRANK_DIR": f"{self.folder}/records", "PYTHONPATH": ":".join(filter(None, paths))}
        return subprocess.Popen(
            [sys.executable, str(self.file)], cwd=self.folder, stdout=stdout,
            stderr=PIPE, text=True, env={**os.environ, **own, **environ},
        )  # fmt: skip

    def run(self, source: str, *, code: int = 0, **environ: str) -> str:
        """Runs the script; returns its output, which goes to a file.

        A pipe's reader that gets no core for a while would be given up, and events left out.
        """
        output = self.folder / "stdout"
        with output.open("wb") as file:
            process = self._start(source, file.fileno(), **environ)
        try:
            _, err = process.communicate(timeout=PATIENCE.limit)
        finally:
            process.kill()
        assert process.returncode == code, err
        self.errors = err
        return output.read_text()

    def masked(self, text: str) -> str:
        """Returns the text without times and folders, which differ from run to run."""
        plain = text.replace(f"{self.folder}/", "")
        return re.sub(r"^\d+:\d\d:\d\d ", "H:MM:SS ", plain, flags=re.M)


def files_of(text: str) -> set[str]:
    """Returns the files whose lines are shown."""
    return set(re.findall(r"^(?:\d+:\d\d:\d\d )?(\S+?): +\d+: ", text, re.M))


def missing(text: str) -> int:
    """Returns the number of events that the text reports as dropped."""
    return sum(int(count) for count in re.findall(r"^--- (\d+) events are missing", text, re.M))
