"""Measures the host's memory and cores with one thread of a rank."""

import glob
import os
import platform
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress

from oddrank import _native
from oddrank.launch import Launch
from oddrank.machine import small_file
from oddrank.machine.device import CPU, free_bytes
from oddrank.machine.placement import bound_to
from oddrank.selftest import probes

_SLICES = 4  # a repeat is the fastest of so many slices of the buffer
# Size of the buffer: in sizes of the last cache, and its bounds.
_CACHES = 2
_FEWEST_BYTES, _MOST_BYTES, _SMALLEST = 64 << 20, 256 << 20, 1 << 20
_SHARE = 0.1  # a buffer takes this share of the rank's free memory; there are two buffers
_COMPUTE_SECONDS = 0.1  # longer than a period of the kernel's CPU quotas
# One by one: other programs on the host come and go, and so slow all of its ranks alike.
A_TURN = 1
_MEMORY = {"host_read": "read", "host_write": "write", "host_copy": "copy"}


def kind(launch: Launch) -> str:
    """Returns the CPU's model and the size of the buffer, of which caches hold a part."""
    return f"{cpu_model()}, {platform.machine()}, {_bytes(launch) >> 20} MiB"


def speed(launch: Launch, repeats: Mapping[str, int]) -> dict[str, list[float]]:
    """Measures GB/s and GFLOP/s by CPU time: time of other programs on its cores does not count."""
    found: dict[str, list[float]] = {}
    core = _native.core()
    if count := probes.most(repeats, _MEMORY):
        found |= probes.rates(core.time_host_memory(_bytes(launch), count, _SLICES), _MEMORY)
    if count := repeats.get("host_compute", 0):
        times = core.time_host_compute(_COMPUTE_SECONDS, count)
        found["host_compute"] = [times["operations"] / one / 1e9 for one in times["seconds"]]
    return {name: values for name, values in found.items() if name in repeats}


def at(number: int) -> AbstractContextManager[object]:
    """Measures on this core of the rank's, counted in a circle.

    Ranks that may use the same cores then measure on the same ones: a core that is slow meanwhile,
    as with a busy neighbour on its other hardware thread, slows all of these ranks alike.
    """
    cores = sorted(os.sched_getaffinity(0))
    return bound_to({cores[number % len(cores)]})


def alone(launch: Launch, metric: str) -> str:
    return ""


def fingerprint(launch: Launch, seconds: float) -> probes.Prints:
    """Computes fingerprints on this rank's part of the host's cores, for so many seconds."""
    core = _native.core()
    seen = []
    end = time.monotonic() + seconds
    cores = sorted(os.sched_getaffinity(0))  # ranks that share cores divide them
    own = cores[launch.local_rank :: launch.local_world] or [cores[launch.local_rank % len(cores)]]
    repeat = 0
    while repeat == 0 or time.monotonic() < end:
        for place in own:
            with bound_to({place}):
                seen.append((f"core {place}", repeat, core.host_fingerprint()))
        repeat += 1
    return probes.summary(platform.machine(), core.golden_fingerprint(), seen)


def _bytes(launch: Launch) -> int:
    """Returns the bytes of each of two buffers: more than the caches hold, if memory allows.
    A power of two: ranks with a little less free memory are still compared with the others."""
    wanted = min(_MOST_BYTES, max(_FEWEST_BYTES, _CACHES * _last_cache()))
    left = int(free_bytes(CPU, launch) * _SHARE)
    return 1 << (max(_SMALLEST, min(wanted, left)).bit_length() - 1)


def _last_cache(folder: str = "/sys/devices/system/cpu/cpu0/cache") -> int:
    """Returns the bytes of the largest cache; 0 if unknown."""
    sizes = (small_file(path).removesuffix("K") for path in glob.glob(f"{folder}/index*/size"))
    return max((int(size) << 10 for size in sizes if size.isdecimal()), default=0)


def cpu_model(path: str = "/proc/cpuinfo") -> str:
    """Returns the CPU's model by the kernel; else what Python's platform module says."""
    with suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith(("model name", "CPU part", "cpu model")):
                return line.partition(":")[2].strip()[:80]
    return (platform.processor() or platform.machine())[:80]
