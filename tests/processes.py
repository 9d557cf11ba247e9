"""Finds and ends processes that tests start, by a mark in their environment; runs commands."""

import io
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import environment
from oddrank import cli
from patience import PATIENCE

_TESTS = Path(__file__).parent
_MARK = "ODDRANK_TEST_JOB"
# Python keyword argument -> kind in ODDRANK_INJECT that is a Python keyword.
_KINDS = {"raises": "raise"}


@dataclass(frozen=True)
class Process:
    pid: int
    name: str
    state: str  # as in /proc/PID/stat
    parent: int
    environ: Mapping[str, str]


@dataclass(frozen=True)
class Marked:
    """All processes that inherit this mark, through forks and execs: guards and judges too."""

    text: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def environ(self) -> dict[str, str]:
        return {_MARK: self.text}

    def living(self) -> list[Process]:
        """Returns the living processes, without zombies."""
        needle, found = f"{_MARK}={self.text}".encode(), []
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                with suppress(OSError, IndexError):  # it has ended
                    text = Path(entry.path, "environ").read_bytes()
                    if needle in text:
                        found.append(_process(Path(entry.path), text.decode(errors="replace")))
        return [one for one in found if one.state != "Z"]

    def kill_all(self) -> None:
        """Ends all processes. They stop first: one that saw another die would go on, and raise."""
        living = self.living()
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in living:
                with suppress(ProcessLookupError):  # it was about to end
                    os.kill(process.pid, number)


def _process(folder: Path, environ: str) -> Process:
    name, _, rest = (folder / "stat").read_text().rpartition(")")
    pairs = (pair.partition("=") for pair in environ.split("\0"))
    state, parent = rest.split()[:2]
    variables = {name: value for name, _, value in pairs}
    return Process(int(folder.name), name.partition("(")[2], state, int(parent), variables)


def lives(pid: int | str) -> bool:
    """Returns whether a process runs. A zombie, which its parent has yet to wait for, does not."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def stop(pid: int) -> None:
    """Stops a process, and waits until each thread of it stands: kill() returns before that."""

    def stands() -> bool:
        states = []
        for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
            with suppress(OSError):  # it has ended
                states.append(stat.read_text().rpartition(")")[2].split()[0])
        return set(states) <= set("TtZX")

    os.kill(pid, signal.SIGSTOP)
    PATIENCE.until(stands, what="the stop of a process")


def injected(inject: str, at: str, faults: Mapping[str, int]) -> dict[str, str]:
    """Returns variables for faults: `inject`'s, and kind=rank of `faults` in stage `at`."""
    assert bool(at) == bool(faults), "a fault has a stage: stop=2, at='collectives'"
    short = [f"{_KINDS.get(kind, kind)}:rank={rank},stage={at}" for kind, rank in faults.items()]
    text = ";".join([*filter(None, [inject]), *short])
    path = os.pathsep.join(filter(None, [str(_TESTS), os.environ.get("PYTHONPATH")]))
    faults = {"ODDRANK_TESTING": "inject", "ODDRANK_INJECT": text, "PYTHONPATH": path}
    return faults if text else {}


@contextmanager
def held_port() -> Iterator[int]:
    """Yields a port without a listener, which the kernel gives to no other process.

    A process that knows it can listen there with SO_REUSEADDR, as the judge and torch's store do.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("", 0))
        yield int(holder.getsockname()[1])


@contextmanager
def most_open_files(limit: int) -> Iterator[None]:
    """Lets this process have descriptors below `limit` alone."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def shell_script(file: Path, text: str) -> Path:
    """Writes a program that runs these lines of the shell."""
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


def captured(
    line: Sequence[Any], *, env: Mapping[str, str] = os.environ, cwd: str | Path | None = None,
    limit: float | None = 0, check: bool = False, **environ: str,
) -> "subprocess.CompletedProcess[str]":  # fmt: skip
    """Runs a command line to its end, with `environ` in its environment, and returns its text."""
    return subprocess.run(
        line, env={**env, **environ}, cwd=cwd, capture_output=True, text=True, check=check,
        stdin=subprocess.DEVNULL, timeout=PATIENCE.limit if limit == 0 else limit,
    )  # fmt: skip


def configured(
    folder: Path, *arguments: str, cmake: str = "cmake", python: Path | str = sys.executable,
    **environ: str,
) -> "subprocess.CompletedProcess[str]":  # fmt: skip
    """Configures the build of this checkout in a folder."""
    found = shutil.which(cmake) or pytest.skip("no cmake on PATH")
    pybind11 = captured([sys.executable, "-m", "pybind11", "--cmakedir"], check=True).stdout.strip()
    own = [f"-DPython_EXECUTABLE={python}", f"-Dpybind11_DIR={pybind11}"]
    line = [found, "-S", Path(__file__).parents[1], "-B", folder, *own, *arguments]
    return captured(line, limit=None, **environ)


def typed(
    *words: object, cwd: str | Path | None = None, **environ: str
) -> "subprocess.CompletedProcess[str]":
    """Runs `oddrank WORDS` in this process: a tenth of the time that a new one takes.

    Does not see writes to descriptors.
    """
    out, err, before = io.StringIO(), io.StringIO(), os.getcwd()
    with environment.kept(), redirect_stdout(out), redirect_stderr(err):
        os.environ |= environ
        os.chdir(cwd or before)
        try:
            code = cli._run([*map(str, words)])
        finally:
            os.chdir(before)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())
