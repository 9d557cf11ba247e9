"""`printflock`: print() that never mixes lines. Importing this module opens the lock, once."""

import os
import sys
from typing import TYPE_CHECKING

from oddrank import _native
from oddrank.job import base_folders

DEFAULT_TIMEOUT_S = 1.0


def timeout_s(text: str | None) -> float:
    """Returns the seconds to wait for a stuck holder, from ODDRANK_PRINT_TIMEOUT's text."""
    if not text:
        return DEFAULT_TIMEOUT_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if 0 <= seconds <= 3600:
        return seconds
    _warn(f"ODDRANK_PRINT_TIMEOUT={text!r} is not between 0 and 3600: using {DEFAULT_TIMEOUT_S} s")
    return DEFAULT_TIMEOUT_S


def _warn(text: str) -> None:
    # Warns and never raises: print() works despite a bad configuration.
    if sys.stderr is not None:
        sys.stderr.write(f"oddrank: printflock: {text}\n")


def _open() -> str:
    """Opens the lock file that all processes of this user on this host share; returns its path."""
    path, refused = _native.core().printing_open(
        [str(folder) for folder in base_folders()],
        timeout_s(os.environ.get("ODDRANK_PRINT_TIMEOUT")),
    )
    if not path:
        _warn(f"no folder for a lock file, lines of other processes may mix in: {refused}")
    elif refused and os.environ.get("ODDRANK_DIR"):
        _warn(f"ODDRANK_DIR is not used: {refused}")
    return str(path)


lock_path = _open()
if TYPE_CHECKING:
    printflock = print
else:
    printflock = _native.core().printflock
