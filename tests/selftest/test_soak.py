"""`make soak`: the whole fault matrix, many times; writes benchmarks/results/selftest_soak.json."""

import json
import os
import platform
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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
    pytest.mark.timeout(7200),
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
def table() -> Iterator[list[dict[str, Any]]]:
    """The rows of the results, written after the last one."""
    rows: list[dict[str, Any]] = []
    yield rows
    world = {"machine": platform.machine(), "cores": os.cpu_count(), "date": str(date.today())}
    RESULTS.write_text(json.dumps({"machine": world, "rows": rows}, indent=1) + "\n")


@pytest.mark.parametrize("case", HEALTHY, ids=str)
def test_healthy_ranks_stay_healthy(case, repeats, table):
    repeat(case, repeats * 5 // 2, table)


@pytest.mark.parametrize("case", MATRIX, ids=str)
def test_the_fault_is_found_every_time(case, repeats, table):
    repeat(case, repeats, table)


def repeat(case: Case, times: int, table: list[dict[str, Any]]) -> None:
    """Each job takes the work of two cores or so: that many at a time."""
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2)) as pool:
        wrong = [text for text in pool.map(lambda _: run_once(case), range(times)) if text]
    facts = {"fault": case.fault, "where": case.where, "stage": case.stage}
    table.append({**facts, "right": times - len(wrong), "total": times})
    assert not wrong, "\n\n".join(wrong)


def run_once(case: Case) -> str:
    """What was wrong with the verdict; "" if nothing."""
    with two_hosts() if case.needs_hosts else nullcontext(()) as hosts:
        verdict = case.run(hosts)
    return "" if case.right(verdict) and verdict.gone() else str(verdict)
