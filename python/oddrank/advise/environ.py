"""Reads the variables of this environment, of a process, or of a job's ranks on this host.

Values of unknown variables may be secrets: they are dropped where they are read. Names of variables
are kept if they belong to a library of the table, or are near to a name of it.
"""

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

from oddrank import launch
from oddrank.advise.spelling import nearest
from oddrank.advise.variables import FAMILIES, TABLE
from oddrank.errors import LaunchError, OddrankError
from oddrank.run.collect import children, find
from oddrank.run.collect.children import Say, Stop, Task

_MOST_BYTES = 1 << 21  # of /proc/PID/environ
_MOST_VALUE = 4096
_CHUNKS = 16
_SHARE = 0.5  # of the time, for finding the job


@dataclass(frozen=True)
class Process:
    """A process and what its variables mean for it.

    variables: those of the table with their values; others of the same libraries, or nearly of the
    same name, with None. processors: those it may use. of_host: those of the host. devices: the
    host's RDMA devices. torch: version of torch in oddrank's own environment, or ().
    """

    variables: Mapping[str, str | None]
    pid: int | None = None
    rank: int | None = None
    world: int = 1
    local_world: int = 1
    nodes: int = 1
    launcher: str = "alone"
    processors: int = 1
    of_host: int = 1
    devices: tuple[str, ...] = ()
    torch: tuple[int, ...] = ()


def here() -> Process:
    """Returns this process."""
    return _process(os.environ, os.getpid())


def of_pid(pid: int, seconds: float, stop: Stop) -> Process:
    """Returns a process of this host, as its variables were when it began.

    OddrankError if there is none, if it is another user's, or if /proc does not answer in time.
    """
    until = time.monotonic() + seconds
    found = _read([pid], until, stop)
    if pid not in found:
        raise OddrankError(f"there is no process {pid} on this host: ps -ef shows them")
    return found[pid]


def of_job(name: str, host: str, seconds: float, stop: Stop) -> tuple[str, list[Process]]:
    """Returns a job's name and its ranks on this host. name: "" for the newest job here.

    OddrankError if there is no such job, or none of its ranks is alive.
    """
    until = time.monotonic() + seconds
    target = find.find([name] if name else [], host, until - (1 - _SHARE) * seconds, stop).target
    living = {rank.pid: rank for rank in target.living}
    if not living:
        which = f"job {target.job}" if name else "any job of yours"
        raise OddrankError(f"no rank of {which} runs on this host: start the job, or give --pid")
    found = _read(list(living), until, stop)
    ranks = [found[pid] for pid in living if pid in found]
    if not ranks:
        raise OddrankError(f"all ranks of job {target.job} have ended: give --pid, or start it")
    return target.job, sorted(ranks, key=lambda one: (one.rank or 0, one.pid or 0))


def _read(pids: list[int], until: float, stop: Stop) -> dict[int, Process]:
    """Reads processes in children: /proc/PID/environ may wait for a file system for ever."""
    seconds = max(0.1, until - time.monotonic())
    chunks = [pids[i::_CHUNKS] for i in range(min(_CHUNKS, len(pids)))]
    tasks = [
        Task(f"variables {number}", partial(_tell, chunk), seconds)
        for number, chunk in enumerate(chunks)
    ]
    found: dict[int, Process] = {}
    for result in children.run_all(tasks, until, stop):
        if result.why:
            raise OddrankError(f"can't read the variables: {result.why}")
        for told in result.said:
            lists = {"devices": tuple(told["devices"]), "torch": tuple(told["torch"])}
            found[told["pid"]] = Process(**{**told, **lists})
    return found


def _may_not(pid: int) -> str:
    """Says why the variables of a process may not be read, and what to do."""
    try:
        foreign = os.stat(f"/proc/{pid}").st_uid != os.geteuid()
    except OSError:
        foreign = True
    if foreign:
        return "it belongs to another user: ask as that user, or as root"
    return "though it is yours: ask on the host if this is a container, or with CAP_SYS_PTRACE"


def _tell(pids: Iterable[int], say: Say) -> None:
    for pid in pids:
        say({"at": f"/proc/{pid}/environ"})
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                content = file.read(_MOST_BYTES).decode(errors="replace")
        except FileNotFoundError:
            continue
        except PermissionError:
            raise OddrankError(
                f"can't read /proc/{pid}/environ: permission denied, {_may_not(pid)}"
            ) from None
        except ProcessLookupError:
            continue  # it ended, or is a zombie
        pairs = (text.partition("=") for text in content.split("\0"))
        environ = {name: value for name, equals, value in pairs if equals}
        say(asdict(_process(environ, pid)))


def _process(environ: Mapping[str, str], pid: int) -> Process:
    try:
        place = launch.current(environ)
    except (OddrankError, LaunchError, ValueError, LookupError):
        place = launch.current({})  # the variables contradict each other: doctor says which
    launched = place.launcher != "alone"
    return Process(
        variables=_relevant(environ),
        pid=pid,
        rank=place.rank if launched else None,
        world=place.world,
        local_world=place.local_world,
        nodes=place.nodes,
        launcher=place.launcher,
        processors=_processors(pid),
        of_host=os.cpu_count() or 1,
        devices=_devices(),
        torch=_torch(),
    )


def _relevant(environ: Mapping[str, str]) -> dict[str, str | None]:
    kept: dict[str, str | None] = {}
    for name in sorted(environ):
        if name in TABLE:
            kept[name] = environ[name][:_MOST_VALUE]
        elif name.startswith(FAMILIES) or nearest(name):
            kept[name] = None
    return kept


def _processors(pid: int) -> int:
    try:
        return len(os.sched_getaffinity(pid))
    except OSError:
        return os.cpu_count() or 1


def _devices(folder: Path = Path("/sys/class/infiniband")) -> tuple[str, ...]:
    try:
        return tuple(sorted(os.listdir(folder)))
    except OSError:
        return ()


def _torch() -> tuple[int, ...]:
    """Returns torch's version here, without importing it."""
    try:
        numbers = metadata.version("torch").split("+")[0].split(".")[:2]
        return tuple(int(one) for one in numbers)
    except (metadata.PackageNotFoundError, ValueError):
        return ()
