"""The interface of a back end, and the windows into which its memory is cut for a case.

A case sends and receives in turn in several parts of the memory, its windows, so that caches serve
it less. As many windows as fit are used. The memory holds the sweep's largest case and little more:
smaller cases may still find all their windows in the cache.
"""

from typing import Any, Protocol

from oddrank.bench.case import Case

# Stamped runs in one block of a back end that queues; a case has many blocks.
_MOST_STAMPED = 32
_STAMPED_SHARE = 4


def stamped(n: int) -> int:
    """Returns how many runs a back end adds to `n` queued ones to stamp arrivals.

    It waits for each of them. Timestamps with room for `n` hold them and one for all queued runs.
    """
    return min(n - 1, max(1, n // _STAMPED_SHARE), _MOST_STAMPED)


class Operation(Protocol):
    """One case, ready to run in its windows.

    send, recv: addresses of the first element of each buffer in the window that `once` uses.
    footprint: bytes of all windows, which the runs use in turn.
    """

    send: int
    recv: int
    footprint: int

    def once(self) -> None:
        """Runs the case once in the first window and waits for its end, for the check by value."""

    def block(self, timestamps: Any, n: int) -> list[float]:
        """Times `n` runs, in turn over all windows. Returns this rank's microseconds of each.

        timestamps (oddrank.control.stages.Context.timestamps): one pair around each run; if runs
        are queued, one pair around all of them, then around each of `stamped(n)` further ones.
        """

    def sent(self) -> Any:
        """Returns this rank's send buffer as a tensor, for tests that spoil it, or None."""

    def ready(self) -> None:
        """Fills all windows with values that don't grow when they are reduced again and again."""


class Backend(Protocol):
    """name: "c10d:gloo", "c10d:nccl" or "nccl"; device: CUDA device, or -1: the host's memory."""

    name: str
    device: int

    def refuses(self, case: Case) -> str | None:
        """Returns why this rank can't run the case, or None; another rank's GPU may be older."""

    def prepare(self, case: Case) -> Operation:
        """Returns the case on the memory reserved; runs nothing."""

    def reserve(self, size: int) -> None:
        """Reserves `size` bytes for all cases to come; `buffers` cuts them for each; 0: none."""


CACHES = 128 << 20
"""Bytes, more than any GPU's cache of today (L2: 50 to 126 MiB)."""
_MOST = 64
# Alignment of every window, the same on all ranks: registered buffers need equal offsets.
ALIGNMENT = 512


def needed(size: int, in_place: bool) -> int:
    """Returns the bytes of memory for one window of a case of `size` bytes."""
    return size if in_place else 2 * _stride(size)


def buffers(memory: int, in_place: bool) -> tuple[int, int]:
    """Cuts `memory` bytes for a case: (bytes of a buffer, start of the receive buffer).

    Out of place: two halves, the first one to send from. In place: both buffers are the whole.
    """
    half = memory // 2 // ALIGNMENT * ALIGNMENT
    return (memory, 0) if in_place else (half, half)


def capacity_of(size: int) -> int:
    """Returns the bytes of a buffer for the most windows of a case of `size` bytes."""
    stride = _stride(size)
    return size + stride * (min(_MOST, -(-CACHES // stride)) - 1)


def offsets(size: int, capacity: int) -> list[int]:
    """Returns each window's offset in the buffer in bytes: as many as fit, at least one."""
    if size == 0:
        return [0]
    stride = _stride(size)
    number = min(_MOST, -(-CACHES // stride), 1 + max(0, capacity - size) // stride)
    return [i * stride for i in range(max(1, number))]


def footprint(size: int, windows: int, in_place: bool) -> int:
    """Returns the bytes of `windows` windows of a case of `size` bytes."""
    return size * windows * (1 if in_place else 2)


def _stride(size: int) -> int:
    return max(ALIGNMENT, -(-size // ALIGNMENT) * ALIGNMENT)
