"""Makes a sweep's report from the judge's outcome, and the text of --dry-run."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from oddrank.bench import arrivals, expected, findings, split, sweep, topology
from oddrank.bench.case import size_text
from oddrank.bench.data import Row
from oddrank.bench.plan import ARRIVALS, LEAST, Limits, Pass, Task, longest, memory_of, reserve
from oddrank.bench.sampling import ENOUGH
from oddrank.control.stages import RunState
from oddrank.control.walk import Outcome
from oddrank.errors import OddrankError
from oddrank.finding import Finding
from oddrank.launch import Launch
from oddrank.machine.device import CPU, usable_bytes
from oddrank.report import Report

PLAN_COLUMNS = ("collective", "type", "redop", "place", "size", "count", "memory of a rank", "note")

_OTHERS = "give other --dtypes, --ops or --place"


def of_sweep(
    passes: Sequence[Pass],
    launch: Launch,
    outcome: Outcome,
    measured: Mapping[str, Row],
    fail_below: float | None,
) -> Report:
    """Returns the report: rows, late or wrong ranks, and the cases that were not measured.

    measured: by the task's name. fail_below: a row below this share of its expectation is a
    finding. OddrankError if nothing could be measured.
    """
    run = outcome.run
    tasks = list(dict.fromkeys(one_pass.task for one_pass in passes))
    done = [task for task in tasks if task.name in measured]
    rows = [measured[task.name] for task in done]
    if outcome.error and not done:
        raise outcome.error
    if outcome.complete and not outcome.findings and all(row.median_us is None for row in rows):
        raise OddrankError(_nothing(rows))
    with_data = [row for row in rows if row.bytes]
    unseen = bool(with_data) and all(row.median_us is None for row in with_data)
    why = outcome.why or (_unseen(with_data) if unseen else "")
    outcome.findings += split.slow_group(run, rows)
    well = not outcome.findings and not unseen
    if fail_below is not None:
        outcome.findings += _below(done, rows, outcome, fail_below)
    arrived = arrivals.of(run)
    return Report.of(
        "bench",
        launch.as_world(),
        {
            "rows": [asdict(row) for row in rows],
            "not_measured": [task.name for task in tasks if task.name not in measured],
            "seconds": sum(outcome.seconds.get(one_pass.name, 0.0) for one_pass in passes),
            "arrival": _arrival_data(arrived),
            "devices": _devices(run),
            "setup": topology.setup_of_all(run),
        },
        outcome.findings,
        complete=outcome.complete and not unseen,
        why=why or _measured(rows, arrived, launch, well=well),
        raised=run.raised(),
    )


def plan_rows(
    tasks: Sequence[Task], launch: Launch, limits: Limits, *, ranks: int | None = None
) -> tuple[list[tuple[str, ...]], str]:
    """Returns the table of --dry-run, and sentences on memory and time.

    ranks: of each group with --split; None: all.
    """
    ranks = ranks or launch.world
    limit = usable_bytes(CPU, launch)
    rows: list[tuple[str, ...]] = []
    for task in tasks:
        case, memory = task.case, memory_of(task.case, ranks)
        note = "" if memory <= limit else f"skipped on the CPU: {sweep.TOO_LARGE}"
        rows.append(
            (
                case.collective, case.dtype, case.op, "in" if case.in_place else "out",
                size_text(case.bytes), str(case.count), size_text(memory),
                note,
            )
        )  # fmt: skip
    cases = [task.case for task in tasks]
    wanted, on_cpu = (reserve(cases, ranks, most) for most in (math.inf, limit))
    less = f"; so it takes {size_text(on_cpu)}" if on_cpu < wanted else ""
    every, local = (
        f"{number} rank{'s' if number > 1 else ''}" for number in (launch.world, launch.local_world)
    )
    groups = "" if ranks == launch.world else f", in {launch.world // ranks} groups of {ranks}"
    sentence = (
        f"{len(rows)} case{'s' if len(rows) > 1 else ''} on"
        f" {every}{groups}. Cases reuse one buffer: {size_text(wanted)} a"
        f" rank, of {limit / 1e9:.1f} GB allowed on the CPU of this host (a quarter of the free"
        f" memory, divided by {local}){less}."
        f" {_time(limits, len(rows), launch.world)}"
    )
    return rows, sentence


def _time(limits: Limits, cases: int, world: int) -> str:
    most = longest(limits.budget, cases, world)
    text = f"Everything ends within {limits.deadline:g} s (--deadline). Measuring takes up to "
    text += f"{most:g} s" if most > limits.budget else f"{most:g} s (--budget)"
    if most > limits.budget:
        text += f": {LEAST:g} s for each case at least, whatever --budget says"
    if world > 1:
        text += (
            f", of them up to {ARRIVALS * limits.budget:.3g} s for the check for late ranks, and as"
            " long again if it finds one"
        )
    return text


def _below(
    tasks: Sequence[Task], rows: Sequence[Row], outcome: Outcome, threshold: float
) -> list[Finding]:
    """Returns the findings of --fail-below; one of them if no row could be judged."""
    run, each = outcome.run, list(zip(tasks, rows, strict=True))
    due = [sweep.expectation(task, run, row) for task, row in each]
    if not outcome.complete or expected.held(rows, due):
        return expected.shortfalls(rows, due, threshold)
    backends = dict.fromkeys(row.backend for row in rows)
    facts = {backend: topology.facts(run, backend) for backend in backends}
    judged_from = [
        expected.judged_from(known, task.case) if (known := facts[row.backend]) else None
        for task, row in each
    ]
    devices = ", ".join(_devices(run))
    ranks = "1 rank" if run.world == 1 else f"{run.world} ranks"
    where = f"{ranks} ({devices}) over {', '.join(backends)}"
    lacks = {expected.lacking(known) for known in facts.values() if known} - {""}
    return [findings.nothing_published(rows, due, judged_from, threshold, where, lacks=lacks)]


def _unseen(rows: Sequence[Row]) -> str:
    """Says why there is no verdict: only barriers ran, which show no value and no bandwidth."""
    reasons = sorted({row.reason or "no reason known" for row in rows})
    cases = "the 1 case" if len(rows) == 1 else f"all {len(rows)} cases"
    return f"skipped {cases} with data, measured only barrier: {'; '.join(reasons)[:300]}"


def _nothing(rows: Sequence[Row]) -> str:
    reasons = sorted({row.reason or "no reason known" for row in rows})
    advice = next((sweep.ADVICE[reason] for reason in reasons if reason in sweep.ADVICE), _OTHERS)
    return f"none of {len(rows)} cases could be measured: {'; '.join(reasons)[:300]}; {advice}"


def _measured(rows: Sequence[Row], arrived: dict[int, Any], launch: Launch, *, well: bool) -> str:
    """Says what was measured and, if nothing was found, the smallest delay it could detect."""
    measured = [row for row in rows if row.median_us is not None]
    if not measured:
        return ""
    skipped = len(rows) - len(measured)
    n = measured[0].n
    cases = "1 case" if len(measured) == 1 else f"{len(measured)} cases"
    ranks = f"{n} rank{'s' if n > 1 else ''}"
    if measured[0].groups:
        ranks = f"{len(measured[0].groups)} groups of {ranks}, all at once"
    text = f"{cases} measured on {ranks}{launch.note}"
    if skipped:
        text += f", {skipped} skipped"
    if not well:
        return text
    text += ", all values right"
    effect = arrivals.smallest_effect(arrived)
    if effect is None and n > 1:
        text += "; arrivals not judged"
        if arrived:
            text += f": {ENOUGH} are needed, give a longer --budget"
    if effect is not None:
        text += f"; no rank arrives {effect:.0f} us or more after the others"
    return text


def _arrival_data(arrived: dict[int, Any]) -> dict[str, Any] | None:
    if not arrived:
        return None
    first = arrived[min(arrived)]
    return {
        "iterations": first.n,
        "median_us": [round(arrived[rank].median, 2) for rank in sorted(arrived)],
        "spread_us": round(first.spread, 2),
        "clock_error_us": round(max(a.error for a in arrived.values()), 2),
        "smallest_effect_us": arrivals.smallest_effect(arrived),
    }


def _devices(run: RunState) -> dict[str, int]:
    """Returns device name -> number of ranks. Over gloo all use the CPU, even if they have GPUs."""
    idle = any(rank["transport"] == "gloo" for rank in topology.connected_of(run).values())
    ranks = topology.devices_of(run).values()
    return dict(Counter("CPU" if idle else rank["gpu"] or "CPU" for rank in ranks))
