"""Starts `python ARGUMENTS` as a fork of one warm parent, which has imported torch and oddrank.

So a rank of a test's job starts in a tenth of a second, not in three. torchrun is its own code, but
forks its workers, too. A fork is as good as a fresh interpreter but for its command line in /proc,
and its hash seed, which all forks share.
"""

import ctypes
import importlib.util
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from netns import Host
from oddrank.marker import warm
from patience import PATIENCE

# Variables that Python reads when it starts: their processes must be fresh.
_FRESH = ("PYTHON", "LD_", "TORCH_LOGS", "COVERAGE_")
_PATH = "PYTHONPATH"
_MODULES = (
    *warm.TORCH, "torch.distributed.run", "torch.distributed.elastic.multiprocessing.api",
    "oddrank.__main__", "oddrank.bench.command", "oddrank.selftest.command",
)  # fmt: skip
_NEW_NETWORK, _NEW_NAMES, _NEW_MOUNTS = 0x40000000, 0x04000000, 0x00020000
_PRIVATE, _BIND = 1 << 18 | 1 << 14, 1 << 12


def popen(
    line: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    stdout: Any = None,
    stderr: Any = None,
    text: bool = False,
    host: Host | None = None,
    fresh: bool = False,
) -> Any:
    """Starts a command line as subprocess.Popen does: forked if it is Python's, else as it is.

    It has a session of its own and no input. host: where it runs, if not on this machine. fresh: a
    new interpreter, for settings that torch reads when loaded, such as its log level.
    """
    environ = dict(os.environ if env is None else env)
    line = [str(part) for part in line]
    if fresh or not _can_fork(line, environ):
        return subprocess.Popen(
            [*(host.prefix if host else ()), *line], env=environ, cwd=cwd, text=text,
            stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True,
        )  # fmt: skip
    calls: list[tuple[str, Sequence[Any]]] = [("forked:run_python", [line[1:]])]
    if host is not None:
        calls.insert(0, ("forked:enter", [host.namespace, host.name, host.names]))
    pipes: list[Any] = [None, None]
    with ExitStack() as stack:
        descriptors = [stack.enter_context(open(os.devnull, "rb")).fileno()]
        for number, given in enumerate((stdout, stderr)):
            if given == subprocess.PIPE:
                reads, writes = os.pipe2(os.O_CLOEXEC)
                pipes[number] = open(reads, "r" if text else "rb")  # noqa: SIM115
                stack.callback(os.close, writes)
                descriptors.append(writes)
            elif given == subprocess.STDOUT:
                descriptors.append(descriptors[1])
            elif given == subprocess.DEVNULL:
                descriptors.append(stack.enter_context(open(os.devnull, "wb")).fileno())
            else:
                descriptors.append(number + 1 if given is None else _number(given))
        process: Any = warm.parent(_MODULES, os.environ).fork(
            calls, environ=environ, descriptors=descriptors, argv=[""], cwd=str(cwd or os.getcwd()),
            runs_exit=True,
        )  # fmt: skip
    process.args, (process.stdout, process.stderr) = line, pipes
    process.communicate = partial(_communicate, process)
    return process


def _communicate(process: Any, timeout: float | None = None) -> tuple[Any, Any]:
    """Reads stdout, then stderr; a process that fills both pipes takes run()."""
    said = [pipe and pipe.read() for pipe in (process.stdout, process.stderr)]
    process.wait(PATIENCE.job if timeout is None else timeout)
    return said[0], said[1]


def run(
    line: Sequence[str], *, timeout: float | None = None, text: bool = False, **how: Any
) -> "subprocess.CompletedProcess[Any]":
    """Runs a command line to its end and captures its output, as subprocess.run does."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = popen(line, stdout=out, stderr=err, **how)
        try:
            process.wait(PATIENCE.job if timeout is None else timeout)
        finally:
            process.kill()
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode() if text else file.read())
        return subprocess.CompletedProcess(line, process.returncode, *said)


def _number(file: Any) -> int:
    return file if isinstance(file, int) else int(file.fileno())


def _can_fork(line: Sequence[str], environ: Mapping[str, str]) -> bool:
    special = [name for name in environ if name.startswith(_FRESH) and name != _PATH]
    plain = line[0] == sys.executable and (line[1] in ("-u", "-m", "-c") or line[1][0] != "-")
    return plain and all(environ[name] == os.environ.get(name) for name in special)


def run_python(arguments: Sequence[str]) -> None:
    """Runs the program of `python ARGUMENTS` in this process: [-u] -m MODULE, -c TEXT or a script.

    The program's globals live as long as the process: freed before, they may hang it.
    """
    tests, asked = os.path.dirname(__file__), os.environ.get(_PATH, "").split(os.pathsep)
    own = [path for path in sys.path if not path.startswith(tests) and path not in asked]
    sys.path[:] = [*filter(None, asked), *own]
    if arguments[0] == "-u":
        sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
        arguments = arguments[1:]
    if list(arguments[:2]) == ["-m", "torch.distributed.run"]:
        _fork_workers()
    main = ModuleType("__main__")
    sys.modules["__main__"] = main
    first, rest = arguments[0], list(arguments[1:])
    if first == "-m":
        sys.path.insert(0, os.getcwd())
        name = rest.pop(0)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
        assert spec is not None, name
        code = spec.loader.get_code(spec.name)  # type: ignore[union-attr]
        main.__spec__, main.__package__, path = spec, spec.parent, str(spec.origin)
    elif first == "-c":
        sys.path.insert(0, "")
        path, code = "-c", compile(rest.pop(0), "<string>", "exec")
    else:
        path = first
        sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
        code = compile(Path(path).read_bytes(), path, "exec")
    if path != "-c":
        main.__file__ = path
    sys.argv[:] = [path, *rest]
    try:
        exec(code, main.__dict__)
    except Exception as error:
        if "oddrank.trace.arm" in sys.modules:  # it takes only Python's outermost frame for a death
            sys.modules["oddrank.trace.arm"].note_end(error)
        shown = error.__traceback__
        raise error.with_traceback(shown.tb_next if shown else None)  # noqa: B904


def of_this() -> warm.WarmParent:
    """Forks a warm parent from this process, which must have a single thread."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        warm.serve(theirs)
    theirs.close()
    return warm.WarmParent(ours, pid)


def _fork_workers() -> None:
    """Lets torchrun in this process fork its workers, from a process that has no threads yet."""
    from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

    parent, starts = of_this(), SubprocessHandler._popen

    def fork(handler: Any, line: Sequence[str], environ: Mapping[str, str]) -> Any:
        if not _can_fork(line, environ):
            return starts(handler, line, environ)
        files = [handler._stdout or sys.stdout, handler._stderr or sys.stderr]
        return parent.fork(
            [("forked:run_python", [line[1:]])], environ=environ, argv=[""], cwd=os.getcwd(),
            runs_exit=True, descriptors=[0, *(file.fileno() for file in files)],
        )  # fmt: skip

    SubprocessHandler._popen = fork


# Frames of tests/ would be the user's: stacks shall begin with the script, as they do elsewhere.
for _function in (run_python, of_this, _fork_workers):
    _function.__code__ = _function.__code__.replace(co_filename="<frozen runpy>")


def enter(namespace: str, name: str, names: str) -> None:
    """Moves this process to a host of netns.py, as `Host.prefix` does. Needs root."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(function: str, *arguments: Any) -> None:
        if getattr(libc, function)(*arguments) != 0:
            raise OSError(ctypes.get_errno(), f"{function}{arguments}")

    with open(f"/run/netns/{namespace}", "rb") as file:
        call("setns", file.fileno(), _NEW_NETWORK)
    call("unshare", _NEW_NAMES | _NEW_MOUNTS)
    socket.sethostname(name)
    call("mount", b"none", b"/", None, _PRIVATE, None)
    call("mount", b"sysfs", b"/sys", b"sysfs", 0, None)
    call("mount", names.encode(), b"/etc/hosts", None, _BIND, None)
