"""The back end nccl: its choice, and how its operations run."""

from array import array
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from oddrank import _native
from oddrank.bench.backend import ALIGNMENT, Block, stamped
from oddrank.bench.case import Case
from oddrank.bench.native import Native, NativeOperation
from oddrank.bench.random_data import Noise, runs_of
from oddrank.bench.sweep import _choose
from oddrank.control.stages import RunState
from oddrank.errors import OddrankError

CASE = Case("all_reduce", "float32", 8, in_place=False)


class Gpu:
    """Records what it is asked to run. A run takes 1 us, with an event after it 3."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def block(self, n: int, *, each: bool, seconds: float) -> tuple[list[float], float]:
        self.told.append(("each" if each else "mean", n))
        return [3.0] * n if each else [], 3.0 if each else 1.0

    def run(self, turn: int, *, seconds: float) -> float:
        self.told.append(("run", turn))
        return 1.0


class Timestamps:
    """Records timestamps and runs in order, in the GPU's list."""

    def __init__(self, gpu: Gpu) -> None:
        self._told = gpu.told

    def enter(self) -> None:
        self._told.append("enter")

    def leave(self) -> None:
        self._told.append("leave")

    def starts(self) -> bytes:
        return array("q", range(self._told.count("enter"))).tobytes()

    durations = starts


def told(world: int, n: int, case: Case = CASE) -> tuple[Block, list[Any]]:
    """Returns a block of `n` runs, and what the GPU was asked for, fills of its memory too."""
    operation = NativeOperation.__new__(NativeOperation)
    gpu = Gpu()
    operation._native, operation._seconds, operation._world = gpu, 1.0, world
    operation._beside = 2
    operation._noise = Noise(0, case, world, [(0, 8)])
    operation._noise.write = lambda: told_of(operation._noise, gpu)  # type: ignore[method-assign]
    operation.ready()
    return operation.block(Timestamps(gpu), n), gpu.told


def told_of(noise: Noise, gpu: Gpu) -> None:
    gpu.told.append("noise")
    noise._left = noise._lasts


@pytest.mark.parametrize("n", [1, 2, 3, 8, 100, 1000])
def test_timestamps_made_for_a_block_hold_all_its_stamps(n: int):
    assert 0 <= stamped(n) < n


def test_few_runs_are_timed_once_and_stamped_ones_follow_for_the_arrivals():
    block, order = told(2, 8)
    assert (block.mean, block.samples) == (3.0, [3.0] * 8)
    around = ["enter", ("each", 8), "leave"]
    runs = [[("run", turn)] for turn in range(2)]
    assert order == ["noise", *around, *(one for run in runs for one in ["enter", *run, "leave"])]
    assert len(block.arrivals.starts) == stamped(8)


def test_the_mean_of_short_runs_has_no_events_between_them():
    block, order = told(1, 100)
    assert (block.mean, block.samples) == (1.0, [3.0] * 100)
    assert order == ["noise", "enter", ("mean", 100), ("each", 100), "leave"]


def test_one_rank_has_no_arrivals_to_compare():
    assert told(1, 8)[1] == ["noise", "enter", ("each", 8), "leave"]


class Settings(Native):
    """A back end without a communicator."""

    def __init__(self, world: int, graph: int) -> None:
        self.rank, self.world, self.device = 0, world, 0
        self.seconds, self.graph = 1.0, graph


@pytest.mark.parametrize("dtype", ["float16", "float32", "float8_e4m3fn", "int32"])
@pytest.mark.parametrize("world", [2, 8, 512])
@pytest.mark.parametrize("windows", [1, 5, 64])
@pytest.mark.parametrize("graph", [0, 3, 10])
def test_sums_in_place_get_new_values_before_any_window_overflows(
    monkeypatch: pytest.MonkeyPatch, dtype: str, world: int, windows: int, graph: int
):
    case = Case("all_reduce", dtype, 64)
    used, most = [0] * windows, 0

    def ran(turns: Iterable[int]) -> None:
        nonlocal most
        for turn in turns:
            used[turn % windows] += 1
        most = max(most, *used)

    class Runs:
        """Runs as csrc/bench/nccl/operation.cpp does."""

        issued, send, recv = "ncclAllReduce", 0, 0
        connected = False

        def run(self, turn: int, *, seconds: float) -> float:
            ran([turn])
            return 1.0

        def block(self, n: int, *, each: bool, seconds: float) -> tuple[list[float], float]:
            if not self.connected:
                self.connected = True
                self.run(0, seconds=seconds)
            launches = -(-n // graph) if graph else n
            for launch in [0, *range(launches)]:  # the first one fills the queue
                ran(range(graph) if graph else [launch])
            return [1.0] * (launches if each else 0), 1.0

    class Cuda:
        @staticmethod
        def nccl_plan(*args: Any, **options: Any) -> dict[str, int]:
            return {"send_count": case.count, "recv_count": case.count, "element": 1}

        @staticmethod
        def Operation(*args: Any, windows: int, **options: Any) -> Runs:
            assert windows == len(used)
            return Runs()

        @staticmethod
        def gpu_noise(device: int, address: int, *args: Any, **options: Any) -> None:
            used[address // ALIGNMENT] = 0

    monkeypatch.setattr(_native, "cuda", lambda: Cuda)
    memory = SimpleNamespace(bytes=ALIGNMENT * windows, data=0)
    operation = NativeOperation(Settings(world, graph), None, memory, case)
    operation.ready()
    for n in (1, 7, 30, 40, 1, 300):
        operation.block(Timestamps(Gpu()), n)
    beside = 1 + 2 * -(-graph // windows) if graph else 2
    assert most <= max(runs_of(case, world), 1 + beside)


BLOCKING = "NCCL_COMM_BLOCKING is set: unset it"
WELL = {"gpus": 2, "gpu_id": None, "local_world": 2, "cuda_part": "", "obstacle": ""}


def of_two_gpus(**facts: str) -> RunState:
    """Returns a run whose rank 1 has these facts."""
    return RunState(2, results={"devices": {0: WELL, 1: {**WELL, **facts}}})


def test_what_keeps_one_rank_from_nccl_itself_is_told_where_it_was_asked_for():
    run = of_two_gpus(obstacle=BLOCKING)
    with pytest.raises(OddrankError) as told:
        _choose("nccl", run)
    assert str(told.value) == f"the back end nccl can't be used: {BLOCKING}"
    assert _choose("auto", run) == "c10d"
    assert _choose("auto", of_two_gpus()) == _choose("nccl", of_two_gpus()) == "nccl"


@pytest.mark.parametrize("name", ["auto", "nccl", "c10d"])
def test_gpus_whose_values_nobody_could_check_are_refused_over_every_back_end(name: str):
    why = "_cuda: nvcc was not found. Install it"
    with pytest.raises(OddrankError, match="checks every value on the GPU") as told:
        _choose(name, of_two_gpus(cuda_part=why))
    assert str(told.value).endswith(why)
