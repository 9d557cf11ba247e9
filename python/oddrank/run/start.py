"""Starts this rank's guard, and on rank 0 the judge: processes that outlive it, not its children.

The rank keeps nothing of them: no child, thread, descriptor, signal handler or page. Whatever fails
here is one warning, and the job runs unwatched.
"""

import fcntl
import json
import os
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oddrank import _native, job, launch
from oddrank.control.address import (
    ADDRESS,
    fetcher,
    leave_address,
    listen,
    path_under,
    python_command,
)
from oddrank.errors import OddrankError
from oddrank.run.options import REPORT, Options
from oddrank.trace import device_times
from oddrank.trace.arm import warn

FOREVER = 10 * 365 * 86400.0
"""Rank 0 may import torch for long before its store comes. A guard that asks ends with the job."""
_PROGRAM = "oddrank-guard"
_TO_DETACH = 120.0  # seconds that a guard may take until it runs by itself
# Resolves how long this job's own pauses are. A guard looks once a second.
_MOST_QUIET, _LEAST_QUIET, _STALLS_PART = 5.0, 1.0, 0.1
_JUDGE = python_command("from oddrank.run.judge import main; main(sys.argv[1:])")
_COLLECT = python_command("from oddrank.collect.command import for_guard; for_guard(*sys.argv[1:])")
# A guard reads only what a command prints: what fails must be there, too.
_ALL_OUTPUT = ("/bin/sh", "-c", 'exec "$@" 2>&1', "sh")
# A shell's background process: its parent is gone at once, as a forked child of a fork.
_DETACHED = ("/bin/sh", "-c", '"$@" &', "sh")


@dataclass(frozen=True)
class Settings:
    """The judge's settings. pid, started: of rank 0's process."""

    pid: int
    started: int
    world: dict[str, Any]
    """As Launch.as_world()."""
    host: str
    folders: list[str]
    """Those that may hold the job's records on this host."""
    file: str
    """The rendezvous file; "": none."""
    options: dict[str, Any]
    """As of Options; paths are absolute."""
    restart: int
    publish: bool
    """Other guards find the address by torch's store."""
    cwd: str
    """The working folder of rank 0's process."""

    @property
    def job(self) -> str:
        return Path(self.folders[0]).name


@dataclass(frozen=True)
class GuardOptions:
    """A guard's settings: the fields of WatchOptions in csrc/run/program_guard.cpp."""

    pid: int
    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1
    node: int = 0
    quiet_ms: int = 5000
    host: str = ""
    launcher: str = ""
    address: str = ""
    """The root's address, for its own guard, or given by the user; "": to be found."""
    rendezvous_file: str = ""
    fetcher: Sequence[str] = ()
    records: Sequence[str] = ()
    collector: Sequence[str] = ()

    def packed(self) -> bytes:
        """Returns what the guard reads from its stdin."""
        return b"".join(map(_packed, vars(self).values()))


def _packed(value: int | str | Sequence[str]) -> bytes:
    if isinstance(value, int):
        return struct.pack("<i", value)
    if isinstance(value, str):
        data = os.fsencode(value)
        return struct.pack("<I", len(data)) + data
    return struct.pack("<I", len(value)) + b"".join(map(_packed, value))


def store_key(restart: int) -> str:
    """Returns the key in torch's store under which guards find rank 0's address."""
    return f"oddrank/run/{restart}"


def begin(options: Options) -> None:
    """Watches this process from here on, as one rank of its job. Call it before the training."""
    try:
        here = launch.current()
        if options.report_every:
            os.environ[device_times.EVERY] = str(options.report_every / 2)
        restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        address = os.environ.get(ADDRESS, "")
        # Ranks that no launcher started may have nothing else in common, on one host too.
        by_store = here.world > 1 and (here.nodes > 1 or not here.one_parent)
        settings = Settings(
            pid=os.getpid(),
            started=job.start_time(os.getpid()),
            world=here.as_world(),
            host=here.host,
            folders=[str(base / job.job_name()) for base in job.base_folders()],
            file=path_under(job.job_folder(), f"run-{restart}"),
            options=asdict(options.absolute()),
            restart=int(restart) if restart.isdecimal() else 0,
            publish=by_store and not address,
            cwd=os.getcwd(),
        )
        if here.rank == 0:
            listener, of_all, address = listen(address)
            try:
                leave_address(settings.file, of_all)
                _start_judge(settings, of_all, listener)
            finally:
                os.close(listener)
        _start_guard(here, settings, address)
    except (OddrankError, OSError, subprocess.TimeoutExpired) as error:
        warn(f"oddrank does not watch this rank: {error}")


def _start_judge(settings: Settings, address: str, listener: int) -> None:
    """Starts a program that detaches itself, and waits for its first process to end."""
    # A rank without stdin or stdout has it there, where the judge has nothing.
    listener = fcntl.fcntl(listener, fcntl.F_DUPFD_CLOEXEC, 3)
    try:
        done = subprocess.run(
            [*_DETACHED, *_JUDGE, str(listener), json.dumps(asdict(settings))],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[listener],
            env={**os.environ, ADDRESS: address}, start_new_session=True, check=False,
        )  # fmt: skip
    finally:
        os.close(listener)
    _must_be_well(_DETACHED[0], done.returncode)


def _start_guard(here: launch.Launch, settings: Settings, address: str) -> None:
    """address: of the root, for its own guard, or given by the user; "": to be found."""
    program = Path(_native.core().__file__).with_name(_PROGRAM)
    quiet = min(_MOST_QUIET, max(_LEAST_QUIET, settings.options["stall"] * _STALLS_PART))
    record = f"rank{here.rank}-{settings.pid}-{settings.started}.trace"
    collects = settings.options["on_stall"] != REPORT
    # One guard of each host; all if no common parent's pid names the rendezvous file.
    asks = settings.publish and not address and not (here.one_parent and here.local_rank)
    options = GuardOptions(
        *(settings.pid, here.rank, here.world, here.local_rank, here.local_world, here.node),
        quiet_ms=round(quiet * 1000),
        host=here.host,
        launcher=here.launcher if here.one_parent else "",
        address=address,
        rendezvous_file="" if address else settings.file,
        fetcher=fetcher(store_key(settings.restart), FOREVER, settings.file) if asks else (),
        records=[os.path.join(folder, record) for folder in settings.folders],
        collector=(*_ALL_OUTPUT, *_COLLECT, settings.job, here.host) if collects else (),
    )
    null = subprocess.DEVNULL
    command = [str(program), f"rank{here.rank}"]  # the rank is for `ps`
    done = subprocess.run(command, input=options.packed(), stdout=null, stderr=null,
                          start_new_session=True, check=False, timeout=_TO_DETACH)  # fmt: skip
    _must_be_well(program, done.returncode)


def _must_be_well(program: str | Path, status: int) -> None:
    if status:
        raise OddrankError(f"{os.path.basename(program)} has failed (status {status})")
