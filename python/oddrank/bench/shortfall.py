"""What falls short of its expectation, or can't be held against one. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from oddrank.bench import findings
from oddrank.bench.case import Case
from oddrank.bench.expect import SMALLEST, expected
from oddrank.bench.facts import Facts
from oddrank.bench.published import Expected
from oddrank.finding import Finding


class Row(Protocol):
    """What was measured, bandwidths in 1e9 bytes a second."""

    @property
    def collective(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    @property
    def n(self) -> int: ...
    @property
    def check(self) -> str: ...
    @property
    def algbw_GBps(self) -> float | None: ...
    @property
    def busbw_GBps(self) -> float | None: ...


def percent(row: Row, of: Expected | None) -> float | None:
    """Of the expected bandwidth; None where one of them is not known."""
    if of is None:
        return None
    pairs = ((row.busbw_GBps, of.busbw_GBps), (row.algbw_GBps, of.algbw_GBps))
    return next((100 * got / limit for got, limit in pairs if got is not None and limit), None)


def held(
    rows: Sequence[Row], expectations: Sequence[Expected | None]
) -> list[tuple[Row, Expected, float]]:
    """The rows that may be judged, each with what is expected and the percentage of it."""
    found = []
    for row, of in zip(rows, expectations, strict=True):
        share = percent(row, of)
        if of is not None and of.judged and row.check == "ok" and share is not None:
            found.append((row, of, share))
    return found


def judged_from(facts: Facts, case: Case) -> int | None:
    """The power of two from which on such a case is judged; None where no size of it is."""
    sizes = (1 << power for power in range(SMALLEST.bit_length() - 1, 40))
    due = ((size, expected(facts, replace(case, bytes=size))) for size in sizes)
    return next((size for size, of in due if of is not None and of.judged), None)


def judge(
    rows: Sequence[Row], expectations: Sequence[Expected | None], threshold: float
) -> list[Finding]:
    """One finding if any row falls below `threshold` (0.9 is 90 %) of what may be judged.

    Of a slow collective all ranks are slow: it names all of them, that is nobody.
    """
    low = [each for each in held(rows, expectations) if each[2] < 100 * threshold]
    low.sort(key=lambda each: each[2])
    return [findings.below_expected(low, threshold)] if low else []
