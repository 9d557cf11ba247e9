"""What a sweep will do, before it does anything: its tasks, and the memory that they need."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from oddrank.bench.case import DTYPES, Case
from oddrank.bench.collectives import COLLECTIVES
from oddrank.bench.pace import MOST_VISITS
from oddrank.bench.windows import capacity_of, needed
from oddrank.errors import OddrankError

# Of a buffer, for windows of small cases: two buffers and 64 MiB are the most we take.
_FOR_WINDOWS = 32 << 20
_MOST_TASKS = 5000
# Of a stage (control's limit), that may end with the number of a visit.
_LONGEST_NAME = 47 - len(f" ({MOST_VISITS})")
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
