"""The end of a sweep: from the judge's outcome to the report, and the plan of --dry-run as text."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oddrank.bench import arrivals, findings, late, published, setup, shortfall, sweep, topology
from oddrank.bench.arrival import ENOUGH
from oddrank.bench.budget import ARRIVALS, LEAST, Limits, longest
from oddrank.bench.memory import free_host_memory
from oddrank.bench.plan import Task, memory_of, reserve
from oddrank.bench.row import Row
from oddrank.bench.sizes import size_text
from oddrank.bench.visits import Visit
from oddrank.errors import OddrankError
from oddrank.finding import Finding, Report

if TYPE_CHECKING:
    from oddrank.control.stages import Rounds
    from oddrank.control.walk import Outcome
    from oddrank.launch import Launch

PLAN_COLUMNS = ("collective", "type", "redop", "place", "size", "count", "buffers of a rank", "")

# Why a case was not measured -> what to give instead.
_ADVICE = {sweep.TOO_LARGE: "give smaller --sizes", sweep.NO_GPU: "give --backend c10d"}
_OTHERS = "give other --dtypes, --ops or --place"


def of_sweep(
    visits: Sequence[Visit],
    launch: "Launch",
    outcome: "Outcome",
    measured: Mapping[str, Row],
    fail_below: float | None,
) -> Report:
    """The rows measured, whoever was late or wrong, and what was not measured.

    measured: by the task's name. fail_below: the share of what is expected below which a row is a
    finding. OddrankError where nothing could be measured, whatever was asked for.
    """
    rounds = outcome.rounds
    tasks = list(dict.fromkeys(visit.task for visit in visits))
    done = [task for task in tasks if task.name in measured]
    rows = [measured[task.name] for task in done]
    if outcome.error and not done:
        raise outcome.error
    if outcome.complete and not outcome.findings and all(row.median_us is None for row in rows):
        raise OddrankError(_nothing(rows))
    well = not outcome.findings
    if fail_below is not None:
        outcome.findings += _below(done, rows, outcome, fail_below)
    arrived = arrivals.of(rounds)
    return Report.of(
        "bench",
        launch.as_world(),
        {
            "rows": [row.as_data() for row in rows],
            "not_measured": [task.name for task in tasks if task.name not in measured],
            "seconds": sum(outcome.seconds.get(visit.name, 0.0) for visit in visits),
            "arrival": _arrival_data(arrived),
            "devices": _devices(rounds),
            "setup": setup.of_all(rounds),
        },
        outcome.findings,
        complete=outcome.complete,
        why=outcome.why or _measured(rows, arrived, launch, well=well),
        raised=rounds.raised(),
    )


def plan_rows(
    tasks: Sequence[Task], launch: "Launch", limits: Limits
) -> tuple[list[tuple[str, ...]], str]:
    """The table of --dry-run, and sentences on memory and time."""
    here = free_host_memory()
    limit = sweep.share_of_host(here, launch)
    rows: list[tuple[str, ...]] = []
    for task in tasks:
        case, memory = task.case, memory_of(task.case, launch.world)
        rows.append(
            (
                case.collective, case.dtype, case.op, "in" if case.in_place else "out",
                size_text(case.bytes), str(case.count), size_text(memory),
                "" if memory <= limit else "skipped on the CPU: not enough memory",
            )
        )  # fmt: skip
    cases = [task.case for task in tasks]
    wanted, on_cpu = (reserve(cases, launch.world, most) for most in (math.inf, limit))
    less = f"; so it takes {size_text(on_cpu)}" if on_cpu < wanted else ""
    sentence = (
        f"{len(rows)} cases on {launch.world} rank{'s' if launch.world > 1 else ''}; for all of"
        f" them in turn a rank takes {size_text(wanted)}. A rank on the CPU of this host may take"
        f" {limit / 1e9:.1f} GB: a quarter of what is free here, over {launch.local_world} of them"
        f"{less}. {_time(limits, len(rows), launch.world)}"
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
            f", of them up to {ARRIVALS * limits.budget:.3g} s to see who comes late, and as long"
            " again if somebody does"
        )
    return text


def _below(
    tasks: Sequence[Task], rows: Sequence[Row], outcome: "Outcome", threshold: float
) -> list[Finding]:
    """As a gate it is shut where nothing could be judged: it has not seen that all is well."""
    rounds, each = outcome.rounds, list(zip(tasks, rows, strict=True))
    due = [sweep.expectation(task, rounds, row) for task, row in each]
    if not outcome.complete or shortfall.held(rows, due):
        return shortfall.judge(rows, due, threshold)
    backends = dict.fromkeys(row.backend for row in rows)
    facts = {backend: topology.facts(rounds, backend) for backend in backends}
    judged_from = [
        shortfall.judged_from(known, task.case) if (known := facts[row.backend]) else None
        for task, row in each
    ]
    devices = ", ".join(_devices(rounds))
    ranks = "1 rank" if rounds.world == 1 else f"{rounds.world} ranks"
    where = f"{ranks} ({devices}) over {', '.join(backends)}"
    lacks = {published.lacking(known) for known in facts.values() if known} - {""}
    return [findings.nothing_published(rows, due, judged_from, threshold, where, lacks=lacks)]


def _nothing(rows: Sequence[Row]) -> str:
    reasons = sorted({row.reason or "no reason known" for row in rows})
    advice = next((_ADVICE[reason] for reason in reasons if reason in _ADVICE), _OTHERS)
    return f"none of {len(rows)} cases could be measured: {'; '.join(reasons)[:300]}; {advice}"


def _measured(rows: Sequence[Row], arrived: dict[int, Any], launch: "Launch", *, well: bool) -> str:
    """What was measured, and, where that shows nobody, what could have been seen."""
    measured = [row for row in rows if row.median_us is not None]
    if not measured:
        return ""
    skipped = len(rows) - len(measured)
    n = measured[0].n
    cases = "1 case" if len(measured) == 1 else f"{len(measured)} cases"
    text = f"{cases} measured on {n} rank{'s' if n > 1 else ''}{launch.note}"
    if skipped:
        text += f", {skipped} skipped"
    if not well:
        return text
    text += ", all values right"
    effect = late.smallest_effect(arrived)
    if effect is None and n > 1:
        text += "; arrivals could not be judged"
        if arrived:
            text += f", {ENOUGH} of them take a longer --budget"
    if effect is not None:
        text += f"; nobody comes {effect:.0f} us or more behind the others"
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
        "smallest_effect_us": late.smallest_effect(arrived),
    }


def _devices(rounds: "Rounds") -> dict[str, int]:
    """Name of a device -> how many ranks used one: GPUs that ranks would have to share are idle."""
    idle = any(rank["transport"] == "gloo" for rank in rounds.of("connect").values())
    ranks = rounds.of("devices").values()
    return dict(Counter("CPU" if idle else rank["gpu"] or "CPU" for rank in ranks))
