"""What times many collectives of one rank: `Session.laps` gives it."""

from typing import Protocol


class Laps(Protocol):
    """Stamps around collectives; between enter and leave the rank shows as waiting for others.

    enter and leave cost less than 100 ns each. Both are marks of this rank's progress: every rank
    must make the same laps. One thread.
    """

    @property
    def count(self) -> int:
        """Laps that were left and kept."""

    @property
    def dropped(self) -> int:
        """Laps beyond the capacity, of which nothing is known."""

    def enter(self) -> None:
        """A collective begins."""

    def leave(self) -> None:
        """It has ended. Without enter: nothing happens."""

    def starts(self) -> bytes:
        """When each lap was entered: int64 ns of this host's CLOCK_MONOTONIC.

        As numbers: array("q", laps.starts()) or memoryview(laps.starts()).cast("q").
        """

    def durations(self) -> bytes:
        """From enter to leave of each lap: int64 ns, as many as starts()."""
