"""Runs a table of faults, a few at a time, and writes the table of results for `make soak`.

A case has `fault`, `where` and `stage`, the key of its row. A run returns "" if all was right, else
what was wrong.
"""

import json
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"


class Case(Protocol):
    @property
    def fault(self) -> str: ...
    @property
    def where(self) -> str: ...
    @property
    def stage(self) -> str: ...


AnyCase = TypeVar("AnyCase", bound=Case)
Runs = dict[AnyCase, list[Future[str]]]


def run_all(
    request: pytest.FixtureRequest,
    table: Sequence[AnyCase],
    results: Path,
    *,
    times: Callable[[AnyCase], int],
    run_once: Callable[[AnyCase], str],
    count: Callable[[Sequence[Future[str]]], Mapping[str, int]] = lambda runs: {},
    workers: int | None = None,
) -> Iterator[Runs[AnyCase]]:
    """Runs the selected cases, as many at a time as there are cores.

    Jobs mostly wait, so two of them on two cores do not disturb each other. At the end, or if
    interrupted, writes the rows of the finished cases. count: makes further figures of a row.
    """
    with begun(request, times, run_once, workers) as runs:
        yield runs
    done = {
        case: made for case, made in runs.items() if made and not any(r.cancelled() for r in made)
    }
    write_rows(done, table, results, count)


@contextmanager
def begun(
    request: pytest.FixtureRequest,
    times: Callable[[AnyCase], int],
    run_once: Callable[[AnyCase], str],
    workers: int | None = None,
) -> Iterator[Runs[AnyCase]]:
    """Yields runs of the selected cases of the file; at the end cancels those not begun."""
    pool = ThreadPoolExecutor(workers or os.cpu_count())
    try:
        yield {
            case: [pool.submit(run_once, case) for _ in range(times(case))]
            for case in asked_for(request)
        }
    finally:
        pool.shutdown(cancel_futures=True)


def asked_for(request: pytest.FixtureRequest) -> list[Any]:
    """Returns the cases of the file whose tests are selected."""
    return [
        item.callspec.params["case"]
        for item in request.session.items
        if item.path == request.path and "case" in getattr(item, "fixturenames", ())
    ]


def write_rows(
    done: Runs[AnyCase],
    table: Sequence[AnyCase],
    results: Path,
    count: Callable[[Sequence[Future[str]]], Mapping[str, int]],
) -> None:
    """Writes rows with their time and commit: the matrix takes hours and several runs."""
    before = json.loads(results.read_text())["rows"] if results.exists() else []
    known = {row_key(row): row for row in before}
    head = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=results.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    for case, runs in done.items():
        row = {
            "fault": case.fault,
            "where": case.where,
            "stage": case.stage,
            "right": sum(is_right(run) for run in runs),
            **count(runs),
            "total": len(runs),
            "date": str(date.today()),
            "commit": head.stdout.strip() or "unknown",
        }
        known[row_key(row)] = row
    machine = {"machine": platform.machine(), "cores": os.cpu_count()}
    order = [(case.fault, case.where, case.stage) for case in table]
    rows = [known[key] for key in order if key in known]
    results.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")


def names(runs: Sequence[Future[str]]) -> Mapping[str, int]:
    """Counts runs that begin with "wrong name" and with "nobody named"; the first is worse."""
    how = Counter("error" if run.exception() else run.result().partition(":")[0] for run in runs)
    return {"wrong_name": how["wrong name"], "nobody_named": how["nobody named"]}


def row_key(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["fault"], row["where"], row["stage"]


def is_right(run: Future[str]) -> bool:
    return run.exception() is None and not run.result()


def assert_all_right(runs: Sequence[Future[str]]) -> None:
    wrong = [text for run in runs if (text := run.result())]
    assert runs
    assert not wrong, "\n\n".join(wrong)
