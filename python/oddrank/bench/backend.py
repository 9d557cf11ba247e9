"""What a back end is: means to run a case. The loops of a sweep know no other names."""

from typing import Any, Protocol

from oddrank.bench.case import Case

# Stamped runs in a block of a back end that queues: enough over the blocks of a case.
_MOST_STAMPED = 32
_STAMPED_SHARE = 4


def stamped(n: int) -> int:
    """How many runs a back end that queues `n` of them adds, each waited for, to stamp arrivals.

    Laps made for `n` hold them, and one before for all that were queued.
    """
    return min(n - 1, max(1, n // _STAMPED_SHARE), _MOST_STAMPED)


class Operation(Protocol):
    """One case, ready to run, on the memory that it works on.

    send, recv: addresses of the first element of each buffer in the window that `once` works on.
    footprint: bytes that the runs go over before they come back to the first.
    """

    send: int
    recv: int
    footprint: int

    def once(self) -> None:
        """One run, through to its end, in the first window: for the check by value."""

    def block(self, laps: Any, n: int) -> list[float]:
        """`n` timed runs in turn over all windows: microseconds of each, as this rank saw them.

        laps: stamps when this rank came to each run, or, where runs are queued, first to all of
        them and then to `stamped(n)` further ones (oddrank.control.stages.Context.laps).
        """

    def sent(self) -> Any:
        """What this rank sends, as a tensor, or None: for the seam where tests spoil it."""

    def ready(self) -> None:
        """Leaves in all windows what may be reduced over and over without growing."""


class Backend(Protocol):
    """name: "c10d:gloo", "c10d:nccl" or "nccl"; device: of CUDA, or -1 for the host's memory."""

    name: str
    device: int

    def refuses(self, case: Case) -> str | None:
        """Why it cannot run the case on this rank, or None; another rank's GPU may be older."""

    def prepare(self, case: Case) -> Operation:
        """The case on the memory reserved; runs nothing."""

    def reserve(self, size: int) -> None:
        """Bytes of memory for all cases to come, which `windows.buffers` cuts for each; 0: none."""
