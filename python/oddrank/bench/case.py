"""One thing to measure: a collective, a dtype, an operation, a size, in place or not.

The collectives have a row each: the data of every rank, and the factor from algbw to busbw. Sizes
and bus factors: nccl-tests, doc/PERFORMANCE.md. A new collective is a row here and one in each back
end that can issue it (oddrank.bench.c10d, oddrank.bench.native).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from oddrank.errors import OddrankError
from oddrank.finding import size_text

# Name in torch -> bytes of an element.
DTYPES = {
    "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "float64": 8,
    "int8": 1, "int32": 4, "int64": 8, "uint8": 1, "uint32": 4, "uint64": 8,
}  # fmt: skip
# Names that nccl-tests and people use.
DTYPE_ALIASES = {
    "fp32": "float32", "float": "float32", "fp16": "float16", "half": "float16",
    "bf16": "bfloat16", "fp8": "float8_e4m3fn", "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2", "fp64": "float64", "double": "float64",
}  # fmt: skip
OPS = ("sum", "min", "max", "avg", "prod")
NO_OP = "none"  # the op of collectives that reduce nothing


@dataclass(frozen=True)
class Case:
    """`bytes` is the size as nccl-tests counts it: one rank's buffer, or all ranks' together.

    The collective decides which of the two. `Collective.case` makes
    cases for a world and rounds the size to a multiple that its ranks can share.
    """

    collective: str
    dtype: str
    bytes: int
    op: str = "sum"
    in_place: bool = True

    @property
    def count(self) -> int:
        return self.bytes // DTYPES[self.dtype]

    def __str__(self) -> str:
        """Names the case for people, without whether it is in place."""
        words = [self.collective, self.dtype]
        words += [self.op] if self.op not in ("sum", NO_OP) else []
        return " ".join([*words, size_text(self.bytes, exact=True)])


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_LARGEST = 1 << 40
_MOST = 1000
# Accepted forms, for error messages.
_RANGES = "SMALLEST:LARGEST[:xFACTOR or :+STEP] or a list, as in 8:256M:x2"
_ONE = "one size, as in 16M"


def parse_sizes(text: str) -> list[int]:
    """Returns the sizes in bytes, ascending, each once. OddrankError if one is not a size.

    `8:256M` doubles, `8:256M:x4` goes in factors of 4, `1M:4M:+1M` in steps of 1M; commas join
    ranges and single sizes; K, M, G are powers of 1024. A range always includes its largest size,
    even if no factor or step reaches it exactly.
    """
    sizes = {size for part in text.split(",") for size in _range(part, text)}
    if len(sizes) > _MOST:
        raise _bad(text, f"these are more than {_MOST} sizes")
    return sorted(sizes)


def parse_size(text: str) -> int:
    return _size(text, text, _ONE)


def _range(text: str, whole: str) -> list[int]:
    parts = text.split(":")
    if not 1 <= len(parts) <= 3:
        raise _bad(whole, "too many colons")
    smallest = _size(parts[0], whole)
    largest = _size(parts[1], whole) if len(parts) > 1 else smallest
    if largest < smallest:
        raise _bad(whole, "the largest size is below the smallest")
    factor, step = 2, 0
    if len(parts) == 3:
        factor, step = _progress(parts[2], whole)
    sizes: list[int] = []
    while smallest < largest and len(sizes) <= _MOST:
        sizes.append(smallest)
        smallest = smallest + step if step else smallest * factor
    return [*sizes, largest]


def _progress(text: str, whole: str) -> tuple[int, int]:
    """Returns (factor, 0) or (1, step)."""
    if text.strip().startswith("+"):
        return 1, _size(text.strip()[1:], whole)
    if not re.fullmatch(r"x[0-9]{1,4}", text) or int(text[1:]) < 2:
        raise _bad(whole, f"{text[:20]!r} is not a factor of 2 or more, like x2, nor a step, +1M")
    return int(text[1:]), 0


def _size(text: str, whole: str, write: str = _RANGES) -> int:
    match = re.fullmatch(r"([0-9]{1,13})([KMG]?)(i?B)?", text.strip(), re.IGNORECASE | re.ASCII)
    if match is None:
        raise _bad(whole, f"{text[:20]!r} is not a size like 8, 4K or 256M", write)
    size = int(match[1]) * _UNITS[match[2].upper()]
    if not 1 <= size <= _LARGEST:
        raise _bad(whole, f"{text[:20]} is not between 1 byte and 1024G", write)
    return size


def _bad(text: str, why: str, write: str = _RANGES) -> OddrankError:
    return OddrankError(f"{text[:60]!r}: {why}; write {write}")


# Source of a segment that holds the reduction of all ranks' data.
REDUCED = -1
ROOT = 0


@dataclass(frozen=True)
class Segment:
    """`count` elements at `offset` of a buffer: elements `first` on of rank `source`'s data."""

    offset: int
    count: int
    source: int
    first: int


@dataclass(frozen=True)
class Layout:
    """Elements that a rank fills before a run and checks after it; one buffer if in place."""

    send: tuple[Segment, ...]
    recv: tuple[Segment, ...]
    send_count: int
    recv_count: int


@dataclass(frozen=True)
class Collective:
    """A row. shares(n): number of equal parts into which n ranks cut the size.

    in_place: whether it is measured in place, as it is mostly used.
    """

    name: str
    bus_factor: Callable[[int], float]
    layout: Callable[[Case, int, int], Layout]
    shares: Callable[[int], int] = lambda n: 1
    reduces: bool = False
    in_place: bool = False

    def case(self, dtype: str, size: int, op: str, world: int) -> Case:
        """Returns the largest case of at most `size` bytes that the ranks can share evenly.
        If `size` is too small for that: the smallest one."""
        if self.name == "barrier":
            return Case(self.name, "float32", 0, NO_OP)
        unit = DTYPES[dtype] * self.shares(world)
        size = max(unit, size // unit * unit)
        return Case(self.name, dtype, size, op if self.reduces else NO_OP, self.in_place)


def parts_of(rank: int, world: int) -> list[int]:
    """Returns how many units `rank` sends to each rank in all_to_all_v: 1 to n, each once.
    A rank sends and receives n (n + 1) / 2 units in all, so all buffers have one size."""
    return [_units(rank, peer, world) for peer in range(world)]


def split_counts(case: Case, rank: int, world: int) -> tuple[list[int], list[int]]:
    """Returns the elements that `rank` sends to every rank in all_to_all_v, and receives."""
    unit = case.count // _by_pairs(world)
    sent = [parts * unit for parts in parts_of(rank, world)]
    return sent, [_units(source, rank, world) * unit for source in range(world)]


def _units(source: int, to: int, world: int) -> int:
    return 1 + (to - source) % world


def _units_before(source: int, rank: int, world: int) -> int:
    """Returns the units that `source` sends to all ranks below `rank`."""
    return rank + rank * (rank - 1) // 2 - rank * source + world * min(rank, source)


def _whole(case: Case, rank: int, world: int) -> Layout:
    count = case.count
    return Layout((Segment(0, count, rank, 0),), (Segment(0, count, REDUCED, 0),), count, count)


def _all_gather(case: Case, rank: int, world: int) -> Layout:
    part = case.count // world
    recv = tuple(Segment(source * part, part, source, 0) for source in range(world))
    return Layout((Segment(0, part, rank, 0),), recv, part, case.count)


def _reduce_scatter(case: Case, rank: int, world: int) -> Layout:
    part = case.count // world
    send = (Segment(0, case.count, rank, 0),)
    return Layout(send, (Segment(0, part, REDUCED, rank * part),), case.count, part)


def _broadcast(case: Case, rank: int, world: int) -> Layout:
    held = (Segment(0, case.count, ROOT, 0),)
    return Layout(held if rank == ROOT else (), held, case.count, case.count)


def _reduce(case: Case, rank: int, world: int) -> Layout:
    layout = _whole(case, rank, world)
    return layout if rank == ROOT else Layout(layout.send, (), case.count, case.count)


def _gather(case: Case, rank: int, world: int) -> Layout:
    layout = _all_gather(case, rank, world)
    return layout if rank == ROOT else Layout(layout.send, (), layout.send_count, 0)


def _scatter(case: Case, rank: int, world: int) -> Layout:
    part = case.count // world
    send = (Segment(0, case.count, ROOT, 0),) if rank == ROOT else ()
    recv = (Segment(0, part, ROOT, rank * part),)
    return Layout(send, recv, case.count if rank == ROOT else 0, part)


def _all_to_all(case: Case, rank: int, world: int) -> Layout:
    part = case.count // world
    send = (Segment(0, case.count, rank, 0),)
    recv = tuple(Segment(source * part, part, source, rank * part) for source in range(world))
    return Layout(send, recv, case.count, case.count)


def _all_to_all_v(case: Case, rank: int, world: int) -> Layout:
    """Returns the uneven splits.

    busbw is computed as in nccl-tests, as if 1 / n of the data stayed on its rank. With these
    splits 2 / (n (n + 1)) stays: busbw is (n + 1) / (n + 2) of the real traffic, 10 % below it on
    8 ranks and 25 % on 2.
    """
    unit = case.count // _by_pairs(world)
    send = (Segment(0, case.count, rank, 0),)
    recv, offset = [], 0
    for source, count in enumerate(split_counts(case, rank, world)[1]):
        recv.append(Segment(offset, count, source, _units_before(source, rank, world) * unit))
        offset += count
    return Layout(send, tuple(recv), case.count, case.count)


def _ring(case: Case, rank: int, world: int) -> Layout:
    count = case.count
    before = (rank - 1) % world
    return Layout((Segment(0, count, rank, 0),), (Segment(0, count, before, 0),), count, count)


def _one_way(n: int) -> float:
    return (n - 1) / n


def _by_ranks(n: int) -> int:
    return n


def _by_pairs(n: int) -> int:
    return n * (n + 1) // 2


_ROWS = (
    Collective("all_reduce", lambda n: 2 * (n - 1) / n, _whole, reduces=True, in_place=True),
    Collective("all_gather", _one_way, _all_gather, _by_ranks),
    Collective("reduce_scatter", _one_way, _reduce_scatter, _by_ranks, reduces=True),
    Collective("broadcast", lambda n: 1, _broadcast, in_place=True),
    Collective("reduce", lambda n: 1, _reduce, reduces=True, in_place=True),
    Collective("gather", _one_way, _gather, _by_ranks),
    Collective("scatter", _one_way, _scatter, _by_ranks),
    Collective("all_to_all", _one_way, _all_to_all, _by_ranks),
    Collective("all_to_all_v", _one_way, _all_to_all_v, _by_pairs),
    Collective("sendrecv", lambda n: 1, _ring),
    Collective("barrier", lambda n: 1, lambda *_: Layout((), (), 0, 0), in_place=True),
)
COLLECTIVES = {row.name: row for row in _ROWS}
