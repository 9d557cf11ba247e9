"""Times one case on all ranks: blocks of iterations, agreed on between them, never inside."""

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oddrank.bench.arrival import Stamps

if TYPE_CHECKING:
    from oddrank.bench.backend import Operation
    from oddrank.bench.case import Case
    from oddrank.bench.group import Group
    from oddrank.bench.pace import Pace


@dataclass(frozen=True)
class Timings:
    """Of every iteration that counts the slowest rank's time, and when this rank came to some.

    slowest in microseconds; stamps: on all ranks of the same iterations.
    """

    slowest: "array[float]"
    stamps: Stamps


def measure(group: "Group", operation: "Operation", case: "Case", pace: "Pace") -> Timings:
    """Blocks until rank 0 says that it is enough; all ranks call it together.

    pace: rank 0's decides; the others' are not asked.
    """
    slowest, stamps = array("d"), Stamps()
    count, counts = pace.first(), False
    context = group.context
    while count:
        context.step(f"time {case}")
        laps = context.laps(count)
        agreed = group.largest(operation.block(laps, count))
        if counts:
            slowest += agreed
            stamps.add(laps)
        decided = pace.after(agreed) if group.rank == 0 else (0, False)
        count, word = group.said_by(0, [decided[0], int(decided[1])])
        counts = bool(word)
    return Timings(slowest, stamps)
