"""Notes in the record that the script has ended, and which exception ended it.

Does not touch sys.excepthook. Python keeps the exception that ended a script. This module reads it
when Python begins to shut down, before Python waits for threads: the record of a rank that failed
and hangs in that wait has the exception. The compiled core notes the code of exit().
"""

import atexit
import functools
import sys
import threading
from contextlib import suppress

from oddrank import _native


@functools.cache
def watch() -> None:
    """Registers the note, once per process. Forked children inherit it and have own records."""
    # As concurrent.futures does: runs before Python waits for threads, and in children of
    # multiprocessing too, which end by os._exit() without atexit functions.
    register = getattr(threading, "_register_atexit", atexit.register)
    with suppress(RuntimeError):  # Python is shutting down already
        register(_script_has_ended)


def note(raised: type[BaseException] | None) -> None:
    """Notes that the script has ended, by this exception or (None) by itself."""
    with suppress(Exception):  # nothing may disturb the shutdown
        _native.core().trace_script_ended(_name(raised) if raised else "")


def _script_has_ended() -> None:
    raised = None
    with suppress(Exception):  # sys.last_type may hold anything
        raised = _unhandled()
    note(raised)


def _unhandled() -> type[BaseException] | None:
    """Returns the exception that ended the script, which Python keeps after printing it.

    PyErr_Print() in an extension and an interactive Python keep theirs too, though it ended
    nothing. Only a script's exception has left the outermost frame, which has no caller.
    """
    kind, traceback = getattr(sys, "last_type", None), getattr(sys, "last_traceback", None)
    if hasattr(sys, "ps1") or traceback is None or traceback.tb_frame.f_back is not None:
        return None
    return kind if isinstance(kind, type) and issubclass(kind, BaseException) else None


def _name(kind: type[BaseException]) -> str:
    module = kind.__module__
    return (
        kind.__qualname__ if module in {"builtins", "__main__"} else f"{module}.{kind.__qualname__}"
    )
