"""One line of a sweep's table: from the slowest rank's times to median, algbw and busbw."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from oddrank.bench import shortfall
from oddrank.bench.case import Case
from oddrank.bench.collectives import COLLECTIVES
from oddrank.bench.pace import error_of_visits
from oddrank.bench.published import Expected
from oddrank.finding import Who

# Nearest rank: of fewer samples the 99th percentile is the largest.
_ENOUGH_FOR_P99 = 100
# Kept of every row, for comparisons of two runs.
_MOST_SAMPLES = 512

_NO_BUS = "busbw is not defined for one rank: nothing crosses a bus"
_NO_BYTES = "a barrier moves no data"
# NCCL, and mostly gloo too, does nothing at all then: any size would be done in the same time.
_STAYS = "one rank in place has all it will have: there is nothing to move"
_NO_TIME = "it took no time that could be measured"


@dataclass(frozen=True)
class Row:
    """Times in microseconds, bandwidths in 1e9 bytes a second; None: nothing to say, see reason.

    n: ranks. visits: to this case, in which its iterations were made. error: half the 95 %
    confidence interval of the median, relative. samples_us: the slowest rank's time of iterations,
    in their order, evenly thinned. arrival: microseconds behind the first rank, the median of every
    rank, in the order of ranks. footprint: bytes that the runs of a rank go over, in turn, which
    caches serve where they are few.
    """

    backend: str
    collective: str
    dtype: str
    op: str
    bytes: int
    count: int
    inplace: bool
    n: int
    check: str  # "ok", "wrong", or "skipped"
    iterations: int = 0
    visits: int = 0
    median_us: float | None = None
    p99_us: float | None = None
    min_us: float | None = None
    cv: float | None = None
    error: float | None = None
    algbw_GBps: float | None = None
    busbw_GBps: float | None = None
    expected_GBps: float | None = None
    percent: float | None = None
    expected_source: str | None = None
    expected_note: str | None = None
    expected_doubt: str | None = None
    reason: str | None = None
    samples_us: tuple[float, ...] = ()
    arrival: Mapping[str, Any] | None = None
    footprint: int | None = None

    def as_data(self) -> dict[str, Any]:
        return asdict(self)

    def expecting(self, what: Expected | None) -> "Row":
        """With what others measured or physics allows, and the percentage of that."""
        if what is None:
            return self
        return replace(
            self,
            expected_GBps=what.algbw_GBps if what.busbw_GBps is None else what.busbw_GBps,
            percent=shortfall.percent(self, what),
            expected_source=what.source,
            expected_note=what.note or None,
            expected_doubt=what.doubt or None,
        )


def summarise(case: Case, results: Mapping[int, Mapping[str, Any]], world: int) -> Row:
    """An iteration lasts as long as its slowest rank; the median over iterations counts.

    results: what every rank published (oddrank.bench.sweep); the times are rank 0's, agreed on, a
    list a visit.
    """
    first = results[min(results)]
    row = Row(
        first["backend"], case.collective, case.dtype, case.op, case.bytes, case.count,
        case.in_place, world,
        "wrong" if any(result["mismatch"] for result in results.values()) else "ok",
    )  # fmt: skip
    if first["skipped"] is not None:
        return replace(row, check="skipped", reason=_why_skipped(results))
    visits = first["times"]
    times = [time for visit in visits for time in visit]
    if not times:
        return replace(row, reason="no iteration was timed")
    median = statistics.median(times)
    algbw, busbw, reason = None, None, None
    if not case.bytes:
        reason = _NO_BYTES
    elif world == 1 and case.in_place:
        reason = _STAYS
    elif median <= 0:
        reason = _NO_TIME
    else:
        algbw = case.bytes / median / 1e3
        busbw = algbw * COLLECTIVES[case.collective].bus_factor(world) if world > 1 else None
        reason = None if world > 1 else _NO_BUS
    error, mean = error_of_visits(visits), statistics.fmean(times)
    return replace(
        row,
        iterations=len(times),
        visits=len(visits),
        median_us=median,
        p99_us=_percentile(times, 0.99) if len(times) >= _ENOUGH_FOR_P99 else None,
        min_us=min(times),
        cv=statistics.pstdev(times) / mean if len(times) > 1 and mean > 0 else None,
        error=error if math.isfinite(error) else None,
        algbw_GBps=algbw,
        busbw_GBps=busbw,
        reason=reason,
        samples_us=tuple(round(t, 3) for t in thinned(times)),
        arrival=_arrivals(results),
        footprint=first["footprint"],
    )


def _why_skipped(results: Mapping[int, Mapping[str, Any]]) -> str:
    """The reason of the first rank that has one, and who has it where that is not every rank."""
    reasons = {rank: results[rank]["skipped"] for rank in sorted(results)}
    reason: str = next(reason for reason in reasons.values() if reason)
    who = tuple(rank for rank, theirs in reasons.items() if theirs == reason)
    return reason if len(who) == len(results) else f"{Who('rank', who)}: {reason}"


def thinned(times: Sequence[float]) -> list[float]:
    """At most as many as are kept, evenly spread."""
    if len(times) <= _MOST_SAMPLES:
        return list(times)
    return [times[i * len(times) // _MOST_SAMPLES] for i in range(_MOST_SAMPLES)]


def _percentile(times: Sequence[float], share: float) -> float:
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def _arrivals(results: Mapping[int, Mapping[str, Any]]) -> dict[str, Any] | None:
    if any(result["arrival"] is None for result in results.values()):
        return None
    of = [results[rank]["arrival"] for rank in sorted(results)]
    return {
        "iterations": of[0]["n"],
        "median_us": [round(a["median"], 2) for a in of],
        "spread_us": round(of[0]["spread"], 2),
        "clock_error_us": round(max(a["error"] for a in of), 2),
    }
