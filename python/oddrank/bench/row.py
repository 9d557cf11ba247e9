"""A row of a sweep: its figures from all ranks' times, and the table that grows row by row."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TextIO

from oddrank.bench import split
from oddrank.bench.case import Case, size_text
from oddrank.bench.collectives import COLLECTIVES
from oddrank.bench.data import PassResult, Row
from oddrank.bench.plan import Pass
from oddrank.bench.sampling import error_of_passes
from oddrank.finding import Who
from oddrank.render import progress, terminal_width

# With fewer samples a percentile (nearest rank) is the largest one.
_ENOUGH_FOR_P95, _ENOUGH_FOR_P99 = 20, 100
# Samples saved in every row, to compare two runs.
_MOST_SAMPLES = 512

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
        row,
        iterations=first["iterations"],
        passes=len(passes),
        mean_us=mean,
        median_us=statistics.median(times),
        p95_us=_percentile(times, 0.95) if len(times) >= _ENOUGH_FOR_P95 else None,
        p99_us=_percentile(times, 0.99) if len(times) >= _ENOUGH_FOR_P99 else None,
        min_us=min(times),
        cv=statistics.pstdev(times) / usual if len(times) > 1 and usual > 0 else None,
        error=error if math.isfinite(error) else None,
        algbw_GBps=algbw,
        busbw_GBps=busbw,
        reason=reason,
        samples_us=tuple(round(t, 3) for t in thinned(times)),
    )


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


# Heading, width, and order of leaving on a narrow terminal (highest first; 0 never leaves): the
# columns of nccl-tests and some more.
_COLUMNS = (
    ("size", 10, 0), ("count", 12, 10), ("type", 10, 3), ("redop", 5, 5), ("place", 5, 4),
    ("mean us", 11, 0), ("median us", 11, 7), ("p95 us", 11, 11), ("p99 us", 11, 8),
    ("min us", 11, 12), ("algbw GB/s", 10, 6), ("busbw GB/s", 10, 0), ("+- %", 6, 1),
    ("% exp", 6, 2), ("CV %", 6, 13), ("iters", 6, 9), ("check", 7, 0),
)  # fmt: skip


class Table:
    """Prints to one stream, with a heading where the collective or the back end changes.

    Shows a row after its first pass, so that the user sees progress even if the run is killed.
    Shows all rows again at the end if there were more passes. Leaves out columns that do not fit
    the terminal, or $COLUMNS.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._heading = ""
        self._round = 1
        self._width = terminal_width(stream)
        self._shown = _fitting(self._width)

    def add(self, one_pass: Pass, row: Row) -> None:
        """Shows the row of a case after that pass."""
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
        ranks = f"{row.n} rank{'s' if row.n > 1 else ''}"
        if row.groups:
            ranks = f"{len(row.groups)} groups of {ranks} at once, figures of the slowest group"
        heading = f"{row.collective} over {row.backend}, {ranks}"
        if heading != self._heading:
            if self._heading:
                progress("", self._stream)
            self._heading = heading
            progress(heading, self._stream)
            left_out = [name for i, (name, *_) in enumerate(_COLUMNS) if i not in self._shown]
            if left_out:
                progress(f"not shown for lack of width: {', '.join(left_out)}", self._stream)
            progress(self._line([name for name, *_ in _COLUMNS]), self._stream)
        progress(self._line(cells(row)), self._stream)
        if row.groups:
            progress(f"{'':12}{split.groups_text(row)}", self._stream)

    def _line(self, texts: Sequence[str]) -> str:
        padded = [texts[i].rjust(_COLUMNS[i][1]) for i in self._shown]
        return "  ".join([*padded[:-1], padded[-1].strip()])


def _fitting(width: int | None) -> list[int]:
    """Returns the indices of the columns that fit together, all of them if width is None."""
    shown = list(range(len(_COLUMNS)))
    leaving = sorted((i for i in shown if _COLUMNS[i][2]), key=lambda i: _COLUMNS[i][2])
    while width is not None and leaving and sum(_COLUMNS[i][1] + 2 for i in shown) - 2 > width:
        shown.remove(leaving.pop())
    return shown


def cells(row: Row) -> tuple[str, ...]:
    """Returns the cells as text, in the order of the columns; a dash if unknown."""
    return (
        size_text(row.bytes), str(row.count), row.dtype, row.op,
        "in" if row.inplace else "out",
        _number(row.mean_us, 1), _number(row.median_us, 1), _number(row.p95_us, 1),
        _number(row.p99_us, 1), _number(row.min_us, 1), _number(row.algbw_GBps, 3),
        _number(row.busbw_GBps, 3), _hundredfold(row.error), _percent(row),
        _hundredfold(row.cv), str(row.iterations),
        f"skipped: {row.reason}" if row.check == "skipped" else row.check,
    )  # fmt: skip


def _hundredfold(share: float | None) -> str:
    return _number(None if share is None else 100 * share, 1)


def _percent(row: Row) -> str:
    """Returns the percentage, with a ? if the expectation is doubtful."""
    doubted = row.percent is not None and row.expected_doubt
    return _number(row.percent, 0) + ("?" if doubted else "")


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
