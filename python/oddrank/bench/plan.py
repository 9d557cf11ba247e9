"""What a sweep will do, before it does anything: its tasks, and the memory that they need."""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from oddrank.bench.case import DTYPES, Case
from oddrank.bench.collectives import COLLECTIVES
from oddrank.bench.windows import capacity_of, needed
from oddrank.errors import OddrankError

# Of a buffer, for windows of small cases: two buffers and 64 MiB are the most we take.
_FOR_WINDOWS = 32 << 20
_MOST_TASKS = 5000
_LEAST_SECONDS = 0.08  # of a case, whatever the budget: half of it gets it warm (pace.py)
_FIXED_BYTES = 1 << 20  # a run of no bytes takes about as long as moving so many
_LONGEST_NAME = 47  # of a stage
AUTO = "auto"
BACKENDS = ("nccl", "c10d")
# auto: the place that the collective mostly has.
PLACES = (AUTO, "in", "out")


@dataclass(frozen=True)
class Task:
    """A case on a back end ("auto": whichever fits the device); `name` is its stage's."""

    backend: str
    case: Case
    name: str


def tasks(
    *,
    backends: Sequence[str],
    collectives: Sequence[str],
    dtypes: Sequence[str],
    ops: Sequence[str],
    sizes: Sequence[int],
    places: Sequence[str],
    world: int,
) -> list[Task]:
    """In the order of the table, each once: several sizes may round to one, ops may not matter.

    OddrankError where there are more than a job can walk through.
    """
    found: dict[tuple[str, Case], Task] = {}
    wanted = product(backends, collectives, dtypes, ops, places, sizes)
    for backend, row, dtype, op, place, size in wanted:
        collective = COLLECTIVES[row]
        in_place = collective.in_place if place == AUTO else place == "in"
        case = collective.case(dtype, size, op, in_place, world)
        words = [backend] if len(backends) > 1 else []
        words += [str(case)]
        if case.in_place != collective.in_place:
            words += ["in place" if in_place else "out of place"]
        name = " ".join(words)
        if len(name) > _LONGEST_NAME:
            name = f"{name[: _LONGEST_NAME - 7]} #{len(found)}"
        found.setdefault((backend, case), Task(backend, case, name))
        if len(found) > _MOST_TASKS:
            raise OddrankError(
                f"this is more than {_MOST_TASKS} cases: give fewer --sizes, --collectives,"
                " --dtypes, --ops or --place"
            )
    return list(found.values())


def memory_of(case: Case, world: int) -> int:
    """Bytes of one case, one window; the same on all ranks, though the root may need more."""
    return needed(_buffer_of(case, world), case.in_place)


def reserve(cases: Iterable[Case], world: int, limit: float) -> int:
    """Bytes of one memory that all cases use in turn, each by its own cut, `limit` at the most.

    As many as the largest needs that fits, or more: room for windows of small ones.
    """
    largest = windows = 0
    for case in cases:
        memory = memory_of(case, world)
        if memory <= limit:
            largest = max(largest, memory)
            room = min(_FOR_WINDOWS, capacity_of(_buffer_of(case, world)))
            windows = max(windows, needed(room, case.in_place))
    return max(largest, int(min(windows, limit)))


def _buffer_of(case: Case, world: int) -> int:
    """Bytes of the larger one of its buffers."""
    layouts = [COLLECTIVES[case.collective].layout(case, rank, world) for rank in (0, world - 1)]
    return DTYPES[case.dtype] * max(max(at.send_count, at.recv_count) for at in layouts)


class Budget:
    """Seconds for all that is measured, shared among what is still to come.

    A case's share grows with the square root of what a run of it takes: so the errors of all are
    smallest together (J. Neyman, "On the two different aspects of the representative method",
    Journal of the Royal Statistical Society 97 (1934), p. 558, with costs). Alike for all, the
    large ones would have a hundred times fewer runs.
    """

    def __init__(self, seconds: float, cases: Iterable[Case]) -> None:
        self._seconds = seconds
        self._weights = [math.sqrt(_FIXED_BYTES + case.bytes) for case in cases]
        self._began: float | None = None

    def part(self, of_all: float) -> float:
        """Seconds of something that comes before the cases: at most that part of all."""
        return min(self._seconds * of_all, self._unused())

    def share(self) -> float:
        """Seconds of the next case: what quick ones leave is there for the slow."""
        share = self._unused() * self._weights[0] / sum(self._weights)
        del self._weights[0]
        return max(_LEAST_SECONDS, share)

    def _unused(self) -> float:
        now = time.monotonic()
        self._began = self._began or now
        return max(0.0, self._seconds - (now - self._began))
