"""Warnings of the recorder, at the line of the user's code that they are about."""

import sys
import warnings

# Between the user and a warning: `with armed:`, a decorated function or NicerTrace.run() too.
_OURS = {
    "oddrank.trace.warning", "oddrank.trace.arm", "oddrank.trace.nicer", "oddrank.trace.printer",
}  # fmt: skip


def warn(message: str) -> None:
    """A RuntimeWarning at the innermost line that is none of ours."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__") in _OURS:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, RuntimeWarning, stacklevel=level)
