"""Every value of a case, compared with what it must be; and whose values were wrong, if any.

The values are made and compared where they lie, by the compiled parts: csrc/bench/verify.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from oddrank import _native
from oddrank.bench.c10d_calls import all_gather
from oddrank.bench.case import DTYPES, NO_OP, Case
from oddrank.bench.collectives import COLLECTIVES, Segment

if TYPE_CHECKING:
    from oddrank.bench.backend import Backend, Operation
    from oddrank.bench.group import Group

# A pattern in which more ranks take part than one element can add up is turned this often at most.
_MOST_TURNS = 8
# Elements around a wrong one that all ranks' own values are looked at.
_AROUND = 4096
_MOST_GATHERED = 64 << 20


@dataclass(frozen=True)
class Mismatch:
    """The first wrong value that `observer` saw, where it lies in its buffer, and how many.

    element, turn: of whose data it is the element, and of which pattern, for `gathered_wrong`.
    among: the name of the group whose ranks did it together.
    """

    observer: int
    case: str
    index: int
    expected: float
    got: float
    wrong: int
    element: int = 0
    turn: int = 0
    among: str = "world"


class Values:
    """Fills and checks segments of an operation's buffers: on the host, or on the GPU."""

    def __init__(self, device: int, world: int) -> None:
        if device < 0:
            core = _native.core()
            self._fill: Callable[..., Any] = core.bench_fill
            self._check: Callable[..., Any] = core.bench_check
        else:
            cuda = _native.cuda()
            self._fill = lambda *args: cuda.gpu_fill(device, *args)
            self._check = lambda *args: cuda.gpu_check(device, *args)
        self._world = world

    def fill(self, address: int, case: Case, op: str, segment: Segment, turn: int) -> None:
        at = address + segment.offset * DTYPES[case.dtype]
        source, first, count = segment.source, segment.first, segment.count
        self._fill(at, case.dtype, op, source, self._world, first, count, turn)

    def check(
        self, address: int, case: Case, op: str, segment: Segment, turn: int
    ) -> tuple[int, int, float, float]:
        """(how many are wrong, the first of them in the segment, expected, got)."""
        at = address + segment.offset * DTYPES[case.dtype]
        source, first, count = max(0, segment.source), segment.first, segment.count
        found: tuple[int, int, float, float] = self._check(
            at, case.dtype, op, source, self._world, first, count, turn
        )
        return found


def verify(
    group: "Group", backend: "Backend", case: Case, operation: "Operation", turns: int = 0
) -> Mismatch | None:
    """Runs the case until every rank has contributed, or `turns` times; all ranks together.

    What this rank saw first of wrong values; None: all were right here.
    """
    values = Values(backend.device, group.world)
    layout = COLLECTIVES[case.collective].layout(case, group.rank, group.world)
    seen: Mismatch | None = None
    for _ in range(turns or turns_of(case, group.world)):
        # Never the same twice: what an earlier case left must not pass for this one's.
        turn = group.next_turn()
        for segment in layout.send:
            values.fill(operation.send, case, case.op, segment, turn)
        if layout.send:
            group.context.own(operation.sent())
        group.context.step(f"verify {case}", waiting=True)
        operation.once()
        group.context.step(f"verified {case}")
        for segment in layout.recv:
            wrong, index, expected, got = values.check(operation.recv, case, case.op, segment, turn)
            if wrong and seen is None:
                at, element = segment.offset + index, segment.first + index
                seen = Mismatch(
                    group.ranks[group.rank], str(case), at, expected, got, wrong, element, turn,
                    group.among,
                )  # fmt: skip
    return seen


def localise(group: "Group", backend: "Backend", case: Case, seen: Mismatch | None) -> list[int]:
    """Where any rank saw a wrong value: whose own values are wrong, without arithmetic, from here.

    All ranks call it together; nothing is done, and nobody returned, where none saw any.
    """
    nobody = group.world
    (observer,) = group.smallest([group.rank if seen else nobody])
    if int(observer) == nobody:
        return []
    place = [seen.element, seen.turn] if seen else [0, 0]
    element, turn = group.said_by(int(observer), place)
    return gathered_wrong(group, backend, case, element, turn)


def as_payload(mismatch: Mismatch | None) -> dict[str, Any] | None:
    return None if mismatch is None else asdict(mismatch)


def turns_of(case: Case, world: int) -> int:
    """How often until every rank has contributed, at most eight times; a barrier is run once, and
    has nothing to see."""
    if not case.count:
        return 1
    turns: int = _native.core().bench_turns(case.dtype, case.op, world, case.count, _MOST_TURNS)
    return turns


def gathered_wrong(
    group: "Group", backend: "Backend", case: Case, element: int, turn: int
) -> list[int]:
    """Ranks, as the job numbers them, whose own values around `element` are wrong here, gathered
    one by one.

    All ranks call it together. Keyed by rank: who got another's values sees that, too.
    """
    size = DTYPES[case.dtype]
    count = max(1, min(_AROUND, case.count, _MOST_GATHERED // (group.world * size)))
    start = max(0, element - count // 2)
    torch, values = group.torch, Values(backend.device, group.world)
    dtype = getattr(torch, case.dtype)
    mine = torch.empty(count * size, dtype=torch.uint8, device=group.device)
    pieces = torch.empty(group.world * count * size, dtype=torch.uint8, device=group.device)
    own = Segment(0, count, group.rank, start)
    values.fill(mine.data_ptr(), case, NO_OP, own, turn)
    group.context.own(mine.view(dtype))
    group.context.step(f"gather {case}", waiting=True)
    all_gather(group.dist)(pieces, mine, group.handle)
    group.synchronize()
    group.context.step(f"gathered {case}")
    return [
        group.ranks[rank]
        for rank in range(group.world)
        if values.check(
            pieces.data_ptr(), case, NO_OP, Segment(rank * count, count, rank, start), turn
        )[0]
        != 0
    ]
