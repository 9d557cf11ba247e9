"""Runs commands on a terminal of their own."""

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Sequence
from typing import Any

from patience import PATIENCE


def on_terminal(line: Sequence[Any], columns: int = 80, **environ: str) -> str:
    """Returns what a command that ends well has written to a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        line, stdin=subprocess.DEVNULL, stdout=theirs,
        env={**os.environ, "TERM": "xterm-256color", **environ},
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: the other side is gone
        while piece := os.read(ours, 65536):
            shown += piece
    os.close(ours)
    assert process.wait(timeout=PATIENCE.limit) == 0
    return shown.decode()
