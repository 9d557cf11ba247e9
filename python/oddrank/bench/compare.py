"""Two runs of `bench run`, row by row: the same, faster, slower, or not to be told.

A row is SLOWER where the whole interval of the ratio of medians (B's time over A's) lies beyond
what counts as the same, SAME where all of it lies within, and UNSURE otherwise: too few iterations
or too much noise is no verdict. Where B's values are wrong it is WRONG, however fast. The interval
knows what varies within a run, not from run to run (another allocation, another hour): compare
several runs before blaming a change.
"""

from collections import Counter
from typing import Any

from oddrank import _native
from oddrank.bench.comparison import CONFIDENCE, Compared, Comparison, Judgement
from oddrank.bench.saved import Saved, SavedRow
from oddrank.bench.worlds import backends, differences
from oddrank.errors import OddrankError

_REPLICATES = 4000
_SEED = 20
_FEWEST = 10  # iterations: the interval of fewer has not the confidence that it claims


def compare(a: Saved, b: Saved, *, within: float, force: bool = False) -> Comparison:
    """within: 0.05 takes up to 5 % more time, or as much less, for the same.

    OddrankError where a run has no rows, the two have none in common, or their worlds differ and
    `force` is not given.
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
    # Two back ends are compared only where it is plain which with which.
    across = not backends(a) & backends(b) and len(backends(a)) == len(backends(b)) == 1
    ours, theirs = _by_key(a, across), _by_key(b, across)
    both = [key for key in ours if key in theirs]
    if not both:
        raise OddrankError(f"{a.path} and {b.path} have no row in common: nothing to compare")
    rows = tuple(_judge(ours[key], theirs[key], within) for key in both)
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
        why = _useless(row)
        if why:
            return _without_interval(a, b, "UNSURE", f"{why} in {side}")
    ratio, low, high, *_ = _native.core().ratio_of_medians(
        b.samples, a.samples, CONFIDENCE, _REPLICATES, _SEED
    )
    most = 1 + within
    verdict: Judgement = "UNSURE"
    why = ""
    if low > most:
        verdict = "SLOWER"
    elif high < 1 / most:
        verdict = "FASTER"
    elif low >= 1 / most and high <= most:
        verdict = "SAME"
    return Compared(a.key, a.median_us, b.median_us, ratio, low, high, verdict, why)


def _useless(row: SavedRow) -> str:
    """Why a row says nothing of how fast it is; empty where it does."""
    if row.median_us is None:
        return "not measured"
    if _is_wrong(row):
        return "wrong values"
    if len(row.samples) < _FEWEST:
        many = f"{len(row.samples)} iterations" if row.samples else "no times of single iterations"
        return f"{many} (at least {_FEWEST} are needed)"
    return ""


def _is_wrong(row: SavedRow) -> bool:
    return row.check.startswith("wrong")


def _without_interval(a: SavedRow, b: SavedRow, verdict: Judgement, why: str) -> Compared:
    ratio = b.median_us / a.median_us if a.median_us and b.median_us else None
    return Compared(a.key, a.median_us, b.median_us, ratio, None, None, verdict, why)


def _by_key(side: Saved, any_backend: bool) -> dict[tuple[Any, ...], SavedRow]:
    """A row that is there twice is compared with the other's second one."""
    seen: Counter[tuple[Any, ...]] = Counter()
    found = {}
    for row in side.rows:
        key = row.key[1:] if any_backend else row.key
        place = (*key, seen[key])
        found[place] = row
        seen[key] += 1
    return found
