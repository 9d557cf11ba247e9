"""The table of a sweep as it grows: one line as soon as a case is through, plain text."""

from collections import deque
from collections.abc import Iterable, Mapping
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

    names: of the cases, in the order of their lines.
    """

    def __init__(self, stream: TextIO, names: Iterable[str]) -> None:
        self._stream, self._names = stream, deque(names)
        self._rows: dict[str, Row] = {}  # that others come before
        self._heading = ""
        self._visit = 1

    def add(self, name: str, row: Row) -> None:
        """A row to which nothing will be added."""
        self._rows[name] = row
        while self._names and self._names[0] in self._rows:
            self._show(self._rows.pop(self._names.popleft()))

    def tell(self, visit: Visit) -> None:
        """How far it is, where no row is through for long."""
        if visit.number > self._visit:
            progress(f"all cases visited {self._visit} of {visit.of} times", self._stream)
        self._visit = visit.number

    def end(self, rows: Mapping[str, Row]) -> None:
        """What came in between the rows that are still due: they are shown as they are."""
        for name in self._names:
            if name in rows:
                self._show(rows[name])
        self._names.clear()

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
