"""The host's memory and cores, as one thread of a rank finds them."""

import glob
import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from oddrank import _native
from oddrank.bench.memory import free_host_memory
from oddrank.selftest.probes import prints, quota

if TYPE_CHECKING:
    from oddrank.launch import Launch

# A repeat is the fastest of so many slices of the buffer.
_SLICES = 4
# The buffer in those of the last cache, and its bounds.
_CACHES = 2
_FEWEST_BYTES, _MOST_BYTES, _SMALLEST = 64 << 20, 256 << 20, 1 << 20
# Of what is free, divided by the ranks of the host; there are two buffers.
_SHARE = 0.1
# Longer than a period of the kernel's CPU quotas.
_COMPUTE_SECONDS = 0.1
# One by one: what else runs on the host, which comes and goes, meets all of its ranks alike.
A_TURN = 1
_MEMORY = {"host_read": "read", "host_write": "write", "host_copy": "copy"}
# Bytes that a copy moves, in those of its buffer.
_MOVED = {"read": 1, "write": 1, "copy": 2}


def kind(launch: "Launch") -> str:
    """The CPU's model; and how much memory is streamed through: caches hold a part of it."""
    return f"{cpu_model()}, {platform.machine()}, {_bytes(launch) >> 20} MiB"


def facts(launch: "Launch") -> dict[str, str]:
    return {"CPU quota": quota.text()}


def speed(launch: "Launch", repeats: Mapping[str, int]) -> dict[str, list[float]]:
    """GB/s and GFLOP/s, both of CPU time: who else has the cores meanwhile does not count."""
    found: dict[str, list[float]] = {}
    core = _native.core()
    count = max((repeats[name] for name in _MEMORY if name in repeats), default=0)
    if count:
        times = core.time_host_memory(_bytes(launch), count, _SLICES)
        for name, way in _MEMORY.items():
            moved = times["bytes"] * _MOVED[way]
            found[name] = [moved / seconds / 1e9 for seconds in times[way]]
    count = repeats.get("host_compute", 0)
    if count:
        times = core.time_host_compute(_COMPUTE_SECONDS, count)
        found["host_compute"] = [times["operations"] / one / 1e9 for one in times["seconds"]]
    return {name: values for name, values in found.items() if name in repeats}


def fingerprint(launch: "Launch", seconds: float) -> dict[str, Any]:
    """Of this rank's part of the host's cores, again and again for so long; each core once."""
    core = _native.core()
    seen = []
    end = time.monotonic() + seconds
    repeat = 0
    while repeat == 0 or time.monotonic() < end:
        for place in _own_cores(launch):
            with _pinned(place):
                seen.append((f"core {place}", repeat, core.host_fingerprint()))
        repeat += 1
    return prints.summary(platform.machine(), core.golden_fingerprint(), seen)


def _bytes(launch: "Launch") -> int:
    """Of each of two buffers: more than the caches hold, if there is the memory.

    A power of two: ranks with a little less free memory are still compared with the others.
    """
    wanted = min(_MOST_BYTES, max(_FEWEST_BYTES, _CACHES * _last_cache()))
    left = int(free_host_memory() / launch.local_world * _SHARE)
    return 1 << (max(_SMALLEST, min(wanted, left)).bit_length() - 1)


def _last_cache(folder: str = "/sys/devices/system/cpu/cpu0/cache") -> int:
    """Bytes of the largest one; 0 where the kernel does not tell."""
    found = 0
    for path in glob.glob(f"{folder}/index*/size"):
        try:
            with open(path, encoding="ascii") as file:
                found = max(found, int(file.read().strip().removesuffix("K")) << 10)
        except (OSError, ValueError):
            continue
    return found


def cpu_model(path: str = "/proc/cpuinfo") -> str:
    """As the kernel tells it; what is left where it does not only keeps ranks together."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith(("model name", "CPU part", "cpu model")):
                    return line.partition(":")[2].strip()[:80]
    except OSError:
        pass
    return (platform.processor() or platform.machine())[:80]


def _own_cores(launch: "Launch") -> list[int]:
    """Each core that the ranks of a host may use is tested by one of them, where they share."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[launch.local_rank :: launch.local_world] or [cores[launch.local_rank % len(cores)]]


@contextmanager
def _pinned(core: int) -> Iterator[None]:
    """This thread on that core, where the kernel lets it."""
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {core})
    except OSError:  # taken away meanwhile
        yield
        return
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
