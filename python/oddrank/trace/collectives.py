"""Records the collectives that a process has issued, and which are open, in its record file.

It sees calls of torch.distributed, DDP's gradient buckets, functional and compiled collectives and
point-to-point operations, from any thread; other operations cost nothing more. It does not see
replays of CUDA graphs, groups whose class is written in Python, and data sent without
torch.distributed.
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
    """The backend's sequence number in the group; None: not issued to the end, or not numbered."""
    op: str
    """c10d's name: allreduce_, _allgather_base_, send, ..."""
    bytes: int
    """Bytes that this rank puts in (broadcast, scatter, recv: that it gets); 0 for barriers."""
    state: Literal["open", "ended", "issued"]
    """open: begun and not ended. ended: completed or failed; gloo's send and recv end once they are
    waited for, or their Work is gone. issued: it goes on on a device (NCCL); its end is not
    recorded."""
    begin_ns: int | None
    """Wall clock; None: overwritten by newer ones, or the record's clocks can't convert it."""
    end_ns: int | None


def start() -> None:
    """Records collectives from now on, while this process is armed.

    During the first call no other thread may issue a collective. MissingPartError if `_torch` is
    absent or does not fit the running torch.
    """
    _native.torch().start_collectives(_native.core().trace_collective_sink())


def stop() -> None:
    """Stops recording new collectives; still records the end of open ones."""
    _native.torch().stop_collectives()


def read(path: str | PathLike[str]) -> list[Collective]:
    """Reads the collectives that a record file still holds, in the order of issue.

    These are the newest ones and all open ones. The process may be running, hung or dead.
    OddrankError if `path` is no record file.
    """
    return [Collective(*fields) for fields in _native.core().trace_collectives(fspath(path))]
