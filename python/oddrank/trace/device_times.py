"""Notes in the record how long the newest calls took on a device, as torch's Flight Recorder knows.

Ranks read it at the same moments, by their wall clocks, so that their records have the same calls.
It has times of calls around which torch records events, which it does once we have asked for it.
"""

import ctypes
import functools
import json
import os
import sys
import time
from _thread import start_new_thread
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from oddrank import _native

EVERY = "ODDRANK_DEVICE_TIMES"
"""The variable that names the seconds between two readings, before torch.distributed's import."""
_LEAST, _MOST = 0.01, 86400.0
_KEPT = 256  # as a record does
_ROLES = {"send": 2, "recv": 3}  # Role in csrc/trace/format/format.hpp
# torch's older recorder, of NCCL alone, and the one for all other back ends.
_DUMPS = ("_dump_nccl_trace_json", "_dump_fr_trace_json")
_RUNTIMES = ("cuda", "hip")
_THREADS_OWN = 1  # cudaStreamCaptureModeThreadLocal


@functools.cache
def start() -> None:
    """Reads in a thread of its own from now on, if EVERY asks for it. Needs torch.distributed."""
    with suppress(KeyError, ValueError):
        every = float(os.environ[EVERY])
        if _LEAST <= every <= _MOST:
            start_new_thread(_watch, (every,))


def _watch(every: float) -> None:
    c10d: Any = sys.modules["torch.distributed.distributed_c10d"]
    torch_c: Any = sys.modules["torch._C._distributed_c10d"]
    timed: WeakSet[Any] = WeakSet()
    harmless = False
    while True:
        time.sleep(every - time.time() % every)
        with suppress(Exception):  # of a torch that differs
            if _has_timed(c10d, timed):
                harmless = harmless or _is_harmless()
                if harmless:
                    note([getattr(torch_c, n) for n in _DUMPS if hasattr(torch_c, n)], c10d)


def _has_timed(c10d: Any, timed: "WeakSet[Any]") -> bool:
    """Has all groups of GPUs time their calls; returns whether there is one.
    Its references end here: a group that is destroyed must not live on in this thread."""
    groups = [group for group, (name, _) in c10d._world.pg_map.items() if "ccl" in name]
    for group in groups:
        if group not in timed:
            with suppress(RuntimeError):  # its back end is not ready, or of another device
                group._enable_collectives_timing()
                timed.add(group)
    return bool(groups)


def _is_harmless() -> bool:
    """Returns whether this thread may ask events of its process's GPU.

    A new thread is on GPU 0, where its first call would make a context of hundreds of MiB. And a
    capture of a graph would fail that another thread begins while the Flight Recorder is read.
    """
    torch = sys.modules["torch"]
    own = [n for n in range(torch.cuda.device_count()) if torch._C._cuda_hasPrimaryContext(n)]
    if not own:
        return False
    torch.cuda.set_device(own[-1])
    library, mode = ctypes.CDLL(None), ctypes.c_int(_THREADS_OWN)
    for runtime in _RUNTIMES:
        exchange = getattr(library, f"{runtime}ThreadExchangeStreamCaptureMode", None)
        if exchange is not None and exchange(ctypes.byref(mode)) == 0:
            return True
    return False


def note(dumps: Iterable[Callable[..., bytes]], c10d: Any) -> None:
    """Notes the newest calls of which these dumps tell a time. c10d: torch's module."""
    groups = {name: group for group, name in list(c10d._world.pg_names.items())}
    found = [
        entry
        for dump in dumps
        for entry in json.loads(dump(True, False)).get("entries", ())
        if entry.get("duration_ms") is not None
    ]
    for entry in sorted(found, key=lambda each: each["time_created_ns"])[-_KEPT:]:
        name, text = entry["process_group"]
        if name not in groups:  # it was destroyed
            continue
        places = c10d._world.pg_group_ranks[groups[name]]
        ranks = tuple(sorted(places, key=places.get))
        backend, _, op = entry["profiling_name"].partition(":")
        types = [*entry["input_dtypes"], *entry["output_dtypes"]]
        dtype = getattr(sys.modules["torch"], types[0].lower(), None) if types else None
        numbers = [functools.reduce(int.__mul__, size, 1) for size in entry["input_sizes"]]
        message = op.split(" ")[0] in _ROLES
        _calls((name, backend, text, ranks), op.split(" ")[0], str(dtype or "")[6:]).timed(
            None if message else entry["collective_seq_id"],
            sum(numbers) * getattr(dtype, "itemsize", 1),
            entry["time_created_ns"],
            round(entry["duration_ms"] * 1e6),
        )


@functools.lru_cache(maxsize=1024)
def _calls(group: tuple[str, str, str, tuple[int, ...]], op: str, dtype: str) -> Any:
    # As c10d's names begin, where they have an underscore.
    op = op.replace("_all_gather_base", "_allgather_base")
    facts = (*group, len(group[3]), 0xFFFFFFFF)
    return _native.core().TraceCalls(facts, op, _ROLES.get(op, 0), 0, dtype)
