"""Starts, watches and stops processes that print, for the tests of this folder."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from oddrank.machine import process_state
from patience import PATIENCE, until
from texts import texts

# Holds the print lock of stdout for longer than a test takes: printing to it never returns.
HOLD = texts(__file__)["hold"]


def start(
    code: str,
    stdout: int | None = None,
    timeout_s: float | None = None,
    within: Sequence[str] = (),
    **environ: str,
) -> "subprocess.Popen[bytes]":
    """Starts Python with `code`; `within`: a command to run it under."""
    if timeout_s is not None:
        environ["ODDRANK_PRINT_TIMEOUT"] = str(timeout_s)
    return subprocess.Popen(
        [*within, sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=stdout,
        stderr=subprocess.PIPE, env={**os.environ, **environ},
    )  # fmt: skip


def run(code: str, **options: object) -> tuple[bytes, bytes]:
    """Runs a process that must end well; returns its stdout and stderr."""
    process = start(code, subprocess.PIPE, **options)  # type: ignore[arg-type]
    out, err = process.communicate(timeout=PATIENCE.limit)
    assert process.returncode == 0, err.decode()
    return out, err


def hold(folder: Path, stdout: int) -> "subprocess.Popen[bytes]":
    """Starts a process that holds the lock of `stdout`'s output."""
    ready = folder / "ready"
    ready.unlink(missing_ok=True)
    process = start(HOLD.format(ready=str(ready)), stdout)
    until(ready.exists)
    return process


# System calls: it waits for room in what it writes to, and in the queue of a lock.
WRITE, FUTEX = "1", "202"


def is_inside(process: "subprocess.Popen[bytes]", call: str) -> bool:
    """Returns whether the process sleeps in this system call."""
    place = Path(f"/proc/{process.pid}/syscall")
    return place.read_text().split()[0] == call and process_state(process.pid) == "S"


def finish(process: "subprocess.Popen[bytes]") -> bytes:
    """Waits for a good end; returns its stderr."""
    assert process.stderr is not None
    err = process.communicate(timeout=PATIENCE.limit)[1]
    assert process.returncode == 0, err.decode()
    return err


def end(process: "subprocess.Popen[bytes]") -> None:
    """Kills and reaps it in any state."""
    process.kill()
    process.communicate()
