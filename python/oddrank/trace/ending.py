"""A process's last words: its record says that the script has ended, and by which exception.

Only looked at, never taken: sys.excepthook stays whose it is. What Python leaves behind of an
exception that ended a script is read when Python begins to shut down, before it waits for threads
(a rank that has failed and hangs in that wait says so). exit()'s code is noted natively.
"""

import atexit
import functools
import sys
import threading
from contextlib import suppress

from oddrank import _native


@functools.cache
def watch() -> None:
    """Once a process; forked children inherit it, and write into records of their own."""
    # As concurrent.futures does: called before threads are waited for, in children of
    # multiprocessing too. Theirs end by os._exit(), without what atexit has.
    register = getattr(threading, "_register_atexit", atexit.register)
    with suppress(RuntimeError):  # it is shutting down already
        register(_script_has_ended)


def note(raised: type[BaseException] | None) -> None:
    """The script has ended, by this exception or by none."""
    with suppress(Exception):  # nothing here may get in the way of an end
        _native.core().trace_script_ended(_name(raised) if raised else "")


def _script_has_ended() -> None:
    raised = None
    with suppress(Exception):  # whatever somebody has put there
        raised = _unhandled()
    note(raised)


def _unhandled() -> type[BaseException] | None:
    """What left the script: Python keeps it when it has printed it.

    So does PyErr_Print() in an extension, of exceptions that ended nothing, and an interactive
    Python: a script's has left the outermost frame, which nothing has called.
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
