"""The plan of a sweep: its tasks, their passes, and the memory that they need."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, product

from oddrank.bench.backend import capacity_of, needed
from oddrank.bench.case import DTYPES, Case
from oddrank.bench.collectives import COLLECTIVES
from oddrank.bench.sampling import MOST_PASSES
from oddrank.errors import OddrankError

# Bytes of a buffer for the windows of small cases; both buffers take 64 MiB.
_FOR_WINDOWS = 32 << 20
_MOST_TASKS = 5000
# A stage's name has at most 47 characters (control's limit) and may end with a pass's number.
_LONGEST_NAME = 47 - len(f" ({MOST_PASSES})")
AUTO = "auto"
BACKENDS = ("nccl", "c10d")
# auto: in place or out of place as the collective is mostly used.
PLACES = (AUTO, "in", "out")


@dataclass(frozen=True)
class Task:
    """A case on a back end ("auto": the one that fits the device); `name` names its stage."""

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
    """Returns the tasks in the order of the table, each once: several sizes may round to one.

    OddrankError if there are more than _MOST_TASKS.
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


@dataclass(frozen=True)
class Pass:
    """One pass over a case. number: 1 to `of`; index: index of its task among all tasks."""

    task: Task
    index: int
    number: int
    of: int

    @property
    def name(self) -> str:
        """The name of the pass's stage."""
        return self.task.name if self.number == 1 else f"{self.task.name} ({self.number})"


def in_turn(tasks: Sequence[Task], times: int) -> list[Pass]:
    """Returns all passes, one back end after the other: each reserves its memory once."""
    return [
        Pass(task, index, number, times)
        for _, same in groupby(enumerate(tasks), key=lambda one: one[1].backend)
        for cases in [list(same)]
        for number in range(1, times + 1)
        for index, task in cases
    ]


def memory_of(case: Case, world: int) -> int:
    """Returns the bytes of one case in one window: the most that any rank needs."""
    return needed(_buffer_of(case, world), case.in_place)


def reserve(cases: Iterable[Case], world: int, limit: float) -> int:
    """Returns the bytes of the memory that all cases use in turn, at most `limit`.

    Enough for the largest case that fits, and for several windows of small ones.
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
    """Returns the bytes of the case's largest buffer, on the first and the last rank."""
    layouts = [COLLECTIVES[case.collective].layout(case, rank, world) for rank in (0, world - 1)]
    return DTYPES[case.dtype] * max(max(at.send_count, at.recv_count) for at in layouts)
