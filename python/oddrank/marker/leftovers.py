"""Finds and ends all processes of a test's ranks, also those that moved to another session.

Run as a program it is the keeper: it waits until pytest has gone, in any way, and ends processes
that pytest left. `python -I -S leftovers.py TOKEN`; its stdin is a pipe from pytest, which writes
the folders to remove. Imports the standard library only, and little of it.
"""

import os
import signal
import sys
import time
from collections.abc import Collection
from contextlib import suppress

VARIABLE = "ODDRANK_RANKS_{}"
"""Name of the variable that marks all processes of a pytest process. Nested ones add theirs."""
_PATIENCE = 10.0  # seconds for SIGKILL to take effect: a process in D state is left
_KEEPERS_PATIENCE = 300.0


def find(token: str, sessions: Collection[int] = ()) -> dict[int, str]:
    """Returns the living processes, pid -> name, that inherit the token or are of these sessions.

    sessions: pids of session leaders that are not reaped yet: these pids are not reused.
    """
    needle = VARIABLE.format(token).encode()
    found = {}
    for name in os.listdir("/proc"):
        pid = int(name) if name.isdigit() else 0
        if pid in (0, 1, os.getpid()):
            continue
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                before, _, rest = file.read().rpartition(")")
            state, _, _, session = rest.split()[:4]
            if state in "ZX":
                continue
            if int(session) not in sessions:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    if needle not in file.read():
                        continue
        except (OSError, ValueError):  # it has ended, or is another user's
            continue
        found[pid] = before.partition("(")[2]
    return found


def end(token: str, sessions: Collection[int] = (), patience: float = _PATIENCE) -> dict[int, str]:
    """Kills these processes until none is left. Returns all that it found, pid -> name."""
    ended: dict[int, str] = {}
    limit = time.monotonic() + patience
    while (left := find(token, sessions)) and time.monotonic() < limit:
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        ended |= left
        time.sleep(0.005)
    return ended


def _keep(token: str) -> None:
    text = b""
    while chunk := os.read(0, 4096):
        text += chunk
    end(token, patience=_KEEPERS_PATIENCE)
    import shutil

    for folder in text.decode(errors="surrogateescape").split("\0"):
        if folder:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _keep(sys.argv[1])
