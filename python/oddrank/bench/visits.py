"""Each case of a sweep is visited several times, all others in between.

What passes by (another job's traffic, a clock that throttles) then hurts a visit to each, and not
all that is known of one: runs of a sweep differ less, and the error of a row says by how much.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from oddrank.bench.arrival import Stamps
from oddrank.bench.pace import VISITS_THAT_TELL, error_of_visits
from oddrank.bench.plan import Task
from oddrank.bench.timing import Timings


@dataclass(frozen=True)
class Visit:
    """number: from 1 to `of`, the last one. place: of its task among all."""

    task: Task
    place: int
    number: int
    of: int

    @property
    def name(self) -> str:
        """Of its stage."""
        return self.task.name if self.number == 1 else f"{self.task.name} ({self.number})"


def in_turn(tasks: Sequence[Task], times: int) -> list[Visit]:
    """All visits, back end by back end: its memory and its connections are made once."""
    return [
        Visit(task, place, number, times)
        for _, same in groupby(enumerate(tasks), key=lambda one: one[1].backend)
        for cases in [list(same)]
        for number in range(1, times + 1)
        for place, task in cases
    ]


@dataclass
class Series:
    """What a rank keeps of a case from visit to visit.

    times: the slowest rank's microseconds of each iteration, a list a visit. stamps: on rank 0's
    clock; clock_error: the largest bound of the offset to it, in nanoseconds.
    """

    times: list[list[float]] = field(default_factory=list)
    stamps: Stamps = field(default_factory=Stamps)
    clock_error: int = 0

    def add(self, timings: Timings, clock: tuple[int, int]) -> None:
        """clock: nanoseconds from this rank's clock to rank 0's, and the error bound."""
        offset, error = clock
        self.times.append(list(timings.slowest))
        self.stamps.follow(timings.stamps, offset)
        self.clock_error = max(self.clock_error, error)

    def is_known(self, target: float) -> bool:
        """Whether the visits are enough to tell how much they differ, and it is that little."""
        return len(self.times) >= VISITS_THAT_TELL and error_of_visits(self.times) <= target
