"""Which collectives a process has issued and which are open: every c10d operation, whoever issued
it, written into the process's record file while it is armed.

Seen are calls of torch.distributed, DDP's gradient buckets, functional and compiled collectives and
point-to-point operations, from any thread; other operations cost nothing more. Not seen are replays
of CUDA graphs, groups whose class is written in Python, and what is sent past torch.distributed.
"""

from os import PathLike, fspath
from typing import Literal, NamedTuple

from oddrank import _native


class Collective(NamedTuple):
    """One operation as its process issued it."""

    thread: int
    """Native id of the thread that issued it (threading.get_native_id)."""
    group: str
    """Name of the process group, the same on all its ranks."""
    seq: int | None
    """The backend's number of it in its group; None: not issued to the end, or not numbered."""
    op: str
    """c10d's name: allreduce_, _allgather_base_, send, ..."""
    bytes: int
    """What this rank hands in (broadcast, scatter, recv: what it gets); 0 for barriers."""
    state: Literal["open", "ended", "issued"]
    """open: begun and not ended. ended: completed or failed; a send or recv of gloo only when it
    was waited for, or its Work is gone. issued: a device (NCCL) goes on with it, and when it ends
    is not recorded."""
    begin_ns: int | None
    """Wall clock; None: overwritten by newer ones, or the record's clocks can't say."""
    end_ns: int | None


def start() -> None:
    """Records from now on, while this process is armed.

    Call it the first time while no other thread issues a collective. MissingPartError where
    `_torch` is absent or does not fit the torch that runs.
    """
    _native.torch().start_collectives(_native.core().trace_collective_sink())


def stop() -> None:
    """Records no more begins; what is open is still recorded as it ends."""
    _native.torch().stop_collectives()


def read(path: str | PathLike[str]) -> list[Collective]:
    """What a record file still holds, in the order of issue: the newest, and all that are open.

    The process may be at work, hung or dead. OddrankError where it is no record file.
    """
    return [Collective(*fields) for fields in _native.core().trace_collectives(fspath(path))]
