"""Starts processes by forking a warm parent, which has imported torch: a rank starts in 20 ms.

The client keeps one warm parent a process. It sends orders with file descriptors; the warm parent
forks a child for each and sends pids and exit codes. It has one thread, never touches CUDA, and
imports nothing of the user's. A child gets the order's environment, folder, descriptors and
session, calls functions, and ends as Python would, but without freeing its objects: torch may hang
there.
"""

import atexit
import ctypes
import gc
import importlib
import json
import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from oddrank import forks, job
from oddrank.errors import OddrankError

_PROGRAM = Path(__file__).with_name("warm_program.py")
TORCH = (
    "torch", "torch.distributed", "torch.nn.parallel",
    # DDP imports these when a model is made.
    "torch._dynamo", "torch.distributed.algorithms.join", "torch.distributed._composable_state",
)  # fmt: skip
# torch and OpenBLAS start threads for these when they are imported.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# Python and libraries read these once: if one has changed, a new warm parent is needed.
_READ_ONCE = ("PYTHON", "LD_", "TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "MALLOC_", "KMP_", "GOMP_")
# Python reads the environment of coverage when it starts.
_COVERAGE = ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
# /proc/PID/environ shows a child the variables that this one holds room for.
_ROOM = "ODDRANK_WARM_ROOM"
_ROOM_BYTES = 48 << 10
_START_SECONDS = 300.0
_FORK_SECONDS = 30.0
_HEADER = 8
_MOST_DESCRIPTORS = 16
_ENDED = "the warm parent has ended"


class Cold(OddrankError):
    """No process can be forked: the warm parent could not be made, or has gone. Says why."""


class Forked:
    """A process that a warm parent has forked, with the interface of subprocess.Popen."""

    def __init__(self, parent: "WarmParent", number: int, pid: int) -> None:
        self.pid, self.parent_pid = pid, parent.pid
        self._parent, self._number = parent, number
        self.returncode: int | None = None

    def peek(self) -> int | None:
        """Returns the exit code, negative for a signal; None while it runs. Keeps its pid."""
        return self._parent.code(self._number)

    def poll(self) -> int | None:
        """Returns as peek() does; if it has ended, its pid may be used again."""
        if self.returncode is None:
            self.returncode = self._parent.code(self._number)
            if self.returncode is not None:
                self._parent.reap(self._number)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        end = time.monotonic() + (math.inf if timeout is None else timeout)
        while (code := self.poll()) is None:
            left = end - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(f"pid {self.pid}", timeout or 0.0)
            self._parent.listen(min(left, 0.5))
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class WarmParent:
    """The client's side of a warm parent. pid: its process."""

    def __init__(self, channel: socket.socket, pid: int, fits: tuple[object, ...] = ()) -> None:
        self._socket, self.pid, self._fits = channel, pid, fits
        self._codes: dict[int, int] = {}
        self._pids: dict[int, int] = {}
        self._count, self._text = 0, b""
        self._ready, self._gone = False, ""

    @classmethod
    def start(cls, modules: Sequence[str], environ: Mapping[str, str]) -> "WarmParent":
        """Starts one. modules: its imports; missing ones are left out."""
        own = {name: text for name, text in environ.items() if name not in _COVERAGE}
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [
                    sys.executable, *subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined]
                    *(str(_PROGRAM), str(theirs.fileno()), *modules),
                    repr([str(path) for path in sys.path]),
                ],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                env={**own, **_ONE_THREAD, _ROOM: " " * _ROOM_BYTES},
                pass_fds=[theirs.fileno()], start_new_session=True,
            )  # fmt: skip
        process.returncode = 0  # close() waits for it
        return cls(ours, process.pid, _fits(modules, environ))

    def fits(self, modules: Sequence[str], environ: Mapping[str, str]) -> bool:
        """Whether it is as one made now would be; so it is, too, if neither can be made."""
        is_usable = not self._gone or not self._ready
        return is_usable and self._fits == _fits(modules, environ)

    def fork(
        self, calls: Sequence[tuple[str, Sequence[Any]]], *, environ: Mapping[str, str],
        descriptors: Sequence[int], argv: Sequence[str], cwd: str, runs_exit: bool = False,
    ) -> Forked:  # fmt: skip
        """Starts a process in a session of its own.

        calls: ("module:function", arguments), one after the other. descriptors: its stdin, stdout
        and stderr, then the ones for arguments "fd:3", "fd:4" and so on. runs_exit:
        it ends by exit(), which runs what C libraries have registered, not by _exit().

        Raises:
            Cold: it can't.
        """
        if not self._hears(lambda: self._ready, _START_SECONDS):
            self._lose(f"the warm parent was not ready after {_START_SECONDS:g} s")
        if self._gone:
            raise Cold(self._gone)
        self._count += 1
        number = self._count
        order = {
            "number": number, "calls": calls, "environ": dict(environ), "argv": list(argv),
            "cwd": cwd, "path": [str(path) for path in sys.path], "runs_exit": runs_exit,
        }  # fmt: skip
        data = json.dumps(order).encode()
        try:
            self._socket.setblocking(True)
            socket.send_fds(self._socket, [len(data).to_bytes(_HEADER, "big")], list(descriptors))
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            self._lose(_ENDED)
        except OSError as error:
            self._lose(str(error))
        if not self._hears(lambda: number in self._pids, _FORK_SECONDS):
            raise Cold(self._gone or "the warm parent did not answer")
        return Forked(self, number, self._pids[number])

    def code(self, number: int) -> int | None:
        self.listen(0.0)
        if self._gone:  # its children have ended with it
            return self._codes.setdefault(number, -signal.SIGKILL)
        return self._codes.get(number)

    def reap(self, number: int) -> None:
        """Frees the pid of a process that has ended: it is in /proc no longer."""
        with suppress(OSError):
            self._socket.setblocking(True)
            self._socket.sendall((number << 1 | 1 << 63).to_bytes(_HEADER, "big"))
            self._hears(lambda: number not in self._pids, _FORK_SECONDS)

    def listen(self, seconds: float) -> None:
        """Reads the parent's messages; waits at most so long for one."""
        if self._gone or not select.select([self._socket], [], [], seconds)[0]:
            return
        data = b""
        with suppress(OSError):
            data = self._socket.recv(1 << 16)
        if not data:
            self._lose(_ENDED)
        *lines, self._text = (self._text + data).split(b"\n")
        for line in lines:
            said = json.loads(line)
            self._ready = self._ready or "ready" in said
            if "cold" in said:
                self._lose(said["cold"])
            if "pid" in said:
                self._pids[said["number"]] = said["pid"]
            elif "code" in said:
                self._codes[said["number"]] = said["code"]
            elif "reaped" in said:
                del self._pids[said["reaped"]]

    def close(self) -> None:
        """Ends it, and with it all its children."""
        self._socket.close()
        self._gone = self._gone or "the warm parent was closed"
        with suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def _hears(self, true: Callable[[], bool], seconds: float) -> bool:
        """Listens until it is true; False if the parent ends first, or says nothing in time."""
        end = time.monotonic() + seconds
        while not (heard := true()) and not self._gone and time.monotonic() < end:
            self.listen(0.5)
        return heard

    def _lose(self, why: str) -> None:
        self._gone = self._gone or why


_parent: WarmParent | None = None


def parent(modules: Sequence[str], environ: Mapping[str, str]) -> WarmParent:
    """Returns this process's warm parent; makes a new one if that does not fit any more."""
    global _parent
    if _parent is None or not _parent.fits(modules, environ):
        end()
        _parent = WarmParent.start(modules, environ)
    return _parent


def end() -> None:
    """Ends this process's warm parent, if there is one."""
    global _parent
    if _parent is not None:
        _parent.close()
        _parent = None


def _fits(modules: Sequence[str], environ: Mapping[str, str]) -> tuple[object, ...]:
    read = {name: text for name, text in environ.items() if name.startswith(_READ_ONCE)}
    return (os.getpid(), tuple(modules), tuple(sorted(read.items())))


# Inside the warm parent

_began_with: dict[str, str] = {}
"""The environment that the kernel shows for it and its children."""


def begin(descriptor: int, modules: Sequence[str]) -> NoReturn:
    """Imports the modules, and serves if it can fork."""
    global _began_with
    _began_with = dict(os.environ)
    channel = socket.socket(fileno=descriptor)
    channel.set_inheritable(False)
    cold = "starting Python starts threads" if _has_threads() else ""
    for module in modules:
        with suppress(ImportError):
            importlib.import_module(module)
        if not cold and _has_threads():
            cold = f"importing {module} starts threads"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        cold = "CUDA is initialised as soon as Python starts"
    if cold:
        _say(channel, cold=cold)
        os._exit(0)
    gc.collect()
    gc.freeze()
    serve(channel)


def _has_threads() -> bool:
    return len(os.listdir("/proc/self/task")) > 1


def serve(channel: socket.socket) -> NoReturn:
    """Forks a child for each order, until the client has gone."""
    _say(channel, ready=True)
    running: dict[int, int] = {}
    ended: dict[int, int] = {}
    wakes, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    sources: list[Any] = [channel, wakes]
    while True:
        readable, _, _ = select.select(sources, [], [])
        if wakes in readable:
            os.read(wakes, 4096)
            for number, pid in list(running.items()):
                seen = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if seen is not None:
                    exited = seen.si_code == os.CLD_EXITED
                    _say(channel, number=number, code=seen.si_status * (1 if exited else -1))
                    ended[number] = running.pop(number)
        if channel not in readable:
            continue
        head, descriptors, _, _ = socket.recv_fds(channel, _HEADER, _MOST_DESCRIPTORS)
        if not head:
            os._exit(0)
        size = int.from_bytes(head + _received(channel, _HEADER - len(head)), "big")
        if size >> 63:  # an order to reap
            number = (size & ~(1 << 63)) >> 1
            os.waitpid(ended.pop(number), 0)
            _say(channel, reaped=number)
            continue
        order = json.loads(_received(channel, size))
        pid = os.fork()
        if pid == 0:
            channel.close()
            _be(order, descriptors)
        running[order["number"]] = pid
        for descriptor in descriptors:
            os.close(descriptor)
        _say(channel, number=order["number"], pid=pid)


def _received(channel: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = channel.recv(size - len(data))
        if not more:
            os._exit(1)
        data += more
    return bytes(data)


def _say(channel: socket.socket, **facts: Any) -> None:
    with suppress(OSError):  # the client has gone: select will report it
        channel.sendall(json.dumps(facts).encode() + b"\n")


# Inside a child


def _be(order: dict[str, Any], descriptors: Sequence[int]) -> NoReturn:
    """Becomes the process that was ordered. Never returns into the warm parent's code."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for number, descriptor in enumerate(descriptors[:3]):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.chdir(order["cwd"])
        _show(order["environ"])
        os.environ.clear()
        os.environ.update(order["environ"])
        forks.begin_anew()
        sys.path[:], sys.argv[:] = order["path"], order["argv"]
        _unlike_its_siblings()
        for where, arguments in order["calls"]:
            module, _, function = where.partition(":")
            given = [
                descriptors[int(one[3:])] if isinstance(one, str) and one.startswith("fd:") else one
                for one in arguments
            ]
            getattr(importlib.import_module(module), function)(*given)
        code = 0
    except SystemExit as error:
        code = _exit_code(error)
    except BaseException as error:
        with suppress(BaseException):
            # As Python does; at the end the recorder reads the cause of death.
            shown = error.__traceback__
            last = (type(error), error, shown and shown.tb_next)
            sys.last_type, sys.last_value, sys.last_traceback = last
            sys.excepthook(*last)
        if isinstance(error, KeyboardInterrupt):
            code = -signal.SIGINT
    finally:
        _leave(code, order["runs_exit"])


def _unlike_its_siblings() -> None:
    """Does the work of a fresh Python's start in each process."""
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdout.reconfigure(line_buffering=os.isatty(1), write_through=unbuffered)  # type: ignore[union-attr]
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdigit() and int(threads) > 1 and (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(int(threads))
    if any(name in os.environ for name in _COVERAGE):
        with suppress(ImportError):
            importlib.import_module("coverage").process_startup()


def _exit_code(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def _leave(code: int, runs_exit: bool) -> NoReturn:
    """Ends as Python does, but frees no objects: gloo joins threads there, with the GIL held."""
    with suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]
    with suppress(BaseException):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(BaseException):
            stream.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    if runs_exit:
        ctypes.PyDLL(None).exit(code)  # holds the GIL: no thread runs Python meanwhile
    os._exit(code)


def _show(environ: Mapping[str, str]) -> None:
    """Writes the variables where /proc/PID/environ shows them: into one variable's room.

    `ps e`, and searches for processes by a variable, shall find them.
    """
    with suppress(OSError, ValueError):
        begin, end = map(int, job.stat_fields(os.getpid())[47:49])
        shown = ctypes.string_at(begin, end - begin)
        at = shown.index(b"\0" + _ROOM.encode() + b"=") + len(_ROOM) + 2
        pairs = [
            f"{name}={text}" for name, text in environ.items() if _began_with.get(name) != text
        ]
        text = "\0".join(["", *pairs, ""]).encode(errors="surrogateescape")
        ctypes.memmove(begin + at, text.ljust(_ROOM_BYTES, b"\0"), _ROOM_BYTES)
