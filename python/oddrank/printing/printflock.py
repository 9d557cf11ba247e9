"""`printflock`: print() that never mixes lines. Importing this module opens the lock, once."""

import os
import sys
from collections.abc import Callable
from typing import Any

from oddrank import _native
from oddrank.job import base_folders

DEFAULT_TIMEOUT_S = 1.0


def timeout_s(text: str | None) -> float:
    """Seconds to wait for a holder that does not go on, from ODDRANK_PRINT_TIMEOUT's text."""
    if not text:
        return DEFAULT_TIMEOUT_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if 0 <= seconds <= 3600:
        return seconds
    _warn(f"ODDRANK_PRINT_TIMEOUT={text!r} is not a number of seconds: {DEFAULT_TIMEOUT_S} is used")
    return DEFAULT_TIMEOUT_S


def _warn(text: str) -> None:
    # A print that cannot be perfect still prints: configuration never raises here.
    if sys.stderr is not None:
        sys.stderr.write(f"oddrank: printflock: {text}\n")


def _open() -> str:
    """Opens the lock file that all processes of this user on this host share; returns its path."""
    path, refused = _native.core().printing_open(
        [str(folder) for folder in base_folders()],
        timeout_s(os.environ.get("ODDRANK_PRINT_TIMEOUT")),
    )
    if not path:
        _warn(f"no place for a lock file, lines of other processes may mix in: {refused}")
    elif refused and os.environ.get("ODDRANK_DIR"):
        _warn(f"ODDRANK_DIR is not used: {refused}")
    return str(path)


lock_path = _open()
printflock: Callable[..., Any] = _native.core().printflock
