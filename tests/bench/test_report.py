"""The report of a sweep."""

import pytest

from oddrank import launch
from oddrank.bench import report
from oddrank.control.root import RankState
from oddrank.control.stages import Rounds
from oddrank.control.walk import Outcome

SETUP = {"torch": "2.11.0", "cuda": None, "driver": None, "settings": {}}
CONNECTED = {
    "nics": {}, "fabric": None, "gloo_interface": None, "nccl": None, "nvls": None, "ring": None,
    "links": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("transport", "devices"),
    [
        ("nccl", {"NVIDIA H200": 2}),
        ("gloo", {"CPU": 2}),  # two ranks, one GPU: neither uses it
        (None, {"NVIDIA H200": 2}),  # it ended before they were connected
    ],
)
def test_devices_are_those_that_the_ranks_have_computed_on(transport, devices):
    rounds = Rounds(2, {rank: RankState(rank, "n1", 0) for rank in range(2)})
    rounds.results["devices"] = {rank: {**SETUP, "gpu": "NVIDIA H200"} for rank in range(2)}
    if transport:
        rounds.results["connect"] = {
            rank: {**CONNECTED, "transport": transport} for rank in range(2)
        }
    ended = Outcome(rounds, complete=False, why="the deadline came")
    said = report.of_sweep([], launch.current({}), ended, {}, None)
    assert said.data["devices"] == devices
