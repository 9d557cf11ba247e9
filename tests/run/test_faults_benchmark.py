"""The benchmark of `oddrank run`: what it keeps and counts; and its jobs themselves, for soak."""

import itertools
import json
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "run"))
import fault_jobs
import fault_runs

# `make soak REPEATS=1` makes these: a stall and a death. All others from twice as many on.
FEW = ("lock", "killed")
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
KINDS = [*fault_runs.with_fault(), *fault_runs.without_fault()]


def run(fault, number=0, outcome="right", saved=True, seconds=1.0):
    return {
        "fault": fault, "number": number, "outcome": outcome, "text": "", "kind": True,
        "saved": saved, "seconds": seconds,
    }  # fmt: skip


def test_a_file_keeps_each_run_in_the_order_of_the_table_and_the_last_one_of_a_number(tmp_path):
    file = tmp_path / "runs.json"
    assert fault_runs.kept(file) == []
    for made in (run("healthy"), run("lock", 1), run("lock", 0, "unknown"), run("lock", 0)):
        fault_runs.keep(file, made)
    assert fault_runs.kept(file) == [run("lock", 0), run("lock", 1), run("healthy")]
    assert [row["fault"] for row in json.loads(file.read_text())["rows"]] == ["lock", "healthy"]
    assert [one.name for one in tmp_path.iterdir()] == ["runs.json"]


def test_a_row_counts_what_was_right_wrong_unknown_and_what_triage_says_of_what_was_saved():
    made = [
        run("lock", 0, "right", True, 2.0), run("lock", 1, "wrong", False, 4.0),
        run("lock", 2, "unknown", None, 9.0),
    ]  # fmt: skip
    (row,) = fault_runs.rows(made)
    counts = {"right": 1, "wrong": 1, "unknown": 1, "failed": 0, "saved": 1, "differs": 1}
    assert row == {"fault": "lock", "runs": 3, "kind": 3, "told_s": 4.0, **counts}
    assert [fault_runs.is_bad(one) for one in made] == [False, True, False]


TRUTH = {"ranks": [2], "accept": [2], "accept_cycle": [], "kinds": ["lock"]}


def report(rank, cause="lock", folder=None):
    who = {"kind": "rank", "ranks": [rank]}
    found = [{"who": who, "cause": cause, "confidence": {"level": "high"}}]
    history = [{"event": "stall", "time": time.time() + 500}]
    run = {"history": history, "evidence": folder and {"folder": folder}}
    return {"findings": found, "summary": f"rank {rank}", "data": {"run": run}}


@pytest.fixture
def said(monkeypatch):
    """`said(offline, *reports)`: what is told of reports that are read one after the other."""

    def told(offline, *reports):
        shown = itertools.chain(reports, itertools.repeat(reports[-1]))
        monkeypatch.setattr(fault_jobs, "triaged", lambda folder: offline)
        monkeypatch.setattr(fault_jobs, "read", lambda path: next(shown))
        return fault_jobs.told(Path("report.json"), TRUTH)

    return told


def test_a_verdict_is_right_with_its_kind_and_compared_with_that_of_what_was_saved(said):
    right = report(2, folder="/evidence")
    both = said(right, right)
    assert (both.outcome, both.kind, both.saved) == ("right", True, True)
    assert both.seconds > 0
    assert said(report(2, "dead"), right).saved is False
    assert said(report(1), right).text == "rank 2 | from what was saved: rank 1"
    assert not said(right, report(2, "dead", folder="/evidence")).kind
    # A wrong name counts, though a right one takes its place.
    found = said(right, report(1), right)
    assert (found.outcome, found.text) == ("wrong", "rank 1")


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.needs("torch-build")
@pytest.mark.parametrize("fault", KINDS)
def test_the_rank_to_blame_is_named_every_time_and_nobody_else(fault, repeats):
    if repeats == 1 and fault not in FEW:
        pytest.skip("make soak REPEATS=2 makes it")
    for number in range(max(1, repeats // 10)):
        made = fault_runs.make(fault, number)
        fault_runs.keep(RESULTS / "run_faults.json", made)
        assert made["outcome"] == "right", made
        assert made["saved"] is not False, made
