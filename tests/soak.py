"""Runs of a table of faults, a few at a time, and the table of results for `make soak`.

A case has `fault`, `where` and `stage`, which are its row's key; its runs say "" where all was
right, else what was wrong.
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
    """All runs of the cases that were asked for, as many at a time as there are cores.

    A job's time is mostly waiting, so that two of them on two cores do not hurt each other. At the
    end, or when it is interrupted, the cases that are done take their rows in the table of results.
    count: further figures of a row.
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
    """Runs of the cases that were asked for of the file; at the end those not begun are left."""
    pool = ThreadPoolExecutor(workers or os.cpu_count())
    try:
        yield {
            case: [pool.submit(run_once, case) for _ in range(times(case))]
            for case in asked_for(request)
        }
    finally:
        pool.shutdown(cancel_futures=True)


def asked_for(request: pytest.FixtureRequest) -> list[Any]:
    """The cases of the file whose tests will be run."""
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
    """Each row says when and on which commit it was made: the matrix takes hours, not one run."""
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
    """Figures for runs that say "wrong name: ..." or "nobody named: ...": the one is worse."""
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
