"""Runs the probes in child processes: what hangs there is killed and never holds us."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from typing import IO, Any

Facts = dict[str, Any]

# sys.path is handed on: `-c` would look for torch in the current folder first, which we did not.
_CHILD = """
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from oddrank.doctor import probes
probes.main(sys.argv[1])
"""
_KILLED_SECONDS = 1.0
_POLL_SECONDS = 0.02


def ask(names: Iterable[str], seconds: float) -> dict[str, Facts]:
    """Each probe's facts; {"problem": ...} for one that failed or did not answer in time."""
    deadline = time.monotonic() + seconds
    with ExitStack() as ends:
        children = {name: ends.enter_context(_Child(name)) for name in names}  # all at once
        return {name: child.answer(deadline, seconds) for name, child in children.items()}


class _Child:
    """One probe. Its output goes to files: a pipe could keep us waiting for grandchildren."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> "_Child":
        with ExitStack() as files:
            self._out = files.enter_context(tempfile.TemporaryFile())
            self._err = files.enter_context(tempfile.TemporaryFile())
            self._process = subprocess.Popen(
                [sys.executable, "-c", _CHILD, self._name, json.dumps(sys.path)],
                stdin=subprocess.DEVNULL,
                stdout=self._out,
                stderr=self._err,
                start_new_session=True,
            )
            self._files = files.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Also on Ctrl-C: a child in a session of its own would stay."""
        if self._process.poll() is None:
            self._kill()
        self._files.close()

    def answer(self, deadline: float, seconds: float) -> Facts:
        code = self._wait(deadline)
        if code is None:
            return {"problem": f"no answer within {seconds:g} s: {self._kill()}"}
        lines = _lines(self._out)
        if code == 0 and lines:
            facts: Facts = json.loads(lines[-1])
            return facts
        said = _lines(self._err)
        return {"problem": f"{_ending(code)}{f': {said[-1]}' if said else ''}"}

    def _wait(self, deadline: float) -> int | None:
        while self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return self._process.poll()

    def _kill(self) -> str:
        """Ends the child and says how that went. Only a process in the kernel's hands stays."""
        os.killpg(self._process.pid, signal.SIGKILL)
        if self._wait(time.monotonic() + _KILLED_SECONDS) is not None:
            return f"the {self._name} probe hung and was killed"
        return f"the {self._name} probe hangs in the kernel (process {self._process.pid}, state D)"


def _lines(file: IO[bytes]) -> list[str]:
    file.seek(0)
    return [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]


def _ending(code: int) -> str:
    if code >= 0:
        return f"the probe ended with code {code}"
    try:
        return f"the probe was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"the probe was ended by signal {-code}"
