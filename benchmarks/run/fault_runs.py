"""The kinds of jobs that faults.py runs, and the file that keeps their outcomes."""

import fcntl
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import fault_jobs as jobs  # adds the folder of the table of faults
from fault_jobs import Said
from hang_table import BY_NAME, FAULTS, HEALTHY, PAUSES, plan_case

import harness

_SEED = 18
# A pause may last up to ten times --stall: the pause of a minute, on a busy machine.
_PAUSE_STALLS = {"long-checkpoint": 15.0, "compile": 30.0}
_OUTCOMES = ("right", "wrong", "unknown", "failed")

Kinds = dict[str, Callable[[int], Said]]
Run = dict[str, Any]


def with_fault() -> Kinds:
    """Returns jobs in which a rank is to blame: name -> a function of the run's number."""

    def of_table(name: str) -> Callable[[int], Said]:
        return lambda number: jobs.at_fault(plan_case(BY_NAME[name], number, _SEED))

    def rank_0_killed(number: int) -> Said:
        return jobs.at_fault(replace(plan_case(BY_NAME["killed"], number, _SEED), ranks=(0,)))

    return {
        **{fault.name: of_table(fault.name) for fault in FAULTS if fault.hangs},
        "rank-0-killed": rank_0_killed,
        "node-stopped": lambda _: jobs.stopped_node(),
        "link-cut": lambda _: jobs.cut_link(),
        "under-mpirun": lambda _: jobs.stuck(rank=2, launcher="mpirun"),
        "under-hydra": lambda _: jobs.stuck(rank=2, launcher="hydra"),
        "under-srun": lambda _: jobs.stuck_under_srun(),
        "32-ranks": lambda _: jobs.stuck(rank=30, ranks=32),
    }


def without_fault() -> Kinds:
    """Returns jobs in which no rank is to blame."""

    def of(name: str, *harm: Callable[[Any], None], **how: Any) -> Callable[[int], Said]:
        return lambda number: jobs.healthy(plan_case(BY_NAME[name], number, _SEED), *harm, **how)

    return {
        HEALTHY.name: of(HEALTHY.name),
        **{fault.name: of(fault.name, stall=_PAUSE_STALLS.get(fault.name, jobs.STALL))
           for fault in PAUSES},
        "launcher-killed": of(HEALTHY.name, jobs.kill_launcher, survives=False),
        "guards-killed": of(HEALTHY.name, jobs.kill("oddrank-guard")),
        "judge-killed": of(HEALTHY.name, jobs.kill("oddrank-judge")),
    }  # fmt: skip


def plan(names: Sequence[str], repetitions: int, healthy: int | None) -> list[tuple[str, int]]:
    """Returns the runs: each fault once, then each again; then the jobs without a fault.

    healthy: so many without a fault, dealt out among their kinds; None: `repetitions` of each.
    """
    faults = [name for name in with_fault() if name in names]
    pauses = [name for name in without_fault() if name in names]
    runs = [(name, number) for number in range(repetitions) for name in faults]
    number_of = len(pauses) * repetitions if healthy is None else healthy * bool(pauses)
    return runs + [(pauses[i % len(pauses)], i // len(pauses)) for i in range(number_of)]


def make(name: str, number: int) -> Run:
    """Makes a run. An error of the run itself is its outcome."""
    try:
        said = {**with_fault(), **without_fault()}[name](number)
    except (Exception, AssertionError) as error:
        said = Said("failed", f"{type(error).__name__}: {error}"[:2000])
    head = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=Path(__file__).parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    print(f"{name} {number}: {said.outcome}: {said.text}", file=sys.stderr, flush=True)
    made = {**asdict(said), "seconds": round(said.seconds, 1)}
    when = {"date": str(date.today()), "commit": head.stdout.strip() or "unknown"}
    return {"fault": name, "number": number, **made, **when}


def kept(file: Path) -> list[Run]:
    """Returns the runs that a file has."""
    with suppress(FileNotFoundError):
        runs: list[Run] = json.loads(file.read_text(encoding="utf-8"))["runs"]
        return runs
    return []


def keep(file: Path, run: Run) -> None:
    """Adds a run to a file, in the place of an earlier one of its kind and number."""
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        runs = {(one["fault"], one["number"]): one for one in [*kept(file), run]}
        order = [*with_fault(), *without_fault()]
        of_order = sorted(runs.values(), key=lambda one: (order.index(one["fault"]), one["number"]))
        harness.write("run/faults", rows(of_order), str(file), runs=of_order)
    finally:
        os.close(folder)


def rows(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Returns a row a kind, in the order of their first runs."""
    of: dict[str, list[Run]] = {}
    for run in runs:
        of.setdefault(run["fault"], []).append(run)
    return [_row(name, made) for name, made in of.items()]


def _row(name: str, runs: Sequence[Run]) -> Mapping[str, Any]:
    outcomes = {word: sum(run["outcome"] == word for run in runs) for word in _OUTCOMES}
    return {
        "fault": name,
        "runs": len(runs),
        **outcomes,
        "kind": sum(run["kind"] for run in runs),
        "saved": sum(run["saved"] is True for run in runs),
        "differs": sum(run["saved"] is False for run in runs),
        "told_s": round(statistics.median(run["seconds"] for run in runs), 1),
    }


def is_bad(run: Run) -> bool:
    """Returns whether a run shows an error of oddrank, or of the benchmark."""
    return run["outcome"] in ("wrong", "failed") or run["saved"] is False
