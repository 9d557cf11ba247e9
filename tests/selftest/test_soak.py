"""`make soak`: the whole fault matrix, many times; writes benchmarks/results/selftest_soak.json."""

import json
import os
import platform
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from faults import (
    RANK_FAULTS,
    STAGES,
    Case,
    cut_link,
    healthy,
    hurt_node,
    hurt_rank,
    never_started,
    wrong_local_rank,
)
from netns import two_hosts

pytestmark = [
    pytest.mark.soak,
    pytest.mark.needs("torch", "netns"),
    pytest.mark.timeout(14400),
]

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "selftest_soak.json"
HEALTHY = [healthy(4), healthy(2), healthy(4, nodes=2)]
MATRIX = [
    *(hurt_rank(kind, rank, stage) for kind in RANK_FAULTS for rank in (2, 0) for stage in STAGES),
    *(hurt_rank(kind, 1, "all_reduce", ranks=2) for kind in RANK_FAULTS),
    *(hurt_rank(kind, rank, "all_reduce", nodes=2) for kind in RANK_FAULTS for rank in (3, 0)),
    *(
        hurt_node(node, number, stage)
        for number in (signal.SIGKILL, signal.SIGSTOP)
        for node in (1, 0)
        for stage in ("device", "all_reduce")
    ),
    cut_link("device"),
    cut_link("all_reduce"),
    wrong_local_rank(2, 1),
    never_started(1, 2),
    never_started(3, 4),
]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> Iterator[dict[Case, list[Future[str]]]]:
    """All runs of the cases that were asked for, as many at a time as there are cores.

    A job's time is mostly waiting, so that two of them on two cores do not hurt each other. At the
    end, or when it is interrupted, the cases that are done take their rows in the table of results.
    """
    repeats = request.config.getoption("--repeats")
    cases = [
        item.callspec.params["case"]
        for item in request.session.items
        if item.path == request.path and isinstance(item, pytest.Function)
    ]
    pool = ThreadPoolExecutor(os.cpu_count())
    times = {case: repeats * 5 // 2 if case in HEALTHY else repeats for case in cases}
    runs = {case: [pool.submit(run_once, case) for _ in range(times[case])] for case in cases}
    yield runs
    pool.shutdown(cancel_futures=True)
    write_rows({case: made for case, made in runs.items() if not any(r.cancelled() for r in made)})


def write_rows(done: dict[Case, list[Future[str]]]) -> None:
    """Each row says when and on which commit it was made: the matrix takes hours, not one run."""
    known = {row_key(row): row for row in json.loads(RESULTS.read_text())["rows"]}
    head = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=RESULTS.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    for case, runs in done.items():
        row = {
            "fault": case.fault,
            "where": case.where,
            "stage": case.stage,
            "right": sum(is_right(run) for run in runs),
            "total": len(runs),
            "date": str(date.today()),
            "commit": head.stdout.strip() or "unknown",
        }
        known[row_key(row)] = row
    machine = {"machine": platform.machine(), "cores": os.cpu_count()}
    order = [(case.fault, case.where, case.stage) for case in (*HEALTHY, *MATRIX)]
    rows = [known[key] for key in order if key in known]
    RESULTS.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")


def row_key(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["fault"], row["where"], row["stage"]


@pytest.mark.parametrize("case", HEALTHY, ids=str)
def test_healthy_ranks_stay_healthy(case: Case, outcomes: dict[Case, list[Future[str]]]) -> None:
    assert_all_right(outcomes[case])


@pytest.mark.parametrize("case", MATRIX, ids=str)
def test_the_fault_is_found_every_time(case: Case, outcomes: dict[Case, list[Future[str]]]) -> None:
    assert_all_right(outcomes[case])


def is_right(run: Future[str]) -> bool:
    return run.exception() is None and not run.result()


def assert_all_right(runs: list[Future[str]]) -> None:
    wrong = [text for run in runs if (text := run.result())]
    assert runs
    assert not wrong, "\n\n".join(wrong)


def run_once(case: Case) -> str:
    """What was wrong with the verdict; "" if nothing."""
    with two_hosts() if case.needs_hosts else nullcontext(()) as hosts:
        verdict = case.run(hosts)
    return "" if case.right(verdict) and verdict.gone() else str(verdict)
