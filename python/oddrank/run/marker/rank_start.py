"""Starts the ranks of a test: their port, folders, environment and plan; and the keeper."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from _pytest.config import default_plugins

from oddrank.launch.launchers import LAUNCHERS
from oddrank.run.marker import leftovers, warm
from oddrank.run.marker.one_rank import Captured, Fresh, Rank
from oddrank.run.marker.warm import Forked

_START = (
    "import sys; sys.path[:] = eval(sys.argv.pop());"
    " from oddrank.run.marker import rank_process; rank_process.main(int(sys.argv[1]))"
)
# What every rank imports, besides torch.
_WARM = (
    "oddrank.run.marker.rank_process", "oddrank.run.pytest_plugin", "oddrank.trace.arm",
    *(f"_pytest.{name}" for name in default_plugins),
)  # fmt: skip
_NEEDED = 32 << 20  # bytes that must be free in /dev/shm for each record there
TOKEN = uuid.uuid4().hex
"""All processes that this process's ranks start inherit it."""


@dataclass(frozen=True)
class Place:
    """What the ranks of one test share: a port of their own, and folders.

    base: has `shared` and a folder for each rank; records: for the records and stacks.
    """

    port: int
    base: Path
    records: Path


@contextmanager
def place(config: pytest.Config) -> Iterator[Place]:
    """Makes the place, and removes it at the end; pytest keeps its own temporary folders."""
    with ExitStack() as stack:
        port = stack.enter_context(_reserved_port())
        records = Path(_records_folder())
        stack.callback(shutil.rmtree, records, ignore_errors=True)
        _tell_keeper(str(records))
        factory = getattr(config, "_tmp_path_factory", None)
        if factory is not None:
            base = Path(factory.mktemp("ranks"))
        else:  # without pytest's plugin for temporary folders
            base = Path(tempfile.mkdtemp(prefix="oddrank-ranks-"))
            stack.callback(shutil.rmtree, base, ignore_errors=True)
        (base / "shared").mkdir()
        yield Place(port, base, records)


def start(
    number: int,
    count: int,
    item: pytest.Function,
    deadline: float,
    place: Place,
    *,
    debug: bool,
    fresh: bool,
) -> Rank:
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
        start_new_session=not debug,  # of another session it could not read the terminal
    )  # fmt: skip


def _fork(
    descriptors: Sequence[int], cwd: str, environ: dict[str, str], item: pytest.Function
) -> Forked:
    takes_torch = "torch" in sys.modules or "process_group" in item.fixturenames
    modules = (*_WARM, *(warm.TORCH if takes_torch else ()))
    return warm.parent(modules, _plain_environment()).fork(
        [("oddrank.run.marker.rank_process:main", ["fd:3"])],
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
    args[at:at] = ["--capture=no"]  # the parent captures, whatever becomes of the rank
    if config.pluginmanager.hasplugin("pytest_cov"):
        args[at:at] = ["--no-cov"]  # its data would take the place of the parent's
    return args


def _plain_environment() -> dict[str, str]:
    """Returns what all ranks have in their environment: that of a process that is no rank."""
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


@contextmanager
def _reserved_port() -> Iterator[int]:
    """Yields a port at which rank 0 can listen, and that the kernel gives to nobody else.

    A bound socket that does not listen keeps it. Servers that set SO_REUSEADDR can still bind it.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("", 0))
        yield int(holder.getsockname()[1])


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


def _tell_keeper(folder: str) -> None:
    stdin = _keeper().stdin
    with suppress(OSError):
        if stdin is not None:
            stdin.write(os.fsencode(folder) + b"\0")
            stdin.flush()


def end_helpers() -> None:
    """Ends the warm parent and the keeper, if they are there: pytest ends, and no rank is left."""
    warm.end()
    if _keeper.cache_info().currsize:
        with suppress(OSError, subprocess.TimeoutExpired):
            _keeper().communicate(timeout=5.0)
        _keeper.cache_clear()
