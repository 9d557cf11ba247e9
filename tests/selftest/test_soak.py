"""`make soak`: the whole fault matrix, many times; writes benchmarks/results/selftest_soak.json."""

import json
import os
import platform
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from datetime import date
from pathlib import Path

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

    A job's time is mostly waiting, so that two of them on two cores do not hurt each other. The
    table of results is written at the end.
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
    rows = [
        {
            "fault": case.fault,
            "where": case.where,
            "stage": case.stage,
            "right": sum(is_right(run) for run in made),
            "total": len(made),
        }
        for case, made in runs.items()
    ]
    if set(cases) != {*HEALTHY, *MATRIX}:
        return  # a part of them must not stand for all
    world = {"machine": platform.machine(), "cores": os.cpu_count(), "date": str(date.today())}
    RESULTS.write_text(json.dumps({"machine": world, "rows": rows}, indent=1) + "\n")


@pytest.mark.parametrize("case", HEALTHY, ids=str)
def test_healthy_ranks_stay_healthy(case: Case, outcomes: dict[Case, list[Future[str]]]) -> None:
    assert_all_right(outcomes[case])


@pytest.mark.parametrize("case", MATRIX, ids=str)
def test_the_fault_is_found_every_time(case: Case, outcomes: dict[Case, list[Future[str]]]) -> None:
    assert_all_right(outcomes[case])


def is_right(run: Future[str]) -> bool:
    return not run.cancelled() and run.exception() is None and not run.result()


def assert_all_right(runs: list[Future[str]]) -> None:
    wrong = [text for run in runs if (text := run.result())]
    assert runs
    assert not wrong, "\n\n".join(wrong)


def run_once(case: Case) -> str:
    """What was wrong with the verdict; "" if nothing."""
    with two_hosts() if case.needs_hosts else nullcontext(()) as hosts:
        verdict = case.run(hosts)
    return "" if case.right(verdict) and verdict.gone() else str(verdict)
