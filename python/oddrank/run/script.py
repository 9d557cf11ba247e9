"""Runs and records an unmodified script or module as `python script.py` or `python -m` do."""

import atexit
import builtins
import functools
import io
import os
import runpy
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import NoReturn

from oddrank import launch
from oddrank.errors import LaunchError, OddrankError
from oddrank.trace.arm import OVERHEAD, Armed, arm_child, note_end
from oddrank.trace.packages import rules

_PROGRAMS = os.path.join(os.path.dirname(__file__), "programs")
_TORCHS_HANDLER = "torch.utils.data._utils.signal_handling"


def script(path: str, arguments: Sequence[str]) -> NoReturn:
    """Runs `path` as __main__ and ends as Python would. OddrankError if it can't be read.

    sys.argv, sys.path[0], __main__, the exit code and tracebacks are as with `python path ...`.
    """
    try:
        with io.open_code(os.path.abspath(path)) as file:
            source = file.read()
    except OSError as error:
        what = f"the script {path!r} can't be read: {error.strerror}"
        raise OddrankError(f"{what}; name a file, or -m and a module") from error
    sys.argv[:] = [path, *arguments]
    path = os.path.abspath(path)
    _lead_path(os.path.dirname(os.path.realpath(path)))
    main = ModuleType("__main__")
    main.__file__ = path
    main.__dict__.update(
        __builtins__=builtins, __loader__=SourceFileLoader("__main__", path), __cached__=None
    )
    if sys.version_info < (3, 14):  # newer ones make it when it is first asked for
        main.__annotations__ = {}
    sys.modules["__main__"] = main

    def run() -> None:
        exec(compile(source, path, "exec"), main.__dict__)

    _run(run)


def module(name: str, arguments: Sequence[str]) -> NoReturn:
    """Does the same as `python -m name ...`."""
    sys.argv[:] = [name, *arguments]
    _lead_path(os.getcwd())
    # `python -m` calls this function; it replaces __main__ in place and sets sys.argv[0].
    main = runpy._run_module_as_main  # type: ignore[attr-defined]
    _run(functools.partial(main, name, alter_argv=True))


def _lead_path(folder: str) -> None:
    """Puts a folder in the place of the one that Python put first: none with -P and -I."""
    if not getattr(sys.flags, "safe_path", sys.flags.isolated):
        sys.path[0] = folder


def _run(body: Callable[[], object]) -> NoReturn:
    Armed(None, OVERHEAD)
    _lead_programs()
    try:
        body()
    except SystemExit as end:
        if isinstance(end.__context__, runpy._Error):  # type: ignore[attr-defined]
            raise OddrankError(f"{end.__context__}; name a module, or leave -m out") from None
        raise
    except BaseException as error:  # print it as Python would, without our frames
        # torch's handler of SIGCHLD raises once more for each further worker that died. No call
        # here: after one Python runs handlers (3.10 before each bytecode, so it may come first).
        try:  # noqa: SIM105
            sys.modules[_TORCHS_HANDLER].__dict__["_error_if_any_worker_fails"] = bool
        except (KeyError, AttributeError):  # no DataLoader was imported
            pass
        note_end(error)
        traceback = error.__traceback__
        while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
            traceback = traceback.tb_next
        error.__traceback__ = traceback
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, traceback
        sys.excepthook(type(error), error, traceback)
        if isinstance(error, KeyboardInterrupt):
            _die_of_interrupt()
        sys.exit(1)
    sys.exit(0)


def _lead_programs() -> None:
    """Has Python programs that the script starts record themselves: they may be its ranks.

    A launcher's ranks start none.
    """
    with suppress(LaunchError):
        if launch.current().world == 1:
            paths = [_PROGRAMS, *filter(None, [os.environ.get("PYTHONPATH")])]
            os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def record_program() -> None:
    """Records this program as a child of the process that started it; see sitecustomize.py."""
    arm_child(rules(None), (0, 0, 1, 0), OVERHEAD)


def _die_of_interrupt() -> None:
    """Ends this process by SIGINT, as Python does, so that its parent sees it.

    Before that Python waits for threads and calls what atexit knows.
    """
    for ends in (threading._shutdown, atexit._run_exitfuncs):  # type: ignore[attr-defined]
        with suppress(KeyboardInterrupt):  # pressed again: it waits no longer
            ends()
    with suppress(Exception):  # the script may have closed it
        sys.stdout.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
