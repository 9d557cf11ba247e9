"""Warnings of the recorder, shown at the user's line."""

import sys
import warnings

# Modules whose frames a warning skips: also under `with armed:`, a decorator and NicerTrace.run().
_OURS = {
    "oddrank.trace.warning", "oddrank.trace.arm", "oddrank.trace.nicer", "oddrank.trace.printer",
}  # fmt: skip


def warn(message: str) -> None:
    """Warns (RuntimeWarning) at the innermost line outside these modules."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__") in _OURS:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, RuntimeWarning, stacklevel=level)
