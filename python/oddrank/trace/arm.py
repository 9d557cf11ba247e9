"""Armed: records where this process is, in a file that survives it.

`step`, `mark` and `section`: a training script notes its own progress in that file.
"""

import atexit
import functools
import importlib
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from traceback import walk_tb
from types import ModuleType, TracebackType
from typing import Any, SupportsIndex, TypeVar

from oddrank import _native, job, launch
from oddrank.errors import LaunchError, OddrankError
from oddrank.trace import collectives
from oddrank.trace import packages as packages_
from oddrank.trace.packages import Packages

_DEFAULT_MB = 4
_KEEP_JOBS = 3
_LARGEST = 2**31 - 1
_LONGEST_MESSAGE = 191  # bytes in a record
_LEAST_BEFORE = 100  # of a message, before the message of the exception that it was raised after
_LONGEST_FILE, _LONGEST_NAME, _LONGEST_THREAD = 120, 80, 32  # of the place of an exception
# Modules whose frames a warning skips: also under `with armed:`, a decorator and NicerTrace.run().
_OURS = {"oddrank.trace.arm", "oddrank.trace.nicer", "oddrank.run.arm", "oddrank.run.start"}

OVERHEAD = 0.03  # the share of its CPU time that a process spends on recording at most, by default

Function = TypeVar("Function", bound=Callable[..., Any])


class Armed:
    """The result of arm(): a context manager or a decorator. It may be ignored.

    path: the record file; "" if there is none (no room, or another arm() records already).
    """

    def __init__(self, packages: Packages, overhead: float | None) -> None:
        if overhead is not None and not (isinstance(overhead, float | int) and 0 < overhead <= 1):
            raise OddrankError(f"overhead={overhead!r}: give a share of CPU time, as 0.03, or None")
        self._arguments = (packages, overhead)
        self.path = ""
        self.__enter__()

    def remove(self) -> None:
        """Removes the hooks; the record stays readable. A second call does nothing."""
        if not self.path:
            return
        self.path = ""
        core = _native.core()
        if core.trace_object() is not None and threading.gettrace() is core.trace_object():
            threading.settrace(None)
        core.trace_disarm()
        _tell_children(None)

    def __enter__(self) -> "Armed":
        if not self.path:
            packages, overhead = self._arguments
            rules = packages_.rules(packages)
            self.path = _begin(rules, _place(), is_child=is_worker(), overhead=overhead or 0.0)
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()

    def __call__(self, function: Function) -> Function:
        """Decorates `function`: armed while it runs."""
        import inspect

        self.remove()
        kinds = (inspect.isgeneratorfunction, inspect.iscoroutinefunction,
                 inspect.isasyncgenfunction)  # fmt: skip
        if any(is_one(function) for is_one in kinds):  # it runs after its call has returned
            raise OddrankError(
                f"@oddrank.arm: {function.__qualname__} is a generator or a coroutine: put"
                " `with oddrank.arm():` into it"
            )

        @functools.wraps(function)
        def armed(*args: Any, **kwargs: Any) -> Any:
            with Armed(*self._arguments):
                return function(*args, **kwargs)

        return armed  # type: ignore[return-value]


class _ArmChild:
    """Arms spawned children: it is pickled with their Process object, and unpickling it arms."""

    def __init__(self, *state: Any) -> None:
        self._state = state

    def __reduce__(self) -> tuple[Any, ...]:
        return (arm_child, self._state)


def arm_child(
    packages: list[tuple[str, str]], place: tuple[int, int, int, int], overhead: float
) -> _ArmChild:
    _begin(packages, place, is_child=True, overhead=overhead)
    return _ArmChild(packages, place, overhead)


def _begin(
    made: list[tuple[str, str]], place: tuple[int, int, int, int], is_child: bool, overhead: float
) -> str:
    """Returns the record's path; "" if there is no room, or another arm() records already."""
    core = _native.core()
    if core.trace_armed():
        return ""
    megabytes = _megabytes()
    folders = [str(folder) for folder in job.base_folders()]
    stdlib, installed = packages_.roots()
    # Variables that a script sets for its ranks, as MASTER_PORT, make no other job of them.
    name = (is_child and os.environ.get(job.INHERITED)) or job.job_name()
    if not is_child:
        for folder in folders:
            core.trace_remove_dead_jobs(folder, name, _KEEP_JOBS)
    # Bytes that are no UTF-8 are surrogates in it, which no record holds.
    arguments = " ".join(getattr(sys, "argv", ())).encode(errors="backslashreplace").decode()
    try:
        path: str = core.trace_arm(
            folders, name, int(megabytes * (1 << 20)), place, is_child,
            os.uname().nodename, arguments, made, stdlib, installed, overhead,
        )  # fmt: skip
    except OddrankError as error:
        warn(f"oddrank records nothing: {error}")
        return ""
    wanted = os.environ.get("ODDRANK_DIR")
    if wanted and not is_child and not Path(path).is_relative_to(Path(wanted).absolute()):
        warn(
            f"oddrank cannot use ODDRANK_DIR={wanted}: the folder must have room, and only you may"
            f" write to it. The record is {path}"
        )
    hook = core.trace_object()
    if hook is not None:
        if threading.gettrace() is None:  # else another tool has set one
            threading.settrace(hook)
        if sys.gettrace() is not hook:
            warn(f"oddrank records no lines: sys.settrace() belongs to {sys.gettrace()!r}")
        _quiet_imports()
    os.environ[job.INHERITED] = name
    collectives.start_with_torch(speaks=place[1] == 0 and not is_child)
    _count_steps()
    _watch_end()
    _tell_children(_ArmChild(made, place, overhead))
    return path


@functools.cache
def _quiet_imports() -> None:
    """Imports installed modules without events, which cost a fifth of the time of an import."""
    own, name = vars(importlib._bootstrap), "_call_with_frames_removed"
    own[name] = _native.core().trace_quiet_imports(own[name])


def _tell_children(arms: _ArmChild | None) -> None:
    """Puts `arms` into multiprocessing's configuration, which children inherit."""
    from multiprocessing import process

    configuration = getattr(process.current_process(), "_config", None)
    if isinstance(configuration, dict):
        configuration.pop("oddrank", None)
        if arms is not None:
            configuration["oddrank"] = arms


def is_worker() -> bool:
    """Returns whether multiprocessing started this process, and it is no rank of its own.

    Ranks of mp.spawn have given themselves a RANK; workers that load data inherit their rank's.
    While a spawned child imports its parent's script, parent_process() is not set yet.
    """
    process = sys.modules.get("multiprocessing.process")
    if process is None:
        return False
    if getattr(process.current_process(), "_inheriting", False):
        return True
    if process.parent_process() is None:
        return False
    try:
        inherited = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return True
    own = [name + b"=" + os.environb.get(name, b"") for name in (b"RANK", b"WORLD_SIZE")]
    return b"RANK" not in os.environb or all(each in inherited for each in own)


def _place() -> tuple[int, int, int, int]:
    """Returns (rank, local rank, world, node). Wrong values of a launcher raise nothing."""
    try:
        here = launch.current()
    except LaunchError as error:
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK")
        said = tuple(os.environ.get(name, "") for name in names)
        rank, local_rank, world, node = (
            min(int(text), _LARGEST) if text.isdecimal() else 0 for text in said
        )
        warn(f"oddrank records this process as rank {rank}: {error}")
        return rank, local_rank, max(world, 1), node
    return here.rank, here.local_rank, here.world, here.node


def _megabytes() -> float:
    text = os.environ.get("ODDRANK_TRACE_MB") or str(_DEFAULT_MB)
    with suppress(ValueError):
        if 0.125 <= (megabytes := float(text)) <= 1024:
            return megabytes
    warn(f"ODDRANK_TRACE_MB={text!r} is no size of 0.125 to 1024 MiB: {_DEFAULT_MB} is taken")
    return float(_DEFAULT_MB)


@functools.cache
def _watch_end() -> None:
    """Notes in the record that the script has ended, and which exception ended it.

    Registers that once per process; forked children inherit it and have own records. Does not touch
    sys.excepthook: Python keeps the exception that ended a script, and has it when it begins to
    shut down, before it waits for threads. So the record of a rank that failed and hangs in that
    wait has the exception. The compiled core notes the code of exit().
    """
    # As concurrent.futures does: runs before Python waits for threads, and in children of
    # multiprocessing too, which end by os._exit() without atexit functions.
    register = getattr(threading, "_register_atexit", atexit.register)
    with suppress(RuntimeError):  # Python is shutting down already
        register(_script_has_ended)
    atexit.register(pause := _native.core().trace_pause_sampler)
    os.register_at_fork(before=pause, after_in_parent=_native.core().trace_resume_sampler)
    if sys.version_info < (3, 13):  # later versions do not pass the exception on
        collectives.after_import("multiprocessing.util", _watch_children)
    earlier = threading.excepthook

    def note_thread(how: threading.ExceptHookArgs) -> None:
        """Notes what ended a thread: the script may wait for it for ever."""
        with suppress(Exception):
            name = how.thread.name[:_LONGEST_THREAD] if how.thread is not None else ""
            if how.exc_type is not SystemExit:
                at = f"thread {name}\n{_place_of(how.exc_traceback)}"
                name, first = _name(how.exc_type), _first_line(how.exc_value)
                _native.core().trace_raised(name, first, at, False)
        earlier(how)

    threading.excepthook = note_thread


def _watch_children(util: ModuleType) -> None:
    """Has children of multiprocessing note which exception ends them.
    It is no longer known when Python shuts down, as multiprocessing prints it."""

    def watch(_: object = None) -> None:
        util.Finalize(None, _child_ends, exitpriority=0)

    util.register_after_fork(_child_ends, watch)  # forked ones forget earlier callbacks
    watch()


def _child_ends() -> None:
    raised = sys.exc_info()[1]
    if isinstance(raised, SystemExit):  # torch hands over what a rank raised, and exits
        raised = raised.__context__ if raised.code == 1 else None
    if raised is not None:
        note_end(raised)


def note_end(raised: BaseException | None) -> None:
    """Notes in the record that the script has ended, by this exception or (None) by itself."""
    with suppress(Exception):  # nothing may disturb the shutdown
        name = _name(type(raised)) if raised is not None else ""
        now = f" {time.time():.6f}"
        at = _place_of(raised.__traceback__, now) if raised is not None else ""
        _native.core().trace_raised(name, _first_line(raised), at, True)


def _place_of(traceback: TracebackType | None, then: str = "") -> str:
    """Returns line and then, function and file of the innermost frame of own code, or any."""
    with suppress(Exception):  # a script may have put anything there
        found = list(walk_tb(traceback))
        others = tuple(folder for folders in packages_.roots() for folder in folders)
        own = [one for one in found if not one[0].f_code.co_filename.startswith((*others, "<"))]
        frame, line = (own or found)[-1]
        code = frame.f_code
        file = code.co_filename.encode(errors="replace")[-_LONGEST_FILE:].decode(errors="replace")
        name = getattr(code, "co_qualname", code.co_name)[:_LONGEST_NAME]
        return f"{line}{then}\n{name}\n{file}".encode(errors="replace").decode()
    return ""


def _first_line(raised: BaseException | None) -> str:
    """Returns its message's first line, and the one of the exception before it, if any; or "".
    torch raises a worker's exception again, with its traceback as message: the last line counts."""
    with suppress(Exception):
        text = str(raised if raised is not None else "").strip()
        first, _, traceback = text.partition("\nOriginal Traceback (most recent call last):\n")
        text = first.partition("\n")[0]
        if traceback:
            where = text.partition(" in ")[2].rstrip(".")
            text = f"{traceback.rpartition(chr(10))[2].partition(': ')[2]} (in {where})"
        hides = raised is not None and raised.__suppress_context__
        cause = raised and (raised.__cause__ if hides else raised.__context__)
        if cause is not None and (why := str(cause).strip().partition("\n")[0]):
            after = f"after {_name(type(cause))}: {why}"
            room = max(_LONGEST_MESSAGE - len(f", {after}".encode(errors="replace")), _LEAST_BEFORE)
            text = f"{text[:room]}, {after}" if text else after
        return text.encode(errors="replace").decode()
    return ""


def _script_has_ended() -> None:
    """Notes the exception that ended the script, which Python keeps after printing it.

    PyErr_Print() in an extension and an interactive Python keep theirs too, though it ended
    nothing. Only a script's exception has left the outermost frame, which has no caller.
    """
    raised = None
    with suppress(Exception):  # they may hold anything
        error, traceback = sys.last_value, sys.last_traceback
        is_scripts = traceback is not None and traceback.tb_frame.f_back is None
        if is_scripts and not hasattr(sys, "ps1") and isinstance(error, BaseException):
            raised = error
    note_end(raised)


def _name(kind: type[BaseException]) -> str:
    module = kind.__module__
    return (
        kind.__qualname__ if module in {"builtins", "__main__"} else f"{module}.{kind.__qualname__}"
    )


def warn(message: str) -> None:
    """Warns (RuntimeWarning) at the innermost line outside these modules. Prints the message alone
    if that line is oddrank's own, as under `oddrank run`."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__") in _OURS:
        level, frame = level + 1, frame.f_back
    if str(frame.f_globals.get("__name__")).startswith("oddrank."):
        from oddrank import render

        render.line(f"oddrank: {message.removeprefix('oddrank ')}", sys.stderr)
    else:
        warnings.warn(message, RuntimeWarning, stacklevel=level)


step: Callable[[SupportsIndex], None] = _native.core().step
mark: Callable[[str], None] = _native.core().mark
section: "Callable[[str], AbstractContextManager[object, None]]" = _native.core().section

_stepping: "weakref.WeakSet[object]" = weakref.WeakSet()  # the optimizer whose steps count


def _stepped(optimizer: object, *_: object) -> None:
    """Counts the steps of one optimizer, for scripts that never call step()."""
    if not _stepping:
        _stepping.add(optimizer)
    if optimizer in _stepping:
        _native.core().count_step()


@functools.cache
def _count_steps() -> None:
    collectives.after_import(
        "torch.optim.optimizer", lambda torchs: torchs.register_optimizer_step_post_hook(_stepped)
    )


def _let_compile(dynamo_config: ModuleType) -> None:
    """Makes torch.compile keep step() and mark() in its graph; a section breaks the graph."""
    dynamo_config.ignore_logging_functions.update((step, mark, _stepped))


collectives.after_import("torch._dynamo.config", _let_compile)
