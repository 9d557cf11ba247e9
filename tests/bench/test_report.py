"""The report of a sweep."""

import pytest

from oddrank import launch
from oddrank.bench import report
from oddrank.bench.plan import in_turn, tasks
from oddrank.bench.row import Row
from oddrank.control.root import RankState
from oddrank.control.stages import RunState
from oddrank.control.walk import Outcome

SETUP = {"torch": "2.11.0", "cuda": None, "driver": None, "settings": {}}
CONNECTED = {
    "nics": {}, "fabric": None, "gloo_interface": None, "nccl": None, "nvls": True, "ring": None,
    "links": None,
}  # fmt: skip


HGX = {"nvlinks": 18, "nvlink_MBps": 26562, "pcie": 5, "pcie_width": 16, "fabric": ""}


@pytest.mark.parametrize("links", [18, 17, 0])
def test_a_gate_that_cannot_judge_for_nvlinks_that_are_down_says_so(links):
    (task,) = tasks(
        backends=["nccl"], collectives=["all_reduce"], dtypes=["float32"], ops=["sum"],
        sizes=[1 << 30], places=["in"], world=8,
    )  # fmt: skip
    row = Row("nccl", "all_reduce", "float32", "sum", 1 << 30, 1 << 28, True, 8, "ok",
              median_us=4000.0, algbw_GBps=268.0, busbw_GBps=469.0)  # fmt: skip
    run = RunState(8, {rank: RankState(rank, "n1", 0) for rank in range(8)})
    run.results["devices"] = {rank: {**SETUP, "gpu": "NVIDIA H200"} for rank in range(8)}
    run.results["connect"] = {
        rank: {**CONNECTED, "transport": "nccl", "links": HGX} for rank in range(8)
    }
    run.results["connect"][5]["links"] = {**HGX, "nvlinks": links}
    passes, measured = in_turn([task], 1), {task.name: row}
    said = report.of_sweep(passes, launch.current({}), Outcome(run), measured, 0.9)
    if links == 18:
        assert said.findings == ()
        return
    (found,) = said.findings
    assert found.cause == "nothing-published"
    assert found.evidence[0].text == f"{links} of 18 NVLinks of a GPU are active"
    assert "nvlink" in found.next[0]


@pytest.mark.parametrize(
    ("transport", "devices"),
    [
        ("nccl", {"NVIDIA H200": 2}),
        ("gloo", {"CPU": 2}),  # two ranks, one GPU: neither uses it
        (None, {"NVIDIA H200": 2}),  # the run ended before the ranks were connected
    ],
)
def test_devices_are_those_that_the_ranks_have_computed_on(transport, devices):
    run = RunState(2, {rank: RankState(rank, "n1", 0) for rank in range(2)})
    run.results["devices"] = {rank: {**SETUP, "gpu": "NVIDIA H200"} for rank in range(2)}
    if transport:
        run.results["connect"] = {rank: {**CONNECTED, "transport": transport} for rank in range(2)}
    ended = Outcome(run, complete=False, why="the deadline came")
    said = report.of_sweep([], launch.current({}), ended, {}, None)
    assert said.data["devices"] == devices
