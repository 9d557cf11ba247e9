"""The stages that look for a late rank: many small all_reduces, everybody's arrivals compared."""

import statistics
import time
from array import array
from typing import Any

from oddrank.bench import findings, late
from oddrank.bench.arrival import ENOUGH, UNKNOWN_NS, Arrival, Stamps, arrival
from oddrank.bench.backend import Operation
from oddrank.bench.budget import ARRIVALS, Budget
from oddrank.bench.c10d import C10d
from oddrank.bench.case import Case
from oddrank.bench.group import Group, connect
from oddrank.control.stages import Context, Rounds, Stage
from oddrank.errors import OddrankError
from oddrank.finding import Finding

NAME, AGAIN = "arrival", "arrival again"
_CASE = Case("all_reduce", "float32", 4)
_WARMUP = 20
_ITERATIONS = ENOUGH + 100
_FEWEST = 3
_CLOCK = "clock"
_CLOCK_SECONDS = 5.0
# Two hosts' clocks, at the most (see Session.sync_clock).
_DRIFT = 1e-4
_DRIFT_NS = 20_000


def stages(deadline: float, budget: Budget) -> list[Stage]:
    """Measured twice before anybody is named: what does not come again was not a rank's habit."""

    def plan(rounds: Rounds) -> dict[str, Any]:
        transport = rounds.of("connect")[0]["transport"]
        return {"transport": transport, "seconds": budget.part(ARRIVALS)}

    return [
        Stage(NAME, deadline, _measure, _judge, plan),
        Stage(AGAIN, deadline, _measure, _judge_again, plan, confirms=NAME),
    ]


def of(rounds: Rounds, stage: str = NAME) -> dict[int, Arrival]:
    """Every rank's arrivals in that stage; empty where there is nobody to compare with."""
    results = rounds.of(stage)
    if any(result is None for result in results.values()):
        return {}
    return {rank: Arrival.of_payload(result) for rank, result in results.items()}


def clock(context: Context) -> tuple[int, int]:
    """Nanoseconds from this rank's clock to rank 0's, and the error bound; asked for again when
    the two may have drifted apart by more than that."""
    asked, offset, error = context.kept.get(_CLOCK, (0, 0, UNKNOWN_NS))
    drift = round((time.monotonic_ns() - asked) * _DRIFT)
    if not asked or drift > max(error, _DRIFT_NS):
        context.step("compare clocks")
        asked, drift = time.monotonic_ns(), 0
        try:
            offset, error = context.sync_clock(_CLOCK_SECONDS)
        except OddrankError:  # a clock that nobody knows names nobody
            offset, error = 0, UNKNOWN_NS
        context.kept[_CLOCK] = (asked, offset, error)
    return offset, error + (drift if error else 0)  # (0, 0): it is rank 0's own clock


def _measure(context: Context) -> dict[str, Any] | None:
    told = context.parameters
    group = connect(context, told["transport"])
    if group.world == 1:
        return None
    came = measured(group, clock(context), told["seconds"])
    return came.as_payload() if came else None


def measured(group: Group, offset: tuple[int, int], seconds: float) -> Arrival | None:
    """This rank's arrivals at a few hundred small all_reduces, or as many as fit into `seconds`.

    All ranks call it together.
    """
    backend = C10d(group)
    backend.reserve(_CASE.bytes)
    operation = backend.prepare(_CASE)
    operation.ready()
    group.barrier()
    # With a few first, for some ranks may need seconds for each.
    fitting = seconds / _one_run(group, operation, _FEWEST) - _FEWEST
    (warmup,) = group.said_by(0, [max(0, min(_WARMUP, round(fitting / 4)))])
    if warmup:
        fitting = seconds / _one_run(group, operation, warmup) - _FEWEST - warmup
    (count,) = group.said_by(0, [max(_FEWEST, min(_ITERATIONS, int(fitting)))])
    stamps = Stamps()
    stamps.add(_run(group, operation, count))
    return arrival(group, stamps, offset)


def _one_run(group: Group, operation: Operation, count: int) -> float:
    """Seconds that one of so many runs took, on the slowest rank."""
    durations = array("q", _run(group, operation, count).durations())
    (slowest,) = group.largest([statistics.median(durations)])
    return float(max(1.0, slowest)) / 1e9


def _run(group: Group, operation: Operation, count: int) -> Any:
    """Each run through to its end, on GPUs too: a queue would hide who is late."""
    group.context.step("all_reduces of 4 bytes")
    laps = group.context.laps(count)
    for _ in range(count):
        laps.enter()
        operation.once()
        laps.leave()
    return laps


def _judge(rounds: Rounds) -> list[Finding]:
    """What is said if it can't be measured again; `_judge_again` takes its place."""
    return [findings.late_once(rounds, NAME, one) for one in late.judge(of(rounds))]


def _judge_again(rounds: Rounds) -> list[Finding]:
    first, again = of(rounds), of(rounds, AGAIN)
    sure = late.are_enough(first) and late.are_enough(again)
    say = findings.late if sure else findings.late_in_few
    return [say(rounds, NAME, one) for one in late.both_times(first, again)]
