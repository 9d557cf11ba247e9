"""A row of a sweep: its figures from all ranks' times, and the table that grows row by row."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TextIO

from oddrank.bench import split
from oddrank.bench.case import COLLECTIVES, NO_OP, Case
from oddrank.bench.data import PassResult, Row
from oddrank.bench.plan import Pass
from oddrank.bench.sampling import error_of_passes
from oddrank.finding import Who, counted, size_text
from oddrank.render import progress

# With fewer samples a percentile (nearest rank) is the largest one.
_ENOUGH_FOR_P95, _ENOUGH_FOR_P99 = 20, 100
_MOST_SAMPLES = 512  # samples saved in every row, to compare two runs

_NO_BUS = "busbw is not defined for one rank: nothing crosses a bus"
_NO_BYTES = "a barrier moves no data"
# Here NCCL, and mostly gloo too, does nothing at all: every size takes the same time.
_STAYS = "one rank in place already holds the result: nothing moves"
_NO_TIME = "its time is too short to measure"


def summarise(case: Case, results: Mapping[int, PassResult], world: int) -> Row:
    """Returns the row of a case. Its bandwidths come from the mean, which is the headline."""
    first = results[min(results)]
    row = Row(
        first["backend"], case.collective, case.dtype, case.op, case.bytes, case.count,
        case.in_place, world,
        "wrong" if any(result["mismatch"] for result in results.values()) else "ok",
        sum(seen["wrong"] for result in results.values() if (seen := result["mismatch"])),
    )  # fmt: skip
    if first["skipped"] is not None:
        return replace(row, check="skipped", reason=_why_skipped(results))
    passes = first["times"]
    times = [time for one_pass in passes for time in one_pass]
    mean = first["mean"]
    if not times or mean is None:
        return replace(row, reason="no iteration was timed")
    algbw, busbw, reason = None, None, None
    if not case.bytes:
        reason = _NO_BYTES
    elif world == 1 and case.in_place:
        reason = _STAYS
    elif mean <= 0:
        reason = _NO_TIME
    else:
        algbw = case.bytes / mean / 1e3
        busbw = algbw * COLLECTIVES[case.collective].bus_factor(world) if world > 1 else None
        reason = None if world > 1 else _NO_BUS
    error, usual = error_of_passes(passes), statistics.fmean(times)
    return replace(
        row, iterations=first["iterations"], passes=len(passes),
        mean_us=mean, median_us=statistics.median(times), min_us=min(times),
        p95_us=_percentile(times, 0.95) if len(times) >= _ENOUGH_FOR_P95 else None,
        p99_us=_percentile(times, 0.99) if len(times) >= _ENOUGH_FOR_P99 else None,
        cv=statistics.pstdev(times) / usual if len(times) > 1 and usual > 0 else None,
        error=error if math.isfinite(error) else None,
        algbw_GBps=algbw, busbw_GBps=busbw, reason=reason,
        samples_us=tuple(round(t, 3) for t in thinned(times)),
    )  # fmt: skip


def _why_skipped(results: Mapping[int, PassResult]) -> str:
    """Returns the first rank's reason, and the ranks that have it if not all do."""
    reasons = {rank: results[rank]["skipped"] for rank in sorted(results)}
    reason = next(reason for reason in reasons.values() if reason)
    who = tuple(rank for rank, theirs in reasons.items() if theirs == reason)
    return reason if len(who) == len(results) else f"{Who('rank', who)}: {reason}"


def thinned(times: Sequence[float]) -> list[float]:
    """Returns at most as many samples as a row saves, evenly spread."""
    if len(times) <= _MOST_SAMPLES:
        return list(times)
    return [times[i * len(times) // _MOST_SAMPLES] for i in range(_MOST_SAMPLES)]


def _percentile(times: Sequence[float], share: float) -> float:
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


# Heading and width; together they fit 80 columns.
_COLUMNS = (("size", 9), ("type", 10), ("mean us", 10), ("algbw GB/s", 10), ("busbw GB/s", 10),
            ("+- %", 5), ("check", 0))  # fmt: skip
HEADINGS = tuple(name for name, _ in _COLUMNS)


class Table:
    """Prints to one stream, with a heading where the collective changes.

    Shows a row after its first pass, so that the user sees progress even if the run is killed.
    Shows all rows again at the end if there were more passes.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._heading = ""
        self._round = 1

    def add(self, one_pass: Pass, row: Row) -> None:
        if one_pass.number == 1:
            self._show(row)
        elif one_pass.number != self._round:
            progress(f"pass {one_pass.number} of {one_pass.of}", self._stream)
        self._round = one_pass.number

    def end(self, rows: Iterable[Row]) -> None:
        """Shows all rows again if there was more than one pass."""
        known = list(rows)
        most = max((row.passes for row in known), default=1)
        if most > 1:
            self._heading = ""
            progress("", self._stream)
            progress(f"all passes together, up to {most} for each case:", self._stream)
            for row in known:
                self._show(row)

    def _show(self, row: Row) -> None:
        ranks = counted(row.n, "rank")
        if row.groups:
            ranks = f"{len(row.groups)} groups of {ranks} at once, figures of the slowest group"
        heading = f"{row.collective} over {row.backend}, {ranks}{', in place' * row.inplace}"
        if heading != self._heading:
            if self._heading:
                progress("", self._stream)
            self._heading = heading
            progress(heading, self._stream)
            progress(_line(HEADINGS), self._stream)
        progress(_line(cells(row)), self._stream)
        if row.groups:
            progress(f"{'':11}{split.groups_text(row)}", self._stream)


def _line(texts: Iterable[str]) -> str:
    return "  ".join(text.rjust(width) for text, (_, width) in zip(texts, _COLUMNS, strict=True))


def cells(row: Row) -> tuple[str, ...]:
    """Returns the cells as text, in the order of the columns; a dash if unknown."""
    error = None if row.error is None else 100 * row.error
    return (
        size_text(row.bytes, exact=True),
        row.dtype if row.op in ("sum", NO_OP) else f"{row.dtype} {row.op}",
        _number(row.mean_us, 1),
        _number(row.algbw_GBps, 3),
        _number(row.busbw_GBps, 3),
        _number(error, 1),
        f"skipped: {row.reason}" if row.is_skipped else row.check,
    )


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
