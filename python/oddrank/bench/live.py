"""The table of a sweep as it grows: one line as soon as a case is measured, plain text."""

from collections.abc import Iterable
from typing import TextIO

from oddrank.bench.row import Row
from oddrank.bench.sizes import size_text
from oddrank.bench.visits import Visit
from oddrank.render import progress

# Heading, width; the columns of nccl-tests and what it does not say.
_COLUMNS = (
    ("size", 10), ("count", 12), ("type", 10), ("redop", 5), ("place", 5), ("median us", 11),
    ("p99 us", 11), ("algbw GB/s", 10), ("busbw GB/s", 10), ("+- %", 6), ("% exp", 6),
    ("CV %", 6), ("iters", 6), ("check", 7),
)  # fmt: skip


class Table:
    """Prints to one stream; a heading where the collective or the back end changes.

    A row is shown once it is measured, and all of them again at the end where they were visited
    more than once: who waits sees that it goes on, and what is killed has said what it knew.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._heading = ""
        self._round = 1

    def add(self, visit: Visit, row: Row) -> None:
        """The row of a case after that visit."""
        if visit.number == 1:
            self._show(row)
        elif visit.number != self._round:
            progress(f"round {visit.number} of {visit.of}", self._stream)
        self._round = visit.number

    def end(self, rows: Iterable[Row]) -> None:
        """All rows, as they are at the end."""
        known = list(rows)
        most = max((row.visits for row in known), default=1)
        if most > 1:
            self._heading = ""
            progress("", self._stream)
            progress(f"all visits together, up to {most} to each case:", self._stream)
            for row in known:
                self._show(row)

    def _show(self, row: Row) -> None:
        heading = f"{row.collective} over {row.backend}, {row.n} rank{'s' if row.n > 1 else ''}"
        if heading != self._heading:
            if self._heading:
                progress("", self._stream)
            self._heading = heading
            progress(heading, self._stream)
            progress(_join(name for name, _ in _COLUMNS), self._stream)
        progress(_join(cells(row)), self._stream)


def cells(row: Row) -> tuple[str, ...]:
    """As text, in the order of the columns; what is not known is a dash."""
    return (
        size_text(row.bytes), str(row.count), row.dtype, row.op,
        "in" if row.inplace else "out",
        _number(row.median_us, 1), _number(row.p99_us, 1), _number(row.algbw_GBps, 3),
        _number(row.busbw_GBps, 3), _hundredfold(row.error), _percent(row),
        _hundredfold(row.cv), str(row.iterations),
        f"skipped: {row.reason}" if row.check == "skipped" else row.check,
    )  # fmt: skip


def _join(texts: Iterable[str]) -> str:
    padded = [text.rjust(width) for text, (_, width) in zip(texts, _COLUMNS, strict=True)]
    return "  ".join([*padded[:-1], padded[-1].strip()])


def _hundredfold(share: float | None) -> str:
    return _number(None if share is None else 100 * share, 1)


def _percent(row: Row) -> str:
    """With a ? where what is expected judges nothing."""
    doubted = row.percent is not None and row.expected_doubt
    return _number(row.percent, 0) + ("?" if doubted else "")


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
