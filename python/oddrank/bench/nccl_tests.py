"""Writes rows as nccl-tests prints them, for programs that read its output (`--format nccl-tests`).

One block for each collective and back end, as one of nccl-tests' programs prints it: a header, a
line for each size, type and operation with its figures out of place and in place, and a footer.
`nan` and `N/A` stand for what was not measured.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import oddrank
from oddrank.bench.case import NO_OP
from oddrank.bench.collectives import COLLECTIVES, ROOT
from oddrank.bench.data import Row

# Our names -> nccl-tests' names; the others are the same.
_TYPES = {
    "float16": "half", "float32": "float", "float64": "double",
    "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2",
}  # fmt: skip
_PROGRAMS = {"all_to_all": "alltoall", "all_to_all_v": "alltoallv"}
_ROOTED = ("broadcast", "reduce", "gather", "scatter")
# Characters of the columns time, algbw, busbw and #wrong.
_TIME, _BANDWIDTH, _WRONG = 7, 6, 6
_OUT, _IN = False, True


class Member(NamedTuple):
    """A rank: its host, its device as people name it, and the number of its group."""

    rank: int
    host: str
    device: str
    group: int = 0


@dataclass(frozen=True)
class _Line:
    """Both places of one case; None: not in the sweep."""

    out: Row | None
    within: Row | None

    @property
    def rows(self) -> list[Row]:
        return [row for row in (self.out, self.within) if row is not None]


def text(rows: Iterable[Row], members: Sequence[Member]) -> Iterator[str]:
    """Yields the lines of all blocks. rows: in the order of the sweep."""
    blocks: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        blocks.setdefault((row.collective, row.backend), []).append(row)
    for (collective, backend), block in blocks.items():
        yield from _block(collective, backend, _lines(block), members)


def _lines(rows: Iterable[Row]) -> list[_Line]:
    found: dict[tuple[str, str, int], dict[bool, Row]] = {}
    for row in rows:
        found.setdefault((row.dtype, row.op, row.bytes), {})[row.inplace] = row
    return [_Line(places.get(_OUT), places.get(_IN)) for places in found.values()]


def _block(
    collective: str, backend: str, lines: Sequence[_Line], members: Sequence[Member]
) -> Iterator[str]:
    program = f"{_PROGRAMS.get(collective, collective)}_perf"
    rows = [row for line in lines for row in line.rows]
    yield f"# nccl-tests format by oddrank {oddrank.__version__}, back end {backend}"
    yield f"# Collective test starting: {program}"
    yield f"# minBytes {min(r.bytes for r in rows)} maxBytes {max(r.bytes for r in rows)}"
    yield "#"
    yield "# Using devices"
    for member in members:
        where = f"Group {member.group:2} on {member.host:>10}"
        yield f"#  Rank {member.rank:2} {where} {member.device}"
    yield "#"
    front = "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}"
    figures = "  {:>7}  {:>6}  {:>6}  {:>6}"
    yield front.format("", "", "", "", "") + f"{'out-of-place':>24}{'in-place':>30}          "
    names, units = ("time", "algbw", "busbw", "#wrong"), ("(us)", "(GB/s)", "(GB/s)", "")
    yield front.format("size", "count", "type", "redop", "root") + 2 * figures.format(*names)
    yield front.format("(B)", "(elements)", "", "", "") + 2 * figures.format(*units)
    for line in lines:
        yield _front(line.rows[0]) + _figures(line.out) + _figures(line.within)
    wrong = sum(row.check == "wrong" for row in rows)
    buses = [row.busbw_GBps or 0.0 for row in rows if row.mean_us is not None]
    mean = sum(buses) / len(buses) if buses else 0.0
    yield f"# {'Out of bounds values':20} : {wrong} {'FAILED' if wrong else 'OK'}"
    yield f"# {'Avg bus bandwidth':20} : {mean:g} "
    yield "#"
    yield f"# Collective test concluded: {program}"
    yield "#"


def _front(row: Row) -> str:
    collective = COLLECTIVES[row.collective]
    # nccl-tests counts one rank's part where ranks share the size.
    count = row.count // row.n if collective.shares(row.n) > 1 else row.count
    op = "none" if row.op == NO_OP else row.op
    root = ROOT if row.collective in _ROOTED else -1
    dtype = _TYPES.get(row.dtype, row.dtype)
    return f"{row.bytes:12}  {count:12}  {dtype:>8}  {op:>6}  {root:>6}"


def _figures(row: Row | None) -> str:
    if row is None or row.mean_us is None:
        return (
            f"  {'nan':>{_TIME}}  {'nan':>{_BANDWIDTH}}  {'nan':>{_BANDWIDTH}}  {'N/A':>{_WRONG}}"
        )
    time = _number(row.mean_us, _TIME)
    algbw, busbw = (
        # One rank has no busbw: nothing crosses a bus. A barrier has neither.
        _number(value or 0.0, _BANDWIDTH)
        for value in (row.algbw_GBps, row.busbw_GBps)
    )
    return f"  {time}  {algbw}  {busbw}  {row.wrong:>{_WRONG}g}"


def _number(value: float, width: int) -> str:
    """Formats with as many of two decimals as fit, else with an exponent."""
    shown = (f"{value:.{decimals}f}" for decimals in (2, 1, 0))
    return next((text for text in shown if len(text) <= width), f"{value:.1e}").rjust(width)
