"""Starts the ranks of a test, and holds the parent's view of each: its messages, its end."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from _pytest.config import default_plugins

from oddrank import job
from oddrank.launch.launchers import LAUNCHERS
from oddrank.marker import leftovers, warm
from oddrank.marker.protocol import MOST_TEXT
from oddrank.marker.warm import Forked

_START = (
    "import sys; sys.path[:] = eval(sys.argv.pop());"
    " from oddrank.marker import rank_process; rank_process.main(int(sys.argv[1]))"
)
# Modules that every rank imports, besides torch.
_WARM = (
    "oddrank.marker.rank_process", "oddrank.marker.plugin", "oddrank.trace.arm",
    *(f"_pytest.{name}" for name in default_plugins),
)  # fmt: skip
_NEEDED = 32 << 20  # bytes that must be free in /dev/shm for each record there
TOKEN = uuid.uuid4().hex
"""All processes that this process's ranks start inherit it."""
_CHUNK = 1 << 16
_MOST_CHUNKS = 16  # read at a time: others write too
_MOST_MESSAGES = 32 << 20
_HEAD = MOST_TEXT // 4
_TAIL = MOST_TEXT - _HEAD


class Fresh(subprocess.Popen[bytes]):
    """A rank's process with an interpreter of its own."""

    def peek(self) -> int | None:
        """Returns the exit code, negative for a signal; None while it runs. Keeps its pid."""
        try:
            seen = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # somebody else has reaped it
            return 0
        if seen is None:
            return None
        return seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status


class Captured:
    """The beginning and the end of a rank's output. live: each line is printed at once."""

    def __init__(self, live: str = "") -> None:
        self._head, self._tail = bytearray(), bytearray()
        self._count = 0
        self._live, self._line = live, bytearray()

    def add(self, data: bytes) -> None:
        self._count += len(data)
        room = _HEAD - len(self._head)
        self._head += data[: max(room, 0)]
        self._tail += data[max(room, 0) :]
        if len(self._tail) > 4 * _TAIL:
            del self._tail[:-_TAIL]
        if self._live:
            *lines, rest = (bytes(self._line) + data).split(b"\n")
            self._line = bytearray(rest[-MOST_TEXT:])
            for line in lines:
                print(f"[{self._live}] {line.decode(errors='replace')}", flush=True)

    def text(self) -> str:
        tail = bytes(self._tail[-_TAIL:])
        left_out = self._count - len(self._head) - len(tail)
        middle = f"\n... {left_out} bytes left out ...\n".encode() if left_out else b""
        return (bytes(self._head) + middle + tail).decode(errors="replace")


@dataclass
class Rank:
    """A rank. code: its exit status, negative for a signal; None while it runs.

    pipes: the descriptors from which its stdout and stderr are read; none if it has the terminal.
    """

    number: int
    process: Fresh | Forked
    channel: socket.socket
    out: Captured
    err: Captured
    pipes: dict[int, Captured]
    stacks: Path
    """The file for the stacks that it writes when it is asked for them."""
    phases: list[dict[str, Any]] = field(default_factory=list)
    """Its pytest's reports of setup, call and teardown, until the verdict is made."""
    after: list[dict[str, Any]] = field(default_factory=list)
    """Later reports: mostly it lost a rank that could go on because of the verdict."""
    lost: dict[str, Any] | None = None
    """Why its pytest never ran the test."""
    left: dict[str, Any] | None = None
    """pytest.exit(), or KeyboardInterrupt, in the test."""
    warnings: list[dict[str, Any]] = field(default_factory=list)
    passed: set[str] = field(default_factory=set)
    """ready: it can write its stacks. begins: it has imported what it needs, and begins the test
    with its fixtures. debugs: a person has a debugger in it. And points that it held at."""
    holds: str = ""
    """The point at which it waits for the others."""
    code: int | None = None
    ended: float | None = None
    """Unix time at which the parent noticed its end."""
    dump: str = ""
    """Its stacks when the verdict was made."""
    was_running: bool = False
    """Neither its end nor a point to wait at had come when the verdict was made."""
    _buffer: bytearray = field(default_factory=bytearray)
    _received: int = 0

    @property
    def has_failed(self) -> bool:
        return self.lost is not None or any(map(is_failure, self.phases))

    @property
    def has_died(self) -> bool:
        """It ended in a way that its pytest did not choose."""
        return self.code is not None and (self.code != 0 or "end" not in self.passed)

    def hear(self) -> bool:
        """Reads its messages. Returns whether more may come."""
        for _ in range(_MOST_CHUNKS):
            try:
                data = self.channel.recv(_CHUNK)
            except BlockingIOError:
                return True
            except OSError:
                data = b""
            if not data:
                self.ended = self.ended or time.time()
                return False
            self._received += len(data)
            if self._received > _MOST_MESSAGES:
                continue
            self._buffer += data
            *lines, rest = self._buffer.split(b"\n")
            self._buffer = bytearray(rest)
            for line in lines:
                with suppress(ValueError, KeyError, TypeError):  # the test wrote to our socket
                    self._heard(json.loads(line))
        return True

    def _heard(self, said: dict[str, Any]) -> None:
        kind = said["kind"]
        if kind in ("ready", "begins", "debugs"):
            self.passed.add(kind)
        elif kind == "hold":
            self.holds = said["at"]
        elif kind == "phase":
            (self.after if self.was_running else self.phases).append(said)
        elif kind == "lost":
            self.lost = self.lost or said
        elif kind == "left":
            self.left = said
        elif kind == "warning":
            self.warnings.append(said)

    def release(self) -> None:
        """Lets it go on from the point at which it holds."""
        self.passed.add(self.holds)
        self.holds = ""
        with suppress(OSError):
            self.channel.send(b"\n")

    def look(self) -> None:
        """Notices its end. Does not reap it: its pid, its session's id, must not be reused yet."""
        code = self.process.peek()
        if code is None:
            return
        self.ended = self.ended or time.time()
        self.hear()
        self.code = code

    def cpu_ticks(self) -> int:
        """Returns the CPU time it has used; -1 if its main thread is about to use more."""
        if not (fields := job.stat_fields(self.process.pid)):
            return 0
        return -1 if fields[0] in "RD" else int(fields[11]) + int(fields[12])

    def close(self) -> None:
        """Reaps it, and closes its channel and pipes after a last read."""
        with suppress(subprocess.TimeoutExpired):  # in D state: the kernel keeps it
            self.process.wait(2.0)
        for pipe, captured in self.pipes.items():
            drain(pipe, captured)
            os.close(pipe)
        self.channel.close()


def is_failure(phase: dict[str, Any]) -> bool:
    """Returns whether a report is a failure of the rank itself.

    One without an exception says that an expected failure passed: only the parent can judge that.
    """
    return phase["outcome"] == "failed" and bool(phase["error"] or not phase["whole"])


def drain(pipe: int, captured: Captured) -> bool:
    """Reads a pipe's content. Returns whether more may come."""
    for _ in range(_MOST_CHUNKS):
        try:
            data = os.read(pipe, _CHUNK)
        except BlockingIOError:
            return True
        if not data:
            return False
        captured.add(data)
    return True


@dataclass(frozen=True)
class Place:
    """Shared by the ranks of one test: a port of their own, and folders.

    base: has `shared` and a folder for each rank; records: for the records and stacks.
    """

    port: int
    base: Path
    records: Path


@contextmanager
def place(config: pytest.Config) -> Iterator[Place]:
    """Makes the place, and removes it at the end; pytest keeps its own temporary folders."""
    with ExitStack() as stack:
        # A bound socket that does not listen keeps a port for rank 0: the kernel gives it to no
        # other process. Servers that set SO_REUSEADDR can still bind it.
        holder = stack.enter_context(socket.socket())
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("", 0))
        port = int(holder.getsockname()[1])
        records = Path(_records_folder())
        stack.callback(shutil.rmtree, records, ignore_errors=True)
        keeper = _keeper()
        with suppress(OSError):
            if keeper.stdin is not None:
                keeper.stdin.write(os.fsencode(records) + b"\0")
                keeper.stdin.flush()
        factory = getattr(config, "_tmp_path_factory", None)
        if factory is not None:
            base = Path(factory.mktemp("ranks"))
        else:  # without pytest's plugin for temporary folders
            base = Path(tempfile.mkdtemp(prefix="oddrank-ranks-"))
            stack.callback(shutil.rmtree, base, ignore_errors=True)
        (base / "shared").mkdir()
        yield Place(port, base, records)


def start(
    number: int, count: int, item: pytest.Function, deadline: float, place: Place, *,
    debug: bool, fresh: bool,
) -> Rank:  # fmt: skip
    """Starts one rank. debug: it gets the terminal. fresh: an interpreter of its own, not a fork.

    Raises:
        warm.Cold: it can't be forked.
    """
    config = item.config
    live = f"rank {number}" if config.getoption("capture", "fd") == "no" else ""
    out, err, pipes = Captured(live), Captured(live), {}
    environ, cwd = _environment(number, count, place), str(config.invocation_params.dir)
    ours, theirs = socket.socketpair()
    with ExitStack() as stack:
        stack.enter_context(theirs)
        ends: list[int] = [0, 1, 2]
        if not debug:
            ends[0] = os.open(os.devnull, os.O_RDONLY)
            for index, captured in enumerate((out, err), 1):
                pipe, ends[index] = os.pipe2(os.O_CLOEXEC)
                os.set_blocking(pipe, False)
                pipes[pipe] = captured
            for end in ends:
                stack.callback(os.close, end)
        try:
            process = (
                _start_fresh([*ends, theirs.fileno()], cwd, environ, debug=debug)
                if fresh
                else _fork([*ends, theirs.fileno()], cwd, environ, item)
            )
        except BaseException:
            for pipe in pipes:
                os.close(pipe)
            ours.close()
            raise
    stacks = place.records / f"stacks{number}"
    plan = {
        "rank": number, "world": count, "deadline": deadline, "debug": debug,
        "args": _arguments(config), "argv": sys.argv,
        "parent": process.parent_pid if isinstance(process, Forked) else os.getpid(),
        "nodeid": item.nodeid, "file": str(item.path), "stacks": str(stacks),
        "folder": str(place.base / "shared"), "basetemp": str(place.base / f"rank{number}"),
        "workerinput": _plain(getattr(config, "workerinput", {"workerid": "master"})),
    }  # fmt: skip
    with suppress(OSError):  # it has ended already
        ours.sendall(json.dumps(plan).encode() + b"\n")
    ours.setblocking(False)
    return Rank(number, process, ours, out, err, pipes, stacks)


def _start_fresh(
    descriptors: Sequence[int], cwd: str, environ: dict[str, str], *, debug: bool
) -> Fresh:
    *ends, channel = descriptors
    return Fresh(
        [
            sys.executable,
            *subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined]
            *("-c", _START, str(channel), repr([str(path) for path in sys.path])),
        ],
        stdin=ends[0], stdout=ends[1], stderr=ends[2], cwd=cwd, env=environ,
        pass_fds=[channel],
        start_new_session=not debug,  # in another session it could not read the terminal
    )  # fmt: skip


def _fork(
    descriptors: Sequence[int], cwd: str, environ: dict[str, str], item: pytest.Function
) -> Forked:
    takes_torch = "torch" in sys.modules or "process_group" in item.fixturenames
    modules = (*_WARM, *(warm.TORCH if takes_torch else ()))
    return warm.parent(modules, _plain_environment()).fork(
        [("oddrank.marker.rank_process:main", ["fd:3"])],
        environ=environ, descriptors=descriptors, argv=sys.argv, cwd=cwd,
    )  # fmt: skip


def _plain(values: Any) -> dict[str, Any]:
    """Returns the values that JSON can hold."""
    found = {}
    for name, value in dict(values).items():
        with suppress(TypeError, ValueError):
            json.dumps(value)
            found[name] = value
    return found


def _arguments(config: pytest.Config) -> list[str]:
    """Returns this pytest's own arguments. So a rank has the same options, plugins and conftests.

    It runs the wanted test alone all the same (rank_process).
    """
    args = [str(arg) for arg in config.invocation_params.args]
    at = args.index("--") if "--" in args else len(args)
    args[at:at] = ["--capture=no"]  # the parent captures, even if the rank dies
    if config.pluginmanager.hasplugin("pytest_cov"):
        args[at:at] = ["--no-cov"]  # its data would take the place of the parent's
    return args


def _plain_environment() -> dict[str, str]:
    """Returns the environment of all ranks: variables of a process that is no rank."""
    environ = dict(os.environ)
    for row in LAUNCHERS:  # pytest itself may be a rank, or run in a step of SLURM
        for name in f"{row.mark} {row.rank} {row.local_rank} {row.world} {row.node}".split():
            environ.pop(name, None)
    environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    environ.setdefault("OMP_NUM_THREADS", "1")
    if os.path.exists("/sys/class/net/lo"):
        environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all ranks are on this host
    return environ


def _environment(number: int, count: int, place: Place) -> dict[str, str]:
    return _plain_environment() | {
        "RANK": str(number), "LOCAL_RANK": str(number), "GROUP_RANK": "0",
        "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(place.port),
        "ODDRANK_DIR": str(place.records), leftovers.VARIABLE.format(TOKEN): "1",
    }  # fmt: skip


def _records_folder() -> str:
    """Makes a folder for the records, in memory if there is room."""
    prefix = f"oddrank-ranks-{os.getpid()}-"
    with suppress(OSError):
        room = os.statvfs("/dev/shm")
        if room.f_bavail * room.f_frsize > 4 * _NEEDED:
            return tempfile.mkdtemp(prefix=prefix, dir="/dev/shm")
    return tempfile.mkdtemp(prefix=prefix)


@cache
def _keeper() -> "subprocess.Popen[bytes]":
    """Starts the process that ends all ranks if this one is killed."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", leftovers.__file__, TOKEN],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip


def end_helpers() -> None:
    """Ends the warm parent and the keeper, if they are there: pytest ends, and no rank is left."""
    warm.end()
    if _keeper.cache_info().currsize:
        with suppress(OSError, subprocess.TimeoutExpired):
            _keeper().communicate(timeout=5.0)
        _keeper.cache_clear()
