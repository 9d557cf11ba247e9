"""The back end nccl: its choice, and how its operations run."""

from typing import Any

import pytest

from oddrank.bench.backend import stamped
from oddrank.bench.native import NativeOperation
from oddrank.bench.sweep import _choose
from oddrank.control.stages import RunState
from oddrank.errors import OddrankError


class Gpu:
    """Records what it is asked to run."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def block(self, n: int, *, seconds: float) -> tuple[list[float], float]:
        self.told.append(("block", n))
        return [1.0] * n, 1.0

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


def told(world: int, n: int) -> list[Any]:
    operation = NativeOperation.__new__(NativeOperation)
    gpu = Gpu()
    operation._native, operation._seconds, operation._world = gpu, 1.0, world
    assert operation.block(Timestamps(gpu), n) == [1.0] * n
    return gpu.told


@pytest.mark.parametrize("n", [1, 2, 3, 8, 100, 1000])
def test_timestamps_made_for_a_block_hold_all_its_stamps(n: int):
    assert 0 <= stamped(n) < n


def test_the_timed_runs_are_one_pair_and_those_for_the_arrivals_one_each():
    around = ["enter", ("block", 8), "leave"]
    assert told(2, 8) == [*around, "enter", ("run", 0), "leave", "enter", ("run", 1), "leave"]


def test_one_rank_has_no_arrivals_to_compare():
    assert told(1, 8) == ["enter", ("block", 8), "leave"]


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
