"""The data of a sweep: the ranks' devices and links, rows, and faults in them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

from oddrank.bench.case import NO_OP
from oddrank.control.stages import RunState
from oddrank.finding import size_text
from oddrank.machine.device import GpuFacts
from oddrank.machine.settings import Setup


class Mismatch(TypedDict):
    """The first wrong value that `observer` saw, its index in the buffer, and how many it saw.

    element: its index in the source's data; turn: the pattern's number: both for `gathered_wrong`.
    among: the name of the group that ran the case.
    """

    observer: int
    case: str
    index: int
    expected: float
    got: float
    wrong: int
    element: int
    turn: int
    among: str


class Key(NamedTuple):
    """Identifies a measured case: rows with the same key can be compared."""

    backend: str
    collective: str
    dtype: str
    op: str
    bytes: int
    inplace: bool

    def __str__(self) -> str:
        place = "in place" if self.inplace else "out of place"
        kind = self.dtype if self.op == NO_OP else f"{self.dtype} {self.op}"
        size = size_text(self.bytes, exact=True)
        return f"{self.collective} {kind} {size} {place} ({self.backend})"


@dataclass(frozen=True)
class Row:
    """Times in microseconds, bandwidths in 1e9 bytes a second; None: unknown, see reason.

    n: ranks. wrong: wrong values, as all ranks saw them together. mean_us: the time of an
    iteration: of each block of iterations its mean on the slowest rank, as nccl-tests has it with
    -a 3. algbw and busbw come from it. iterations: how many it is the mean of; passes: in how many
    passes they were made. median_us, p95_us, p99_us, min_us, cv: of single iterations, each as long
    as its slowest rank; stalls show here, and jitter makes them longer than the mean. error: half
    the 95 % confidence interval of the median, relative to it. samples_us: these iterations, in
    their order, evenly thinned. groups: with --split each group's ranks and figures; then the row's
    own figures are the slowest group's, and n is the ranks of one group.
    """

    backend: str
    collective: str
    dtype: str
    op: str
    bytes: int
    count: int
    inplace: bool
    n: int
    check: str  # "ok", "wrong", or "skipped"
    wrong: int = 0
    iterations: int = 0
    passes: int = 0
    mean_us: float | None = None
    median_us: float | None = None
    p95_us: float | None = None
    p99_us: float | None = None
    min_us: float | None = None
    cv: float | None = None
    error: float | None = None
    algbw_GBps: float | None = None
    busbw_GBps: float | None = None
    reason: str | None = None
    samples_us: tuple[float, ...] = ()
    groups: tuple[Mapping[str, Any], ...] = ()

    @property
    def is_skipped(self) -> bool:
        return self.check == "skipped"

    @property
    def is_wrong(self) -> bool:
        return self.check == "wrong"

    @property
    def key(self) -> Key:
        return Key(self.backend, self.collective, self.dtype, self.op, self.bytes, self.inplace)


class PassResult(TypedDict):
    """A rank's result of a pass, for all passes of the case so far.

    skipped: why the case was not measured. mean: microseconds of `iterations`; times: the slowest
    rank's microseconds of single ones, one list a pass; only rank 0 has them. over: no further pass
    is needed.
    """

    backend: str
    skipped: str | None
    mismatch: Mismatch | None
    wrong_ranks: list[int]
    mean: float | None
    iterations: int
    times: list[list[float]]
    over: bool


class Devices(GpuFacts, Setup):
    """A rank's result of stage devices."""


class Connected(TypedDict):
    """A rank's result of stage connect.

    transport: torch's back end. group: the number of its group with --split, else 0. links: of its
    GPU to others (oddrank.machine.nvml), or why they are unknown.
    """

    transport: str
    group: int
    gloo_interface: str | None
    nccl: str | None
    links: dict[str, Any] | None


def devices_of(run: RunState) -> Mapping[int, Devices]:
    return run.of("devices")


def connected_of(run: RunState) -> Mapping[int, Connected]:
    return run.of("connect")
