"""Processes that print: started, watched and stopped by the tests of this folder."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from waiting import until

DEADLINE_S = 60.0

# Holds the print lock of stdout for as long as a test may take: printing to it never returns.
HOLD = """
import time
from oddrank import printflock
class Holder:
    def fileno(self): return 1
    def write(self, text):
        open({ready!r}, "w").close()
        time.sleep(120)
printflock("held", file=Holder())
"""


def start(
    code: str, stdout: int | None = None, timeout_s: float | None = None, **environ: str
) -> "subprocess.Popen[bytes]":
    more = dict(environ)
    if timeout_s is not None:
        more["ODDRANK_PRINT_TIMEOUT"] = str(timeout_s)
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**os.environ, **more},
    )


def run(code: str, **options: object) -> tuple[bytes, bytes]:
    """stdout and stderr of a process that must end well."""
    process = start(code, subprocess.PIPE, **options)  # type: ignore[arg-type]
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, err.decode()
    return out, err


def hold(folder: Path, stdout: int) -> "subprocess.Popen[bytes]":
    """A process that has the lock of `stdout`'s output."""
    ready = folder / "ready"
    ready.unlink(missing_ok=True)
    process = start(HOLD.format(ready=str(ready)), stdout)
    until(ready.exists)
    return process


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def stop(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGSTOP)
    until(lambda: state(process.pid) == "T")


def sleeps_in_write(pid: int) -> bool:
    """True where the process is inside write(2), waiting for room."""
    return _sleeps_in(pid, "1")


def sleeps_in_futex(pid: int) -> bool:
    """True where the process is in the queue for a lock."""
    return _sleeps_in(pid, "202")


def _sleeps_in(pid: int, call: str) -> bool:
    return Path(f"/proc/{pid}/syscall").read_text().split()[0] == call and state(pid) == "S"


def finish(process: "subprocess.Popen[bytes]") -> bytes:
    """Waits for a good end; returns what it said on stderr."""
    assert process.stderr is not None
    err = process.communicate(timeout=DEADLINE_S)[1]
    assert process.returncode == 0, err.decode()
    return err


def end(process: "subprocess.Popen[bytes]") -> None:
    """Kills and reaps, whatever state it is in."""
    process.kill()
    process.communicate()
