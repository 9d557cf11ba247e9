"""Compares two runs of `bench run` row by row: same, faster, slower, unsure or wrong.

Judges a row by the confidence interval of the ratio of medians, B's time over A's. SLOWER: all of
it lies above the range that counts as equal. SAME: within. FASTER: below. UNSURE: it crosses a
limit of the range (too few iterations, or too much noise). WRONG: B has wrong values, however fast.
The interval covers the variation within a run, not from run to run (another allocation, another
hour): compare several runs before blaming a change.
"""

import statistics
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from oddrank import _native
from oddrank.bench.case import size_text
from oddrank.bench.run_differences import backends, differences
from oddrank.bench.saved import Key, Saved, SavedRow
from oddrank.errors import OddrankError

Judgement = Literal["SAME", "FASTER", "SLOWER", "UNSURE", "WRONG"]
CONFIDENCE = 0.99
COLUMNS = ("size", "collective", "dtype", "op", "place", "A us", "B us", "B/A", "99 % interval",
           "verdict")  # fmt: skip
# Words for --fail-on; `missing`: rows measured in A and not in B.
FAILING = ("slower", "wrong", "faster", "unsure", "missing")


@dataclass(frozen=True)
class Compared:
    """One row of both runs. ratio: B's median time over A's, from low to high; None: unknown."""

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
    """Both runs. only_a, only_b: rows that the other run lacks."""

    rows: tuple[Compared, ...]
    only_a: tuple[SavedRow, ...]
    only_b: tuple[SavedRow, ...]
    within: float
    notes: tuple[str, ...]

    @property
    def verdict(self) -> Judgement:
        """Returns the worst verdict of all rows: one slower row makes the run slower."""
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
    """Returns the overall verdict as a sentence."""
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
    result = f"of {_rows(total)} B {', and '.join(filter(None, (wrong, how)))}"
    worst = _farthest(found)
    return result if worst is None else f"{result}; most: {_times(worst)}"


def advice(found: Comparison) -> list[str]:
    """Returns the next steps; none if every row is decided and right."""
    verdicts = {row.verdict for row in found.rows}
    if "WRONG" in verdicts:
        return [
            "first what is wrong: B's own findings say which ranks saw it, and whose values it was",
            "oddrank selftest several times on its hosts: it compares every rank's own values",
        ]
    if "UNSURE" not in verdicts:
        return []
    return [
        "measure both again with a longer --budget and a smaller --precision: more iterations",
        "or the same rows several times, and compare those: noise does not come again",
    ]


def text(found: Comparison) -> Iterable[str]:
    """Yields the lines below the table."""
    for row in found.rows:
        if row.why:
            yield f"{row.verdict.lower()}: {row}: {row.why}"
    for side, other, rows in (("A", "B", found.only_a), ("B", "A", found.only_b)):
        for alone in rows:
            name = name_text(alone.key)
            if alone.is_skipped:
                why = alone.reason or "no reason saved"
                yield f"skipped in {side}: {name}: {why}; not in {other}"
            else:
                yield f"only in {side}: {name}"
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
    """Returns the row that moved most in the direction of the verdict, if it is a direction."""
    moved = [row for row in found.rows if row.verdict == found.verdict and row.ratio]
    if found.verdict == "SLOWER":
        return max(moved, key=lambda row: row.ratio or 0.0)
    return min(moved, key=lambda row: row.ratio or 0.0) if found.verdict == "FASTER" else None


def _times(row: Compared) -> str:
    return f"{row} takes {row.ratio:.2f} times as long ({row.low:.2f} to {row.high:.2f})"


def _rows(count: int) -> str:
    return f"{count} row{'s' if count != 1 else ''}"


_REPLICATES = 4000
_SEED = 20
_FEWEST = 10  # iterations: with fewer, the interval does not have its confidence


def compare(a: Saved, b: Saved, *, within: float, force: bool = False) -> Comparison:
    """Compares the rows that both runs have.

    within: 0.05 treats up to 5 % more or less time as the same. OddrankError if a run has no rows,
    no row is in both, or their worlds differ and `force` is false.
    """
    for side in (a, b):
        if not side.rows:
            what = "it is of bench pairs" if side.matrices else "it has no rows"
            raise OddrankError(f"cannot compare {side.path}: {what}; name reports of bench run")
    apart = differences(a, b)
    if apart.worlds and not force:
        raise OddrankError(
            f"not the same world: {'; '.join(apart.worlds)}; --force compares them all the same"
        )
    notes = (*(f"not the same world: {what}" for what in apart.worlds), *apart.notes)
    # Compares different back ends only if each run has a single one.
    across = not backends(a) & backends(b) and len(backends(a)) == len(backends(b)) == 1
    ours, theirs = _by_key(a, across), _by_key(b, across)
    both = [key for key in ours if key in theirs]
    if not both:
        raise OddrankError(f"{a.path} and {b.path} have no row in common: nothing to compare")
    skipped = [key for key in both if ours[key].is_skipped and theirs[key].is_skipped]
    if len(skipped) == len(both):
        raise OddrankError(f"{a.path} and {b.path} skipped every row that they have in common")
    notes += tuple(
        f"skipped in A and B: {name_text(ours[key].key)}: {ours[key].reason or 'no reason saved'}"
        for key in skipped
    )
    rows = tuple(_judge(ours[key], theirs[key], within) for key in both if key not in skipped)
    return Comparison(
        rows,
        tuple(row for key, row in ours.items() if key not in theirs),
        tuple(row for key, row in theirs.items() if key not in ours),
        within,
        notes,
    )


def _judge(a: SavedRow, b: SavedRow, within: float) -> Compared:
    if _is_wrong(b):
        return _without_interval(a, b, "WRONG", "wrong values in B")
    for side, row in (("A", a), ("B", b)):
        why = _useless(row, side)
        if why:
            return _without_interval(a, b, "UNSURE", why)
    _, low, high, *_ = _native.core().ratio_of_medians(
        b.samples, a.samples, CONFIDENCE, _REPLICATES, _SEED
    )
    # Medians of the samples, not of all iterations, as for the interval.
    a_us, b_us = statistics.median(a.samples), statistics.median(b.samples)
    most = 1 + within
    verdict: Judgement = "UNSURE"
    why = ""
    if low > most:
        verdict = "SLOWER"
    elif high < 1 / most:
        verdict = "FASTER"
    elif low >= 1 / most and high <= most:
        verdict = "SAME"
    return Compared(a.key, a_us, b_us, b_us / a_us, low, high, verdict, why)


def _useless(row: SavedRow, side: str) -> str:
    """Returns why the row can't be judged; "" if it can."""
    if row.is_skipped:
        return f"skipped in {side}: {row.reason or 'no reason saved'}"
    if row.median_us is None:
        return f"not measured in {side}"
    if _is_wrong(row):
        return f"wrong values in {side}"
    count = len(row.samples)
    if count < _FEWEST:
        many = "1 iteration" if count == 1 else f"{count or 'no times of single'} iterations"
        return f"{many} (at least {_FEWEST} are needed) in {side}"
    return ""


def _is_wrong(row: SavedRow) -> bool:
    return row.check.startswith("wrong")


def _without_interval(a: SavedRow, b: SavedRow, verdict: Judgement, why: str) -> Compared:
    ratio = b.median_us / a.median_us if a.median_us and b.median_us else None
    return Compared(a.key, a.median_us, b.median_us, ratio, None, None, verdict, why)


def _by_key(side: Saved, any_backend: bool) -> dict[tuple[Any, ...], SavedRow]:
    """Indexes the rows. A repeated key gets a number: second rows are compared with second rows."""
    seen: Counter[tuple[Any, ...]] = Counter()
    found = {}
    for row in side.rows:
        key = row.key[1:] if any_backend else row.key
        place = (*key, seen[key])
        found[place] = row
        seen[key] += 1
    return found
