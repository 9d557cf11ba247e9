"""Rows of judges: what they say -> name of a row -> its findings; and how long they take."""

import time
from collections.abc import Callable, Iterable, Mapping

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
    """Fails if `judged(ranks)` takes more than 50 times as long as of a tenth of the ranks."""
    took = []
    for count in (ranks // 10, ranks):
        began = time.thread_time()
        judged(count)
        took.append(time.thread_time() - began)
    assert took[1] < 50 * took[0]  # looking at all pairs would take 100 times as long
