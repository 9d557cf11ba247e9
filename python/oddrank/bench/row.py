"""One line of a sweep's table: from every rank's times to one median, algbw and busbw."""

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from oddrank.bench.case import Case, size_text
from oddrank.bench.collectives import COLLECTIVES

COLUMNS = ("size", "count", "dtype", "median us", "algbw GB/s", "busbw GB/s", "iterations", "check")


@dataclass(frozen=True)
class Row:
    """Bandwidths in 1e9 bytes a second; None where there is nothing to say, with the reason."""

    backend: str
    collective: str
    dtype: str
    bytes: int
    count: int
    n: int
    iterations: int
    median_us: float | None
    algbw_GBps: float | None
    busbw_GBps: float | None
    check: str  # "ok", "wrong", or "skipped: why"
    reason: str | None = None

    def as_data(self) -> dict[str, Any]:
        return asdict(self)

    def cells(self) -> tuple[str, ...]:  # numbers as text: render aligns them
        return (
            size_text(self.bytes),
            str(self.count),
            self.dtype,
            _number(self.median_us, 1),
            _number(self.algbw_GBps, 3),
            _number(self.busbw_GBps, 3),
            str(self.iterations),
            self.check,
        )


def summarise(case: Case, results: Mapping[int, Mapping[str, Any]], world: int) -> Row:
    """An iteration lasts as long as its slowest rank; the median over iterations counts."""
    first = next(iter(results.values()))
    times = [result["times"] for result in results.values()]
    wrong = any(result["mismatch"] for result in results.values())
    facts = (first["backend"], case.collective, case.dtype, case.bytes, case.count, world)
    if not times[0]:
        return Row(*facts, 0, None, None, None, "skipped: memory", "not enough free memory")
    slowest = [max(iteration) for iteration in zip(*times, strict=True)]
    median = statistics.median(slowest)
    algbw = case.bytes / median / 1e3  # bytes per microsecond = 1e6 bytes a second
    busbw = algbw * COLLECTIVES[case.collective].bus_factor(world) if world > 1 else None
    return Row(
        *facts,
        len(slowest),
        median,
        algbw,
        busbw,
        "wrong" if wrong else "ok",
        None if world > 1 else "busbw is not defined for one rank: nothing crosses a bus",
    )


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
