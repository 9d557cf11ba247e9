"""Rows of judges: what they say -> name of a row -> its findings; and how much they run."""

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import findings_shown
from oddrank.finding import Finding

Rows = Mapping[str, Mapping[str, Iterable[Finding]]]


def check(said: Rows, golden: Callable[[str], None] | None = None) -> None:
    """Asserts what each row says, "" for no finding; with `golden`, what users see of it, too."""
    rows = [(name, (found, what)) for what, rows in said.items() for name, found in rows.items()]
    assert len(dict(rows)) == len(rows), "two rows have one name"
    findings_shown.check(dict(rows))
    if golden:
        findings_shown.check({name: row for name, row in rows if row[1]}, golden)


def takes_one_pass(judged: Callable[[int], object], ranks: int = 10_000) -> None:
    """Fails if `judged(ranks)` runs 20 times as many lines of Python as a tenth of the ranks does.

    It should be 10 times; looking at all pairs makes it 100.
    """
    few, many = (lines_run(partial(judged, count)) for count in (ranks // 10, ranks))
    assert few > ranks // 10
    assert many < 20 * few


def lines_run(call: Callable[[], object]) -> int:
    """Returns how many lines a call runs: each turn of a loop or of a comprehension counts."""
    count = 0

    def trace(frame: object, event: str, argument: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
