"""Measures all ranks' arrivals at many small all_reduces, on rank 0's clock, and finds late ranks.

The rule is in oddrank.peers.
"""

import statistics
from array import array
from collections.abc import Mapping
from dataclasses import asdict, replace
from itertools import repeat
from typing import Any, TypeAlias, TypedDict

from oddrank.bench.backend import Block, Operation, one_by_one
from oddrank.bench.c10d import C10d
from oddrank.bench.case import Case
from oddrank.bench.data import connected_of
from oddrank.bench.plan import ARRIVALS, Budget
from oddrank.bench.sampling import ENOUGH
from oddrank.control.stages import AnyStage, Context, RunState, Stage, Timestamps
from oddrank.errors import OddrankError
from oddrank.finding import Evidence, Finding, Row, Who, duration
from oddrank.peers import SMALLEST_EFFECT, Arrival, Late, both_times, late_ranks, quantiles_of
from oddrank.process_group import Group, connect

UNKNOWN_NS = 1_000_000_000_000  # error bound of a clock that could not be compared with rank 0's


def of_payload(payload: dict[str, Any]) -> Arrival:
    """Returns the arrivals that another rank sent as a mapping of their fields."""
    return Arrival(**{**payload, "quantiles": tuple(payload["quantiles"])})


def _arrival(group: Group, timestamps: Timestamps, clock: tuple[int, int]) -> Arrival | None:
    """Returns this rank's arrivals; None if the clocks could not be compared.

    Leaves out the first arrival: nothing aligned the ranks before it. All ranks call it together.
    clock: nanoseconds from this rank's clock to rank 0's, and the error bound.
    """
    offset, error = clock
    starts, durations = array("q", timestamps.starts()), array("q", timestamps.durations())
    left = (at + took for at, took in zip(starts, durations, strict=True))
    own = statistics.median(at - end for at, end in zip(starts[1:], left, strict=False)) / 1e3
    came = array("d", ((ns + offset) / 1e3 for ns in starts[1:]))
    levelled = array("d", (at - own for at in came))
    n = len(came)
    # One agreement for all: the smallest value is minus the largest of the negatives.
    agreed = group.largest(
        array("d", [float(error), *(-at for at in came), *levelled, *(-at for at in levelled)])
    )
    worst, first = agreed[0], [-at for at in agreed[1 : n + 1]]
    if worst >= UNKNOWN_NS:
        return None
    behind = sorted(mine - one for mine, one in zip(came, first, strict=True))
    last, earliest = agreed[n + 1 : 2 * n + 1], [-at for at in agreed[2 * n + 1 :]]
    return Arrival(
        n=len(behind),
        median=statistics.median(behind),
        own=own,
        quantiles=quantiles_of(behind),
        spread=statistics.median(high - low for high, low in zip(last, earliest, strict=True)),
        error=error / 1e3,
    )


def are_enough(arrivals: Mapping[int, Arrival]) -> bool:
    return bool(arrivals) and min(a.n for a in arrivals.values()) >= ENOUGH


def smallest_effect(arrivals: Mapping[int, Arrival]) -> float | None:
    """Returns the smallest delay in microseconds that is found; None: too few iterations."""
    if not are_enough(arrivals):
        return None
    return max(SMALLEST_EFFECT * (a.spread + a.error) for a in arrivals.values())


NAME, RECHECK = "arrival", "arrival_recheck"
_Result: TypeAlias = "dict[str, Any] | None"  # None for one rank, or without comparable clocks
# The maximum stays what it is however often it is reduced in place; a sum would grow.
_CASE = Case("all_reduce", "float32", 4, "max")
_WARMUP = 20
_ITERATIONS = ENOUGH + 100
_FEWEST = 3
_CLOCK_SECONDS = 5.0


class _Plan(TypedDict):
    transport: str
    seconds: float


def stages(deadline: float, budget: Budget) -> list[AnyStage]:
    """Returns both stages: a rank is named only if it is late in both."""

    def make_plan(run: RunState) -> _Plan:
        transport = connected_of(run)[0]["transport"]
        return {"transport": transport, "seconds": budget.part(ARRIVALS)}

    return [
        Stage(NAME, deadline, _measure, _judge, make_plan),
        Stage(RECHECK, deadline, _measure, _judge_recheck, make_plan, confirms=NAME),
    ]


def of(run: RunState) -> dict[int, Arrival]:
    """Returns every rank's arrivals in the first stage; empty with one rank."""
    return _read(run.of(NAME))


def _read(results: Mapping[int, _Result]) -> dict[int, Arrival]:
    came = {rank: of_payload(one) for rank, one in results.items() if one is not None}
    return came if len(came) == len(results) else {}


def clock(context: Context[object]) -> tuple[int, int]:
    """Returns nanoseconds from this rank's clock to rank 0's, and the error bound."""
    context.step("compare clocks")
    try:
        offset, error = context.sync_clock(_CLOCK_SECONDS)
    except OddrankError:  # without a common clock no rank can be named
        return 0, UNKNOWN_NS
    return offset, error


def _measure(context: Context[_Plan]) -> _Result:
    params = context.parameters
    group = connect(context, params["transport"])
    if group.world == 1:
        return None
    came = measured(group, clock(context), params["seconds"])
    return asdict(came) if came else None


def measured(group: Group, offset: tuple[int, int], seconds: float) -> Arrival | None:
    """Measures this rank's arrivals at up to a few hundred small all_reduces, with all ranks."""
    backend = C10d(group)
    backend.reserve(_CASE.bytes)
    operation = backend.prepare(_CASE)
    operation.ready()
    group.barrier()
    # Times a few runs first: a rank may need seconds for each.
    fitting = seconds / _one_run(group, operation, _FEWEST) - _FEWEST
    (warmup,) = group.said_by(0, [max(0, min(_WARMUP, round(fitting / 4)))])
    if warmup:
        fitting = seconds / _one_run(group, operation, warmup) - _FEWEST - warmup
    (count,) = group.said_by(0, [max(_FEWEST, min(_ITERATIONS, int(fitting)))])
    timestamps = group.context.timestamps(count)
    _run(group, operation, timestamps, count)
    return _arrival(group, timestamps, offset)


def _one_run(group: Group, operation: Operation, count: int) -> float:
    """Times `count` runs; returns the median seconds of one, on the slowest rank."""
    block = _run(group, operation, group.context.timestamps(count), count)
    (slowest,) = group.largest([statistics.median(block.samples)])
    return float(max(1e-3, slowest)) / 1e6


def _run(group: Group, operation: Operation, timestamps: Timestamps, count: int) -> Block:
    """Runs it `count` times and waits for each end, on GPUs too: a queue would hide a late rank."""
    group.context.step("all_reduces of 4 bytes")
    return one_by_one(timestamps, repeat(operation.once, count))


def _judge(run: RunState, results: Mapping[int, _Result]) -> list[Finding]:
    """Returns the findings if there is no recheck; else `_judge_recheck`'s replace them."""
    return [_late(run, one, LATE_ONCE) for one in late_ranks(_read(results))]


def _judge_recheck(run: RunState, results: Mapping[int, _Result]) -> list[Finding]:
    first, again = of(run), _read(results)
    sure = are_enough(first) and are_enough(again)
    row = LATE if sure else LATE_IN_FEW
    return [_late(run, one, row) for one in both_times(first, again)]


# fmt: off
# In both measurements the rank was later than the healthy spread explains.
LATE = Row(
    "late-arrival", "late", "{who} arrives {by} late at collectives: in {share:.0%} of {n}"
    " iterations the others wait for it",
    ("high", "measured twice, and its median is outside the range of the others"),
    ("top -H on its host: which processes use the cores of this rank",
     "oddrank trace where, during training: what it does while the others wait"))
# With no time for the second measurement, or too few iterations: names no rank.
LATE_ONCE = Row(
    "not-measured-again", "unknown",
    "{rank} arrived late once, and there was no time to measure again",
    ("low", "seen in one measurement"), ("run it again, with a longer --deadline",))
LATE_IN_FEW = Row(
    "too-few-iterations", "unknown", "{rank} seems to arrive {by} late, but in only {n}"
    f" iterations: {ENOUGH} are needed",
    ("low", "too few iterations fit into the budget"), ("run it again, with a longer --budget",))
# fmt: on


def _late(run: RunState, one: Late, row: Row) -> Finding:
    who = run.who([one.rank])
    if row is LATE and run.world < 3:
        row = replace(row, sure=("medium", "measured twice, but with only one other rank to"
                                 " compare with"))  # fmt: skip
    return row.found(
        who if row.cause == LATE.cause else Who("rank"),
        Evidence(
            "time between leaving a collective and the next", "4-byte all_reduces, median",
            one.others + one.by, "us", one.others,
        ),
        Evidence("arrives after the others by", "the same, clocks aligned", one.behind, "us"),
        Evidence("healthy spread (median of last minus first)", "the same", one.spread, "us"),
        Evidence("smallest delay that counts as late", "twice the spread", one.line, "us"),
        rank=who, by=duration(one.by / 1e6), share=one.share, n=one.n,
    )  # fmt: skip
