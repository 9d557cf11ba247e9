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
    verdict = job(3, command=command, launcher=mixed, deadline=40)
    assert verdict.healthy(), str(verdict)
    skipped, measured = verdict.report["data"]["rows"]
    assert (skipped["check"], measured["check"]) == ("skipped", "ok")
    assert skipped["reason"] == "ranks 1-2: this GPU has no int8"
    assert "skipped: ranks 1-2: this GPU has no int8" in verdict.output


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
