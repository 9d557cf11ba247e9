"""Which collectives this process has issued: every c10d operation, whoever issued it.

Seen are calls of torch.distributed, DDP's gradient buckets, functional and compiled collectives and
point-to-point operations, from any thread; other operations cost nothing more. Not seen are replays
of CUDA graphs, groups whose class is written in Python, and what is sent past torch.distributed.
"""

from typing import NamedTuple

from oddrank import _native


class Collective(NamedTuple):
    """One operation as this process issued it."""

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


def start(limit: int = 65_536) -> None:
    """Starts over with an empty list of the newest `limit` operations.

    Call it the first time while no other thread issues a collective. MissingPartError where
    `_torch` is absent or does not fit the torch that runs.
    """
    if limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}")
    _native.torch().start_collectives(limit)


def stop() -> None:
    """Records no more; what is recorded stays readable."""
    _native.torch().stop_collectives()


def records() -> list[Collective]:
    """What was recorded since start(), in the order of issue."""
    return [Collective(*fields) for fields in _native.torch().collectives()]


def dropped() -> int:
    """How many older operations the limit has pushed out since start()."""
    count: int = _native.torch().dropped_collectives()
    return count
