"""The checks of advise: what is wrong with the variables of a process. Pure; no sentences."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import metadata

from oddrank import launch
from oddrank.advise.variables import FAMILIES, KNOWN, TABLE
from oddrank.errors import LaunchError
from oddrank.machine import INFINIBAND

_MOST_VALUE = 4096
# Lengths of names that are looked at for a slip of the hand, and difflib's ratio of one in ten
# letters.
_SHORTEST, _LONGEST, _ALIKE = 8, 80, 0.9


@dataclass(frozen=True)
class Process:
    """A process and what its variables mean for it.

    variables: those of the table with their values; others of the same libraries, or nearly of the
    same name, with None. processors: those it may use. of_host: those of the host. devices: the
    host's RDMA devices. torch: version of torch in oddrank's own environment, or ().
    """

    variables: Mapping[str, str | None]
    world: int = 1
    local_world: int = 1
    nodes: int = 1
    processors: int = 1
    of_host: int = 1
    devices: tuple[str, ...] = ()
    torch: tuple[int, ...] = ()


def here() -> Process:
    try:
        place = launch.current()
    except LaunchError:
        place = launch.current({})  # the variables contradict each other: doctor says which
    return Process(
        variables={
            name: os.environ[name][:_MOST_VALUE] if name in TABLE else None
            for name in sorted(os.environ)
            if name in TABLE or name.startswith(FAMILIES) or nearest(name)
        },
        world=place.world,
        local_world=place.local_world,
        nodes=place.nodes,
        processors=len(os.sched_getaffinity(0)),
        of_host=os.cpu_count() or 1,
        devices=tuple(sorted(folder.name for folder in INFINIBAND.glob("*"))),
        torch=_torch(),
    )


def _torch() -> tuple[int, ...]:
    """Returns torch's version here, without importing it."""
    try:
        numbers = metadata.version("torch").split("+")[0].split(".")[:2]
        return tuple(int(one) for one in numbers)
    except (metadata.PackageNotFoundError, ValueError):
        return ()


def nearest(name: str) -> str:
    """Returns the known name that `name` misspells; "" if it is known, or near to none.

    Upper and lower case count as the same letter. The first letter must be right: HCCL_ and RCCL_
    are other libraries than NCCL_.
    """
    if name in KNOWN or not _SHORTEST <= len(name) <= _LONGEST:
        return ""
    upper = name.upper()
    alike = [known for known in sorted(KNOWN) if known[0] == upper[0]]
    return upper if upper in KNOWN else next(iter(get_close_matches(upper, alike, 1, _ALIKE)), "")


MANY_RANKS = 64
"""From so many ranks on, NCCL_DEBUG=INFO floods the log of a job."""
# The newest torch known to have its Flight Recorder off by default (FlightRecorder.hpp of 2.7).
_RECORDER_IS_OFF = (2, 7)
_MOST_SOCKETS = 64
_LAST_TIMEOUT = 31
_FALSE = ("", "0", "n", "no", "f", "false", "off")

# Variable -> the values that switch something off or force it, in lower case.
LEFT_OVER: dict[str, tuple[str, ...]] = {
    "NCCL_P2P_DISABLE": ("1",),
    "NCCL_SHM_DISABLE": ("1",),
    "NCCL_IB_DISABLE": ("1",),
    "NCCL_NVB_DISABLE": ("1",),
    "NCCL_PXN_DISABLE": ("1",),
    "NCCL_NVLS_ENABLE": ("0",),
    "NCCL_P2P_LEVEL": ("loc", "0"),
    "NCCL_NET_GDR_LEVEL": ("loc", "0"),
    "NCCL_DMABUF_ENABLE": ("0",),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": ("1",),
}
# Newer name -> older name of the same setting, which torch still reads.
TWO_NAMES = {
    "PYTORCH_ALLOC_CONF": "PYTORCH_CUDA_ALLOC_CONF",
    "TORCH_FR_BUFFER_SIZE": "TORCH_NCCL_TRACE_BUFFER_SIZE",
    "TORCH_FR_DUMP_TEMP_FILE": "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
}
_BUFFERS = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")


@dataclass(frozen=True)
class Hit:
    """What a check found. cause: a key of findings.CAUSES. names: variables. facts: for words."""

    cause: str
    names: tuple[str, ...]
    facts: Mapping[str, object] = field(default_factory=dict)


Check = Callable[[Process], Iterator[Hit]]


def judge(process: Process) -> list[Hit]:
    return [hit for check in CHECKS for hit in check(process)]


def _misspelt(process: Process) -> Iterator[Hit]:
    for name in process.variables:
        if meant := nearest(name):
            yield Hit("misspelt", (name,), {"meant": meant})


def _impossible(process: Process) -> Iterator[Hit]:
    for name, value in process.variables.items():
        row = TABLE.get(name)
        if row is not None and value is not None and not row.allows(value):
            yield Hit(
                "impossible", (name,),
                {"takes": row.takes, "otherwise": row.otherwise, "source": row.source},
            )  # fmt: skip


def _renamed(process: Process) -> Iterator[Hit]:
    for name in process.variables:
        row = TABLE.get(name)
        if row is None or not (row.instead or row.until):
            continue
        if row.until:
            yield Hit("removed", (name,), {"until": row.until, "instead": row.instead})
        elif row.instead not in process.variables:
            yield Hit("renamed", (name,), {"instead": row.instead})


def _two_names(process: Process) -> Iterator[Hit]:
    renamed = [(row.instead, row.name) for row in TABLE.values() if row.instead and not row.until]
    for new, old in (*TWO_NAMES.items(), *renamed):
        values = process.variables.get(new), process.variables.get(old)
        if None not in values and values[0] != values[1]:
            yield Hit("two-names", (new, old))


def _single(process: Process) -> Iterator[Hit]:
    """Variables that hurt by themselves, whatever the others are."""
    if _lower(process, "CUDA_LAUNCH_BLOCKING") not in _FALSE:
        yield Hit("launch-blocking", ("CUDA_LAUNCH_BLOCKING",))
    if _lower(process, "TORCH_DISTRIBUTED_DEBUG") == "detail":
        yield Hit("detail", ("TORCH_DISTRIBUTED_DEBUG",))
    for name, values in LEFT_OVER.items():
        if _lower(process, name) in values:
            yield Hit("left-over", (name,), {"does": TABLE[name].does})
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        if process.nodes > 1 and process.variables.get(name) in ("lo", "=lo"):
            yield Hit("loopback", (name,), {"nodes": process.nodes})
    timeout = _number(process.variables.get("NCCL_IB_TIMEOUT"))
    if timeout is not None and not 0 < timeout <= _LAST_TIMEOUT:
        yield Hit("endless-timeout", ("NCCL_IB_TIMEOUT",))
    lists = re.split(r"[;:]", _lower(process, "NCCL_PROTO"))
    if any("ll128" in one.split(",") for one in lists if not one.startswith("^")):
        yield Hit("ll128", ("NCCL_PROTO",))


def _debug_log(process: Process) -> Iterator[Hit]:
    if _lower(process, "NCCL_DEBUG") not in ("info", "trace"):
        return
    file = process.variables.get("NCCL_DEBUG_FILE") or ""
    if not file and process.world >= MANY_RANKS:
        yield Hit("debug-log", ("NCCL_DEBUG",), {"world": process.world})
    shared = not file.startswith("/dev/std") and process.local_world > 1 and "%p" not in file
    if file and shared:
        yield Hit("shared-log", ("NCCL_DEBUG_FILE",), {"ranks": process.local_world})


def _blocking_wait(process: Process) -> Iterator[Hit]:
    handling = _either(process, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING")
    blocking = _either(process, "TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")
    if blocking and process.variables[blocking] not in _FALSE:
        if not handling or process.variables[handling] != "0":
            yield Hit("blocking-wait", tuple(filter(None, (blocking, handling))))
    elif handling and process.variables[handling] == "0":
        yield Hit("no-timeout", (handling,))


def _flight_recorder(process: Process) -> Iterator[Hit]:
    buffer = _either(process, *_BUFFERS)
    if buffer:
        if process.variables[buffer] == "0":
            yield Hit("recorder-off", (buffer,))
            return
    elif process.torch and process.torch <= _RECORDER_IS_OFF and process.world > 1:
        version = ".".join(map(str, process.torch))
        yield Hit("recorder-unset", (_BUFFERS[1],), {"torch": version})
        return
    for name in ("TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_NCCL_ENABLE_MONITORING"):
        value = process.variables.get(name)
        if value is not None and value.lower() in _FALSE:
            yield Hit("no-dump", (name,))


def _threads(process: Process) -> Iterator[Hit]:
    """More threads than processors, of all ranks of the host together."""
    if process.local_world < 2:
        return
    given = _number((process.variables.get("OMP_NUM_THREADS") or "").split(",")[0]) or 0
    threads = given or process.processors
    enough = max(1, min(process.processors, process.of_host // process.local_world))
    if threads * process.local_world > process.of_host and threads > enough:
        facts = {"threads": threads, "ranks": process.local_world,
                 "processors": process.of_host, "enough": enough}  # fmt: skip
        yield Hit("threads" if given else "threads-unset", ("OMP_NUM_THREADS",), facts)


def _register_hook(process: Process) -> Iterator[Hit]:
    hook = "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"
    conf = _either(process, "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    text = (process.variables[conf] or "").replace(" ", "").lower() if conf else ""
    if "expandable_segments:true" in text and _lower(process, hook) not in _FALSE:
        yield Hit("expandable-segments", (conf, hook))


def _sockets(process: Process) -> Iterator[Hit]:
    names = ("NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD")
    threads, sockets = (_number(process.variables.get(name)) or 0 for name in names)
    if threads * sockets > _MOST_SOCKETS:
        yield Hit("sockets", names, {"count": threads * sockets, "most": _MOST_SOCKETS})


def _prefixes(process: Process) -> Iterator[Hit]:
    """A device's name in NCCL_IB_HCA that is the beginning of another one's: mlx5_1, mlx5_10."""
    text = process.variables.get("NCCL_IB_HCA") or ""
    if text.startswith(("=", "^=")):
        return
    for one in text.removeprefix("^").split(","):
        name = one.split(":")[0]
        more = [device for device in process.devices if device.startswith(name) and device != name]
        if name in process.devices and more:
            yield Hit("prefix", ("NCCL_IB_HCA",), {"device": name, "more": ", ".join(more[:8])})


CHECKS: tuple[Check, ...] = (
    _misspelt, _impossible, _renamed, _two_names, _single, _debug_log, _blocking_wait,
    _flight_recorder, _threads, _register_hook, _sockets, _prefixes,
)  # fmt: skip


def _lower(process: Process, name: str) -> str:
    return (process.variables.get(name) or "").strip().lower()


def _number(text: str | None) -> int | None:
    """Returns a whole number of few digits; None for any other text."""
    return int(text) if text and re.fullmatch("[0-9]{1,9}", text) else None


def _either(process: Process, *names: str) -> str:
    """Returns the first of the names that is set; "" if none is."""
    return next((name for name in names if process.variables.get(name) is not None), "")
