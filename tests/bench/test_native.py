"""What the nccl back end stamps and what it times, with the GPU's part stood in for."""

from typing import Any

import pytest

from oddrank.bench.backend import stamped
from oddrank.bench.native import NativeOperation


class Gpu:
    """Notes what it is told to run."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def block(self, n: int, *, seconds: float) -> tuple[list[float], float]:
        self.told.append(("block", n))
        return [1.0] * n, 1.0

    def run(self, turn: int, *, seconds: float) -> float:
        self.told.append(("run", turn))
        return 1.0


class Laps:
    """Notes the order of stamps and runs, on the GPU's own list."""

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
    assert operation.block(Laps(gpu), n) == [1.0] * n
    return gpu.told


@pytest.mark.parametrize("n", [1, 2, 3, 8, 100, 1000])
def test_laps_made_for_a_block_hold_all_its_stamps(n: int):
    assert 0 <= stamped(n) < n


def test_the_timed_runs_are_one_lap_and_those_for_the_arrivals_one_each():
    around = ["enter", ("block", 8), "leave"]
    assert told(2, 8) == [*around, "enter", ("run", 0), "leave", "enter", ("run", 1), "leave"]


def test_one_rank_has_no_arrivals_to_compare():
    assert told(1, 8) == ["enter", ("block", 8), "leave"]
