"""A case that one rank can't run is skipped by all, and the row names that rank."""

from dataclasses import replace

import pytest

from job import job
from launchers import env
from oddrank.bench.case import Case
from oddrank.bench.row import summarise

# Runs the command; ranks 1 and 2 have an older GPU than the others.
MIXED = """
import os
import sys
from oddrank import cli
from oddrank.bench.c10d import C10d

refuses = C10d.refuses
def refuse(self, case):
    old = os.environ["RANK"] in "12" and case.dtype == "int8"
    return "this GPU has no int8" if old else refuses(self, case)
C10d.refuses = refuse
sys.argv[0] = "oddrank"
cli.main()
"""


def mixed(order):
    return env(replace(order, tool=["-c", MIXED, *order.tool[2:]]))


@pytest.mark.needs("torch")
def test_ranks_that_could_run_a_case_do_not_wait_for_those_that_cannot():
    command = ("bench", "run", "--sizes", "1K", "--dtypes", "int8,float32", "--budget", "3")
    verdict = job(3, command=command, launcher=mixed, deadline=90)
    assert verdict.healthy(), str(verdict)
    skipped, measured = verdict.report["data"]["rows"]
    assert (skipped["check"], measured["check"]) == ("skipped", "ok")
    assert skipped["reason"] == "ranks 1-2: this GPU has no int8"
    assert "skipped: ranks 1-2: this GPU has no int8" in verdict.output


# Runs the command on ranks whose facts say: a GPU each, and a build without nvcc.
WITHOUT_CUDA = """
import sys
from oddrank import cli
from oddrank.machine import device

facts = device.facts
def on_gpus(launch):
    why = "_cuda: nvcc was not found. Install the CUDA toolkit"
    return {**facts(launch), "gpus": launch.local_world, "gpu_id": None, "cuda_part": why}
device.facts = on_gpus
sys.argv[0] = "oddrank"
cli.main()
"""


def without_cuda(order):
    return env(replace(order, tool=["-c", WITHOUT_CUDA, *order.tool[2:]]))


@pytest.mark.needs("torch")
@pytest.mark.parametrize("backend", ["auto", "c10d"])
def test_gpus_without_the_part_that_checks_their_values_are_refused_in_one_line(backend):
    command = ("bench", "run", "--sizes", "1K", "--backend", backend)
    verdict = job(2, command=command, launcher=without_cuda, deadline=90)
    assert set(verdict.codes) == {2}, str(verdict)
    assert verdict.report is None, "no rank is blamed"
    told = [line for line in verdict.output.splitlines() if "nvcc was not found" in line]
    assert told == [
        "oddrank: bench run checks every value on the GPU, over c10d too, and can't here: "
        "_cuda: nvcc was not found. Install the CUDA toolkit"
    ]
    assert "Traceback" not in verdict.output


@pytest.mark.parametrize(
    ("reasons", "said"),
    [
        (["too old", "too old", "too old"], "too old"),
        (["", "too old", ""], "rank 1: too old"),
        (["too old", "", "too old"], "ranks 0, 2: too old"),
        (["", "too old", "no such GPU"], "rank 1: too old"),
    ],
)
def test_a_row_says_who_cannot_where_that_is_not_everybody(reasons, said):
    result = {"backend": "nccl", "mismatch": None}
    results = {rank: {**result, "skipped": reason} for rank, reason in enumerate(reasons)}
    row = summarise(Case("all_reduce", "int8", 8), results, 3)
    assert (row.check, row.reason) == ("skipped", said)
