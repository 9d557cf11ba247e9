"""What a comparison of two runs has found, and how it is said."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from oddrank.bench.saved import Key, SavedRow
from oddrank.bench.sizes import size_text

Judgement = Literal["SAME", "FASTER", "SLOWER", "UNSURE", "WRONG"]
CONFIDENCE = 0.99
COLUMNS = ("size", "collective", "dtype", "op", "place", "A us", "B us", "B/A", "99 % interval",
           "verdict")  # fmt: skip
# What --fail-on may name; `missing`: rows that A has measured and B has not.
FAILING = ("slower", "wrong", "faster", "unsure", "missing")


@dataclass(frozen=True)
class Compared:
    """One row of both runs. ratio, low, high: B's median time over A's; None: not to be told."""

    key: Key
    a_us: float | None
    b_us: float | None
    ratio: float | None
    low: float | None
    high: float | None
    verdict: Judgement
    why: str = ""

    def __str__(self) -> str:
        return name_text(self.key)

    def as_data(self) -> dict[str, Any]:
        figures = asdict(self)
        return {**name_data(figures.pop("key")), **figures}


@dataclass(frozen=True)
class Comparison:
    """Both runs. only_a, only_b: rows that the other has not."""

    rows: tuple[Compared, ...]
    only_a: tuple[SavedRow, ...]
    only_b: tuple[SavedRow, ...]
    within: float
    notes: tuple[str, ...]

    @property
    def verdict(self) -> Judgement:
        """The worst: one slower row is a slower run, and one unsure row leaves it open."""
        found = {row.verdict for row in self.rows}
        order: tuple[Judgement, ...] = ("WRONG", "SLOWER", "UNSURE", "FASTER", "SAME")
        return next(verdict for verdict in order if verdict in found)

    def exit_code(self, fail_on: Collection[str]) -> int:
        found = {row.verdict.lower() for row in self.rows}
        if any(row.median_us is not None for row in self.only_a) or any(
            row.a_us is not None and row.b_us is None for row in self.rows
        ):
            found.add("missing")
        return 1 if found & set(fail_on) else 0

    def as_data(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "sentence": sentence(self),
            "next": advice(self),
            "within": self.within,
            "confidence": CONFIDENCE,
            "rows": [row.as_data() for row in self.rows],
            "only_a": [name_data(row.key) for row in self.only_a],
            "only_b": [name_data(row.key) for row in self.only_b],
            "notes": list(self.notes),
        }


def sentence(found: Comparison) -> str:
    """The overall verdict."""
    counts = Counter(row.verdict for row in found.rows)
    total = len(found.rows)
    near = f"within {100 * found.within:g}%"
    if found.verdict == "SAME":
        return f"B is as fast as A, {near}, in {'all ' * (total > 1)}{_rows(total)}"
    wrong = f"has wrong values in {counts['WRONG']}" if counts["WRONG"] else ""
    parts = [
        f"{verdict.lower()} in {counts[verdict]}"
        for verdict in ("SLOWER", "FASTER", "SAME", "UNSURE")
        if counts[verdict]
    ]
    how = f"is {', '.join(parts)} ({near} is the same)" if parts else ""
    said = f"of {_rows(total)} B {', and '.join(filter(None, (wrong, how)))}"
    worst = _farthest(found)
    return said if worst is None else f"{said}; most: {_times(worst)}"


def advice(found: Comparison) -> list[str]:
    """What to do next; none where every row is decided and right."""
    verdicts = {row.verdict for row in found.rows}
    if "WRONG" in verdicts:
        return [
            "first what is wrong: B's own findings say which ranks saw it, and whose values it was",
            "oddrank selftest several times on its hosts: it compares every rank's own values",
        ]
    if "UNSURE" not in verdicts:
        return []
    return [
        "measure both again with a longer --budget and a smaller --target-cv: more iterations",
        "or the same rows several times, and compare those: noise does not come again",
    ]


def text(found: Comparison) -> Iterable[str]:
    """The lines below the table."""
    for row in found.rows:
        if row.why:
            yield f"{row.verdict.lower()}: {row}: {row.why}"
    for side, rows in (("A", found.only_a), ("B", found.only_b)):
        yield from (f"only in {side}: {name_text(row.key)}" for row in rows)
    yield from found.notes


def cells(row: Compared) -> tuple[object, ...]:
    _, collective, dtype, op, size, in_place = row.key
    interval = None if row.low is None or row.high is None else f"{row.low:.3f}-{row.high:.3f}"
    return (
        size_text(size),
        collective,
        dtype,
        op,
        "in" if in_place else "out",
        None if row.a_us is None else f"{row.a_us:.1f}",
        None if row.b_us is None else f"{row.b_us:.1f}",
        None if row.ratio is None else f"{row.ratio:.3f}",
        interval,
        row.verdict,
    )


def name_text(key: Key) -> str:
    backend, collective, dtype, op, size, in_place = key
    place = "in place" if in_place else "out of place"
    kind = "" if op == "none" else f" {op}"
    return f"{collective} {dtype}{kind} {size_text(size)} {place} ({backend})"


def name_data(key: Key) -> dict[str, Any]:
    names = ("backend", "collective", "dtype", "op", "bytes", "inplace")
    return dict(zip(names, key, strict=True))


def _farthest(found: Comparison) -> Compared | None:
    """The row that moved most in the direction of the verdict."""
    moved = [row for row in found.rows if row.verdict == found.verdict and row.ratio]
    if found.verdict == "SLOWER":
        return max(moved, key=lambda row: row.ratio or 0.0)
    return min(moved, key=lambda row: row.ratio or 0.0) if found.verdict == "FASTER" else None


def _times(row: Compared) -> str:
    return f"{row} takes {row.ratio:.2f} times as long ({row.low:.2f} to {row.high:.2f})"


def _rows(count: int) -> str:
    return f"{count} row{'s' if count != 1 else ''}"
