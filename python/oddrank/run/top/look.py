"""Looks at all ranks of this host, twice, and makes a table: step, rate, place, memory, GPU."""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oddrank import job
from oddrank.finding import duration, ranks_text
from oddrank.trace import processes, ranks
from oddrank.trace.ranks import Collective, Rank
from oddrank.trace.where import call_text, gil_text, pause_text

COLUMNS = ("rank", "pid", "step", "steps/s", "last event", "in", "at", "CPU %", "RSS MiB",
           "workers", "GPU %", "GPU MiB")  # fmt: skip
_HERTZ = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MEMORY_FILES = Path("/dev/shm")


@dataclass(frozen=True)
class Gpu:
    """The GPU that a process uses. memory: of that process, in bytes; None: not readable."""

    index: int
    busy: int
    """Percent of the last moments in which some kernel ran."""
    memory: int | None


@dataclass(frozen=True)
class Look:
    """All ranks at one moment."""

    time: float
    ranks: tuple[Rank, ...]
    cpu: Mapping[int, float] = field(default_factory=dict)
    """pid -> seconds of CPU time so far."""
    memory: Mapping[int, int] = field(default_factory=dict)
    """pid -> resident bytes."""
    gpus: Mapping[int, Gpu] = field(default_factory=dict)
    """pid -> its GPU."""


def look(files: Sequence[Path]) -> Look:
    """Reads records, /proc and NVML now."""
    found = [rank for rank in ranks.read(files)[0] if rank.runs_back == 0]
    now, pids = time.time(), [rank.pid for rank in found if rank.alive]
    own = {pid: one for pid in pids if (one := _used(pid)) is not None}
    return Look(
        now, tuple(found), {pid: cpu for pid, (cpu, _) in own.items()},
        {pid: memory for pid, (_, memory) in own.items()}, _gpus(),
    )  # fmt: skip


def rows(before: Look, now: Look) -> list[tuple[object, ...]]:
    """Returns a row of COLUMNS for each rank, those with the fewest steps first."""
    old = {(rank.pid, rank.started): rank for rank in before.ranks}
    seconds = max(now.time - before.time, 1e-3)
    mains = [rank for rank in now.ranks if not rank.is_child]
    made: list[tuple[object, ...]] = []
    for rank in sorted(mains, key=lambda r: (-1 if r.step is None else r.step, r.rank)):
        earlier = old.get((rank.pid, rank.started))
        rate = None
        if earlier is not None and None not in (rank.step, earlier.step):
            rate = f"{((rank.step or 0) - (earlier.step or 0)) / seconds:.2f}"
        cpu = None
        if rank.pid in now.cpu and rank.pid in before.cpu:
            cpu = round(100 * (now.cpu[rank.pid] - before.cpu[rank.pid]) / seconds)
        memory, gpu = now.memory.get(rank.pid), now.gpus.get(rank.pid)
        workers = sum(1 for r in now.ranks if r.is_child and r.alive and r.rank == rank.rank)
        last = "-" if rank.last is None else duration(now.time - rank.last, 1)
        made.append((
            rank.rank, rank.pid, rank.step, rate, last if rank.alive else "dead",
            _call(rank, now.time), _place(rank), cpu,
            None if memory is None else memory >> 20, workers,
            None if gpu is None else gpu.busy,
            None if gpu is None or gpu.memory is None else gpu.memory >> 20,
        ))  # fmt: skip
    return made


def heading(before: Look, now: Look, job: str) -> str:
    """Returns the line above the table: steps of all ranks, and how full /dev/shm is."""
    mains = [rank for rank in now.ranks if not rank.is_child]
    alive = sum(1 for rank in mains if rank.alive)
    text = f"{time.strftime('%H:%M:%S', time.localtime(now.time))}  job {job}: "
    text += f"{ranks_text(rank.rank for rank in mains)} here, {alive} alive"
    steps = [rank.step for rank in mains if rank.step is not None]
    if steps:
        least, most = min(steps), max(steps)
        text += f", step {least}" if least == most else f", steps {least} to {most}"
    with suppress(OSError):
        room = os.statvfs(_MEMORY_FILES)
        total = room.f_blocks * room.f_frsize
        used = 1 - room.f_bavail / max(room.f_blocks, 1)
        text += f"; /dev/shm {100 * used:.0f} % of {total / (1 << 30):.1f} GiB used"
    return text


def _call(rank: Rank, now: float) -> str:
    """Returns the pause, the held GIL or the collective of the rank, and since when; "": none."""
    if rank.gil_wanted is not None:
        return gil_text(rank.gil_wanted, now)
    if rank.pause is not None:
        return pause_text(rank.pause, now)
    first: Collective | None = next((each for each in rank.collectives if each.open), None)
    if first is None:
        return " > ".join(rank.sections)
    since = "" if first.began is None else f" for {duration(now - first.began, 1)}"
    return f"{call_text(rank, first)}{since}"


def _place(rank: Rank) -> str:
    """Returns the line of the main thread that runs now, or ran last."""
    stack = rank.main.stack if rank.main is not None else ()
    frame = stack[-1] if stack else rank.last_at
    if frame is None:
        return ""
    line = "" if frame.line is None else f":{frame.line}"
    return f"{processes.short(frame.file)}{line} {frame.function}"


def _used(pid: int) -> tuple[float, int] | None:
    """Returns the CPU seconds of a process and its resident bytes; None if it is gone."""
    if not (fields := job.stat_fields(pid)):
        return None
    return (int(fields[11]) + int(fields[12])) / _HERTZ, int(fields[21]) * _PAGE


def _gpus() -> dict[int, Gpu]:
    """Returns the GPU of each process that NVML knows; empty without nvidia-ml-py or a driver."""
    try:
        import pynvml
    except ImportError:
        return {}
    found: dict[int, Gpu] = {}
    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        for index in range(pynvml.nvmlDeviceGetCount()):
            with suppress(pynvml.NVMLError):
                found |= _processes_of(pynvml, index)
        pynvml.nvmlShutdown()
    return found


def _processes_of(nvml: Any, index: int) -> dict[int, Gpu]:
    device = nvml.nvmlDeviceGetHandleByIndex(index)
    busy = nvml.nvmlDeviceGetUtilizationRates(device).gpu
    return {
        each.pid: Gpu(index, busy, each.usedGpuMemory)
        for each in nvml.nvmlDeviceGetComputeRunningProcesses(device)
    }


def shown(now: Look, table: Iterable[tuple[object, ...]]) -> tuple[tuple[str, ...], Any]:
    """Leaves out the columns of GPUs where there is none."""
    if now.gpus:
        return COLUMNS, table
    return COLUMNS[:-2], [row[:-2] for row in table]
