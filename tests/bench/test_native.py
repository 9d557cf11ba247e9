"""The back ends: the choice, what they refuse, and how operations run."""

from itertools import product
from types import SimpleNamespace
from typing import Any
from unittest import mock

from bench.told import refusal
from oddrank import _native
from oddrank.bench.backend import ALIGNMENT, runs_of
from oddrank.bench.c10d import C10d
from oddrank.bench.case import COLLECTIVES, DTYPES, NO_OP, OPS, Case
from oddrank.bench.native import Native, NativeOperation
from oddrank.bench.sweep import SweepOptions, _choose
from oddrank.control.stages import RunState

BLOCKING = "NCCL_COMM_BLOCKING is set: unset it"
WELL = {"gpus": 2, "gpu_id": None, "local_world": 2, "cuda_part": "", "obstacle": ""}


class Settings(Native):
    """A back end without a communicator."""

    def __init__(self, world: int) -> None:
        self.rank, self.world, self.device, self.seconds = 0, world, 0, 1.0
        self.nccl = {"missing": []}


class Runs:
    """Runs as csrc/bench/nccl/operation.cpp does, and counts the uses of each window.

    A run takes 1 us, with an event after it 3.
    """

    send, recv = 0, 0
    connected = False

    def __init__(self, windows: int) -> None:
        self.used, self.most, self.told = [0] * windows, 0, list[Any]()

    def use(self, turn: int) -> None:
        self.used[turn % len(self.used)] += 1
        self.most = max(self.most, *self.used)

    def block(self, n: int, *, each: bool, seconds: float) -> tuple[list[float], float]:
        self.told.append(("each" if each else "mean", n))
        first = [] if self.connected else [0]
        self.connected = True
        for turn in [*first, 0, *range(n)]:  # the second one fills the queue
            self.use(turn)
        return [3.0] * n if each else [], 3.0 if each else 1.0

    def written(self, device: int, address: int, *args: Any, **options: Any) -> None:
        self.told.append("noise")
        self.used[address // ALIGNMENT] = 0


def prepared(monkeypatch: Any, case: Case, world: int, runs: Runs) -> NativeOperation:
    """Returns the case on as many windows as `runs` has, filled."""
    windows = len(runs.used)
    cuda = mock.Mock(gpu_noise=runs.written)
    cuda.Operation.return_value = runs
    monkeypatch.setattr(_native, "cuda", lambda: cuda)
    memory = SimpleNamespace(bytes=ALIGNMENT * windows, data=0)
    operation = NativeOperation(Settings(world), None, memory, case)
    assert cuda.Operation.call_args.kwargs["windows"] == windows
    operation.ready()
    return operation


def test_long_runs_are_timed_once_and_the_mean_of_short_ones_has_no_events_between_them(
    monkeypatch,
):
    for n, mean, order in ((8, 3.0, [("each", 8)]), (100, 1.0, [("mean", 100), ("each", 100)])):
        runs = Runs(1)
        block = prepared(monkeypatch, Case("all_reduce", "float32", 8, "max"), 2, runs).block(n)
        assert (block.mean, block.samples) == (mean, [3.0] * n)
        assert runs.told == ["noise", *order]


def test_sums_in_place_get_new_values_before_a_window_overflows(monkeypatch):
    dtypes = ("float16", "float32", "float8_e4m3fn", "int32")
    for dtype, world, windows in product(dtypes, (2, 8, 512), (1, 5, 64)):
        case, runs = Case("all_reduce", dtype, 64), Runs(windows)
        operation = prepared(monkeypatch, case, world, runs)
        for n in (1, 7, 30, 40, 1, 300):
            operation.block(n)
        assert runs.most <= max(runs_of(case, world), 3), f"{dtype}, {world} ranks, {windows}"


def of_two_gpus(**facts: str) -> RunState:
    """Returns a run whose rank 1 has these facts."""
    return RunState(2, results={"devices": {0: WELL, 1: {**WELL, **facts}}})


def chosen(name: str, run: RunState) -> str:
    return _choose(SweepOptions(0.01, 60, 300, name), run)


def test_a_back_end_that_a_rank_lacks_is_refused_where_it_was_asked_for_and_else_replaced(golden):
    run = of_two_gpus(obstacle=BLOCKING)
    said = [refusal(chosen, "nccl", run)]
    assert chosen("auto", run) == "c10d"
    assert chosen("auto", of_two_gpus()) == chosen("nccl", of_two_gpus()) == "nccl"
    # Values on GPUs that nobody could check are refused over every back end.
    blind = of_two_gpus(cuda_part="_cuda: nvcc was not found. Install it")
    golden("\n".join([*said, *(refusal(chosen, name, blind) for name in ("auto", "nccl", "c10d"))]))


def refuses(
    case: Case, *, world: int = 1, nccl: tuple[Any, ...] = (2, 28, 9), capability: int = 9
) -> str | None:
    """Returns the reason to refuse a case on made-up GPUs, or None."""
    cuda = SimpleNamespace(
        nccl=SimpleNamespace(version=lambda: nccl),
        get_device_capability=lambda device: (capability, 0),
    )
    torch = SimpleNamespace(cuda=cuda, uint8=None, empty=lambda *_, **__: None)
    device = SimpleNamespace(type="cuda", index=0)
    group: Any = SimpleNamespace(torch=torch, device=device, backend="nccl", world=world)
    return C10d(group).refuses(case)


def reduced(dtype: str, op: str = "sum", in_place: bool = True) -> Case:
    return Case("reduce_scatter", dtype, 4096, op, in_place)


def test_what_nccl_cannot_reduce_or_leaves_out_is_refused_and_never_raised(golden):
    said = []
    for dtype in ("float8_e4m3fn", "float8_e5m2"):
        said.append(refuses(reduced(dtype, "avg")))
        said.append(refuses(reduced(dtype), world=8, capability=8))
        for world in (1, 8):
            assert refuses(reduced(dtype), world=world) is None
            assert refuses(Case("all_gather", dtype, 64, NO_OP), world=world, capability=8) is None
    average = reduced("float32", "avg", in_place=False)
    for nccl in ((2, 28, 9), (2, 29, 3, "rc1")):
        said.append(refuses(average, nccl=nccl))
        assert refuses(average, nccl=nccl, world=2) is None
    assert refuses(average, nccl=(2, 29, 7)) is None
    golden("\n".join(map(str, said)))


def test_all_else_is_asked_for():
    for row, dtype, op in product(COLLECTIVES.values(), DTYPES, OPS):
        case = row.case(dtype, 4096, op, 8)
        known = case.dtype not in ("uint32", "uint64")
        said = None if known else f"torch.distributed over nccl has no {dtype}"
        assert refuses(case, world=8) == said, str(case)
