"""The checks of advise: errors in the variables of a process, and commands that repair them."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import metadata

from oddrank.advise.variables import FAMILIES, GUIDE, KNOWN, TABLE
from oddrank.finding import Condition, Evidence, Finding, Level, Row, Who
from oddrank.launch import Launch
from oddrank.machine import INFINIBAND

_MOST_VALUE = 4096
# Lengths of names that are checked for a misspelling, and difflib's ratio of one in ten letters.
_SHORTEST, _LONGEST, _ALIKE = 8, 80, 0.9


@dataclass(frozen=True)
class Process:
    """A process and its variables.

    variables: the table's ones with their values; others of the same libraries, or nearly of the
    same name, with None. processors: the ones it may use. of_host: the host's. devices: the host's
    RDMA devices. torch: version of torch in oddrank's own environment, or ().
    """

    variables: Mapping[str, str | None]
    world: int = 1
    local_world: int = 1
    nodes: int = 1
    processors: int = 1
    of_host: int = 1
    devices: tuple[str, ...] = ()
    torch: tuple[int, ...] = ()


def here(place: Launch) -> Process:
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


MANY_RANKS = 64  # from so many ranks on, NCCL_DEBUG=INFO floods the log of a job
# The newest torch known to have its Flight Recorder off by default (FlightRecorder.hpp of 2.7).
_RECORDER_IS_OFF = (2, 7)
_MOST_SOCKETS = 64
_LAST_TIMEOUT = 31
_FALSE = ("", "0", "n", "no", "f", "false", "off")

# Variable -> the values that switch something off or force it, in lower case.
LEFT_OVER: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE", "NCCL_NVB_DISABLE",
         "NCCL_PXN_DISABLE", "PYTORCH_NO_CUDA_MEMORY_CACHING"), ("1",)),
    **dict.fromkeys(("NCCL_NVLS_ENABLE", "NCCL_DMABUF_ENABLE"), ("0",)),
    **dict.fromkeys(("NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL"), ("loc", "0")),
}  # fmt: skip
# Newer name -> older name of the same setting, which torch still reads.
TWO_NAMES = {
    "PYTORCH_ALLOC_CONF": "PYTORCH_CUDA_ALLOC_CONF",
    "TORCH_FR_BUFFER_SIZE": "TORCH_NCCL_TRACE_BUFFER_SIZE",
    "TORCH_FR_DUMP_TEMP_FILE": "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
}
_BUFFERS = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")

_TORCH = "docs.pytorch.org, ProcessGroupNCCL Environment Variables"


@dataclass(frozen=True)
class Cause:
    """The words of a cause: formats of the variables' names, and of `_found`'s keywords.

    is_set: whether the variables are set, and not missing.
    """

    what: str
    why: str
    next: tuple[str, ...]
    source: str
    level: Level = "medium"
    condition: Condition = "suspicious"
    is_set: bool = True


CAUSES: dict[str, Cause] = {
    "misspelt": Cause(
        "{name} is no known variable: it may be {meant}, misspelt", "one or two letters differ",
        ("export {meant}=...; unset {name}",), "table of known variables",
    ),
    "impossible": Cause(
        "{name} takes {values}, and is set to something else{then}", "documented values",
        ("unset {name}",), "{source}", "high",
    ),
    "renamed": Cause(
        "{name} is an older name of {instead}", "torch 2.2 and newer read it and warn",
        ("export {instead}=${name}; unset {name}",), "torch 2.2, c10d/Utils.hpp",
    ),
    "removed": Cause(
        "{name} does nothing since {until}", "NCCL's guide says so", ("unset {name}",), GUIDE,
    ),
    "two-names": Cause(
        "{name} and {other} are two names of one setting, and their values differ",
        "only one of them counts", ("unset {other}",), "table of known variables", "high",
        "mismatch",
    ),
    "launch-blocking": Cause(
        "{name} makes the CPU wait for each kernel", "it is for debugging; BLOOM-176B trained with"
        " it and lost no speed, so measure yours. NCCL before 2.17 may hang with it",
        ("unset {name}",), "LLM training handbook, Dealing with Async CUDA bugs",
    ),
    "left-over": Cause(
        "{name} keeps NCCL or torch from its fastest way ({does})",
        "it is for experiments, and often left over from one", ("unset {name}",), GUIDE,
    ),
    "debug-log": Cause(
        "{name} makes {world} ranks write NCCL's whole log to stdout",
        "for production NCCL's guide recommends WARN",
        ("export NCCL_DEBUG=WARN", "export NCCL_DEBUG_FILE=/tmp/nccl.%h.%p  (if you need it)"),
        "NCCL 2.30 user guide, Logging",
    ),
    "shared-log": Cause(
        "{name} has no %p: {ranks} ranks of a host write one file, and lines are lost",
        "NCCL overwrites a file of that name", ("export {name}=/tmp/nccl.%h.%p",), GUIDE, "high",
    ),
    "detail": Cause(
        "{name}=DETAIL checks each collective on all ranks before it runs",
        "it is for debugging, and slow", ("unset {name}",), "docs.pytorch.org, torch.distributed",
    ),
    "blocking-wait": Cause(
        "{name} switches torch's handling of errors and timeouts by its watchdog off",
        "torch uses one of the two, and takes blocking wait", ("unset {name}",),
        "torch, ProcessGroupNCCL.cpp",
    ),
    "no-timeout": Cause(
        "{name}=0: a collective that hangs is never ended", "the watchdog then ends nothing",
        ("unset {name}",), _TORCH,
    ),
    "recorder-off": Cause(
        "{name}=0 switches the Flight Recorder off: a hang leaves no dump to triage",
        "0 means off", ("export {name}=2000",), _TORCH,
    ),
    "recorder-unset": Cause(
        "the Flight Recorder is off: {name} is not set, and torch {torch} records nothing by"
        " default", "the version is that of oddrank's own environment", ("export {name}=2000",),
        "torch 2.7, FlightRecorder.hpp", is_set=False,
    ),
    "no-dump": Cause(
        "{name} is off: a timeout writes no Flight Recorder dump",
        "torch dumps only with both switches on", ("unset {name}",),
        "torch 2.13, ProcessGroupNCCL.hpp",
    ),
    "threads": Cause(
        "{name}={threads} makes {all} threads on this host (local ranks: {ranks}, processors:"
        " {processors})", "counted", ("export {name}={enough}",), "OpenMP specification", "high",
    ),
    "threads-unset": Cause(
        "{name} is not set: each of {ranks} ranks of a host starts {threads} threads, on"
        " {processors} processors", "torch starts a thread for each processor it may use; torchrun"
        " alone sets 1", ("export {name}={enough}",), "torch/distributed/run.py", is_set=False,
    ),
    "expandable-segments": Cause(
        "{name} has expandable_segments: torch then ignores {other}", "torch says so in its log",
        ("unset {other}",), "torch, ProcessGroupNCCL.cpp",
    ),
    "endless-timeout": Cause(
        "{name} makes InfiniBand wait for ever: a lost link becomes a hang",
        "0 and values over 31 mean no timeout", ("unset {name}",), GUIDE, "high",
    ),
    "loopback": Cause(
        "{name} names the loopback interface: ranks of {nodes} nodes can't reach each other",
        "lo reaches its own host only", ("unset {name}",), GUIDE, "high",
    ),
    "sockets": Cause(
        "{name} x {other} is {count}, over the limit of {most}", "NCCL's guide has the limit",
        ("export {name}=4 {other}=4",), GUIDE, "high",
    ),
    "ll128": Cause(
        "{name} forces LL128: on platforms without it, data may be corrupted",
        "NCCL chooses it where it is safe", ("unset {name}",), GUIDE,
    ),
    "prefix": Cause(
        "{name} has {device} without =, and so also takes {more}", "names are prefixes without =",
        ("export {name}==${name}",), GUIDE,
    ),
}  # fmt: skip


def _found(cause: str, *names: str, **told: object) -> Finding:
    """Makes the finding of a cause. names: variables; told: further values for its words."""
    row, facts = CAUSES[cause], {**told, "name": names[0], "other": names[-1]}
    return Row(cause, row.condition, row.what, (row.level, row.why), row.next).found(
        Who("process", device="this environment"),
        Evidence(f"{' and '.join(names)}: {'set' if row.is_set else 'not set'}", "environment"),
        Evidence("documented", row.source.format_map(facts)),
        **facts,
    )


def _values_text(takes: str) -> str:
    """Returns the values that a variable takes in words. takes: as in the table of variables."""
    texts = [_range_text(one) for one in takes.removesuffix(",").split("/")]
    text = " or ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))
    return f"{text}, or a list of them" if takes.endswith(",") else text


def _range_text(one: str) -> str:
    low, is_range, high = one.partition("..")
    if not is_range:
        return one
    return "a whole number" + (f" from {low}" if low else "") + (f" to {high}" if high else "")


Check = Callable[[Process], Iterator[Finding]]


def judge(process: Process) -> list[Finding]:
    return [finding for check in CHECKS for finding in check(process)]


def _misspelt(process: Process) -> Iterator[Finding]:
    for name in process.variables:
        if meant := nearest(name):
            yield _found("misspelt", name, meant=meant)


def _impossible(process: Process) -> Iterator[Finding]:
    for name, value in process.variables.items():
        row = TABLE.get(name)
        if row is not None and value is not None and not row.allows(value):
            then = f": {row.otherwise}" if row.otherwise else ""
            values = _values_text(row.takes)
            yield _found("impossible", name, values=values, then=then, source=row.source)


def _renamed(process: Process) -> Iterator[Finding]:
    for name in process.variables:
        row = TABLE.get(name)
        if row is None or not (row.instead or row.until):
            continue
        if row.until:
            yield _found("removed", name, until=row.until)
        elif row.instead not in process.variables:
            yield _found("renamed", name, instead=row.instead)


def _two_names(process: Process) -> Iterator[Finding]:
    renamed = [(row.instead, row.name) for row in TABLE.values() if row.instead and not row.until]
    for new, old in (*TWO_NAMES.items(), *renamed):
        values = process.variables.get(new), process.variables.get(old)
        if None not in values and values[0] != values[1]:
            yield _found("two-names", new, old)


def _single(process: Process) -> Iterator[Finding]:
    """Variables that hurt by themselves, with any values of the others."""
    if _lower(process, "CUDA_LAUNCH_BLOCKING") not in _FALSE:
        yield _found("launch-blocking", "CUDA_LAUNCH_BLOCKING")
    if _lower(process, "TORCH_DISTRIBUTED_DEBUG") == "detail":
        yield _found("detail", "TORCH_DISTRIBUTED_DEBUG")
    for name, values in LEFT_OVER.items():
        if _lower(process, name) in values:
            yield _found("left-over", name, does=TABLE[name].does)
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        if process.nodes > 1 and process.variables.get(name) in ("lo", "=lo"):
            yield _found("loopback", name, nodes=process.nodes)
    timeout = _number(process.variables.get("NCCL_IB_TIMEOUT"))
    if timeout is not None and not 0 < timeout <= _LAST_TIMEOUT:
        yield _found("endless-timeout", "NCCL_IB_TIMEOUT")
    lists = re.split(r"[;:]", _lower(process, "NCCL_PROTO"))
    if any("ll128" in one.split(",") for one in lists if not one.startswith("^")):
        yield _found("ll128", "NCCL_PROTO")


def _debug_log(process: Process) -> Iterator[Finding]:
    if _lower(process, "NCCL_DEBUG") not in ("info", "trace"):
        return
    file = process.variables.get("NCCL_DEBUG_FILE") or ""
    if not file and process.world >= MANY_RANKS:
        yield _found("debug-log", "NCCL_DEBUG", world=process.world)
    shared = not file.startswith("/dev/std") and process.local_world > 1 and "%p" not in file
    if file and shared:
        yield _found("shared-log", "NCCL_DEBUG_FILE", ranks=process.local_world)


def _blocking_wait(process: Process) -> Iterator[Finding]:
    handling = _either(process, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING")
    blocking = _either(process, "TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")
    if blocking and process.variables[blocking] not in _FALSE:
        if not handling or process.variables[handling] != "0":
            yield _found("blocking-wait", *filter(None, (blocking, handling)))
    elif handling and process.variables[handling] == "0":
        yield _found("no-timeout", handling)


def _flight_recorder(process: Process) -> Iterator[Finding]:
    buffer = _either(process, *_BUFFERS)
    if buffer:
        if process.variables[buffer] == "0":
            yield _found("recorder-off", buffer)
            return
    elif process.torch and process.torch <= _RECORDER_IS_OFF and process.world > 1:
        version = ".".join(map(str, process.torch))
        yield _found("recorder-unset", _BUFFERS[1], torch=version)
        return
    for name in ("TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_NCCL_ENABLE_MONITORING"):
        value = process.variables.get(name)
        if value is not None and value.lower() in _FALSE:
            yield _found("no-dump", name)


def _threads(process: Process) -> Iterator[Finding]:
    """More threads than processors, of all ranks of the host together."""
    given = _number((process.variables.get("OMP_NUM_THREADS") or "").split(",")[0]) or 0
    threads = given or process.processors
    enough = max(1, min(process.processors, process.of_host // process.local_world))
    total = threads * process.local_world
    if total > process.of_host and threads > enough:
        facts = {"threads": threads, "all": total, "ranks": process.local_world,
                 "processors": process.of_host, "enough": enough}  # fmt: skip
        yield _found("threads" if given else "threads-unset", "OMP_NUM_THREADS", **facts)


def _register_hook(process: Process) -> Iterator[Finding]:
    hook = "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"
    conf = _either(process, "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    text = (process.variables[conf] or "").replace(" ", "").lower() if conf else ""
    if "expandable_segments:true" in text and _lower(process, hook) not in _FALSE:
        yield _found("expandable-segments", conf, hook)


def _sockets(process: Process) -> Iterator[Finding]:
    names = ("NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD")
    threads, sockets = (_number(process.variables.get(name)) or 0 for name in names)
    if threads * sockets > _MOST_SOCKETS:
        yield _found("sockets", *names, count=threads * sockets, most=_MOST_SOCKETS)


def _prefixes(process: Process) -> Iterator[Finding]:
    """A device's name in NCCL_IB_HCA that is the beginning of another one's: mlx5_1, mlx5_10."""
    text = process.variables.get("NCCL_IB_HCA") or ""
    if text.startswith(("=", "^=")):
        return
    for one in text.removeprefix("^").split(","):
        name = one.split(":")[0]
        more = [device for device in process.devices if device.startswith(name) and device != name]
        if name in process.devices and more:
            yield _found("prefix", "NCCL_IB_HCA", device=name, more=", ".join(more[:8]))


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
