"""Timestamps of many collectives of one rank; made by `Session.timestamps`."""

from typing import Protocol


class Timestamps(Protocol):
    """Times of collectives. Between enter and leave the rank shows as waiting for others.

    enter and leave cost less than 100 ns each. Both are marks of this rank's progress: every rank
    must make the same number. One thread.
    """

    @property
    def count(self) -> int:
        """Collectives that have ended and were kept."""

    @property
    def dropped(self) -> int:
        """Collectives beyond the capacity: not kept."""

    def enter(self) -> None:
        """Begins a collective."""

    def leave(self) -> None:
        """Ends the collective. Does nothing without enter()."""

    def starts(self) -> bytes:
        """Returns when each collective began: int64 ns of this host's CLOCK_MONOTONIC.

        As numbers: array("q", timestamps.starts()) or memoryview(timestamps.starts()).cast("q").
        """

    def durations(self) -> bytes:
        """Returns the ns from enter to leave of each collective: int64, as many as starts()."""
