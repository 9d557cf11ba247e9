"""Compares two runs of `bench run` row by row: same, faster, slower, unsure or wrong.

Judges a row by the confidence interval of the ratio of medians, B's time over A's. SLOWER: all of
it lies above the range that counts as equal. SAME: within. FASTER: below. UNSURE: it crosses a
limit of the range (too few iterations, or too much noise). WRONG: B has wrong values, however fast.
The interval covers the variation within a run, not from run to run (another allocation, another
hour): compare several runs before blaming a change.
"""

import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from oddrank import _native
from oddrank.bench import findings
from oddrank.bench.case import size_text
from oddrank.bench.data import Compared, RowVerdict, name_data, name_text
from oddrank.bench.saved import Saved, SavedRow
from oddrank.errors import OddrankError
from oddrank.report import Report

CONFIDENCE = 0.99
COLUMNS = ("size", "collective", "dtype", "op", "place", "A us", "B us", "B/A", "99 % interval",
           "verdict")  # fmt: skip
_REPLICATES = 4000
_SEED = 20
_FEWEST = 10  # iterations: with fewer, the interval does not have its confidence
_OF_A_JOB = {"job", "launcher"}  # facts about the job, not about its machines
_NAMES = {"size": "ranks"}  # member of `world` -> its name for people
_MOST_TOLD = 100
_MOST_HOSTS = 5
_NOT_SET = "not set"


@dataclass(frozen=True)
class RunComparison:
    """Both runs. only_a, only_b: rows that the other run lacks."""

    rows: tuple[Compared, ...]
    only_a: tuple[SavedRow, ...]
    only_b: tuple[SavedRow, ...]
    within: float
    notes: tuple[str, ...]


def compare_runs(a: Saved, b: Saved, *, within: float, force: bool = False) -> RunComparison:
    """Compares the rows that both runs have.

    within: 0.05 treats up to 5 % more or less time as the same. OddrankError if a run has no rows,
    no row is in both, or their worlds differ and `force` is false.
    """
    for side in (a, b):
        if not side.rows:
            what = "it is of bench pairs" if side.matrices else "it has no rows"
            raise OddrankError(f"cannot compare {side.path}: {what}; name reports of bench run")
    worlds, notes = _differences(a, b)
    if worlds and not force:
        raise OddrankError(
            f"not the same world: {'; '.join(worlds)}; --force compares them all the same"
        )
    notes = [*(f"not the same world: {what}" for what in worlds), *notes]
    # Compares different back ends only if each run has a single one.
    across = not _backends(a) & _backends(b) and len(_backends(a)) == len(_backends(b)) == 1
    ours, theirs = _by_key(a, across), _by_key(b, across)
    both = [key for key in ours if key in theirs]
    if not both:
        raise OddrankError(f"{a.path} and {b.path} have no row in common: nothing to compare")
    skipped = [key for key in both if ours[key].is_skipped and theirs[key].is_skipped]
    if len(skipped) == len(both):
        raise OddrankError(f"{a.path} and {b.path} skipped every row that they have in common")
    notes += [
        f"skipped in A and B: {name_text(ours[key].key)}: {_reason(ours[key])}" for key in skipped
    ]
    rows = tuple(_judge(ours[key], theirs[key], within) for key in both if key not in skipped)
    return RunComparison(
        rows,
        tuple(row for key, row in ours.items() if key not in theirs),
        tuple(row for key, row in theirs.items() if key not in ours),
        within,
        tuple(notes),
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
    verdict: RowVerdict = "UNSURE"
    if low > most:
        verdict = "SLOWER"
    elif high < 1 / most:
        verdict = "FASTER"
    elif low >= 1 / most and high <= most:
        verdict = "SAME"
    return Compared(a.key, a_us, b_us, b_us / a_us, low, high, verdict)


def _useless(row: SavedRow, side: str) -> str:
    """Returns why the row can't be judged; "" if it can."""
    if row.is_skipped:
        return f"skipped in {side}: {_reason(row)}"
    if row.median_us is None:
        return f"not measured in {side}"
    if _is_wrong(row):
        return f"wrong values in {side}"
    count = len(row.samples)
    if count < _FEWEST:
        many = "1 iteration" if count == 1 else f"{count or 'no times of single'} iterations"
        return f"{many} (at least {_FEWEST} are needed) in {side}"
    return ""


def _reason(row: SavedRow) -> str:
    return row.reason or "no reason saved"


def _is_wrong(row: SavedRow) -> bool:
    return row.check.startswith("wrong")


def _without_interval(a: SavedRow, b: SavedRow, verdict: RowVerdict, why: str) -> Compared:
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


def _differences(a: Saved, b: Saved) -> tuple[list[str], list[str]]:
    """Compares two runs, except for job name and launcher, which always differ.

    Returns differences of the worlds, which make the times incomparable, and notes: differing
    versions, links and settings, which may explain a change; other hosts; and facts that only one
    report has.
    """
    differing: list[str] = []
    if not _backends(a) & _backends(b):
        sides = (", ".join(sorted(_backends(side))) for side in (a, b))
        differing.append(_cut(f"back end {' and '.join(sides)}"))
    silent: dict[str, list[str]] = {"A": [], "B": []}
    differing += _between(_world(a), _world(b), silent)
    shown = _between(_versions(a), _versions(b), silent) + _between(*_settings(a, b), silent)
    notes = [
        *(f"differs: {what}" for what in shown),
        *_other_hosts(a, b),
        *(
            f"not compared: {', '.join(names)}: {side} does not say"
            for side, names in silent.items()
            if names
        ),
    ]
    return differing, notes


def _backends(side: Saved) -> set[str]:
    """Returns the back ends of its rows."""
    return {row.backend for row in side.rows}


def _between(
    ours: dict[str, Any], theirs: dict[str, Any], silent: dict[str, list[str]]
) -> list[str]:
    """Returns facts that differ; `silent` takes those that only one run has."""
    differing = []
    for name in {**ours, **theirs}:
        one, other = ours.get(name), theirs.get(name)
        if one is None or other is None:
            silent["A" if one is None else "B"].append(_cut(name))
        elif one != other:
            differing.append(f"{_cut(name)} {_told(one)} and {_told(other)}")
    return differing


def _world(side: Saved) -> dict[str, Any]:
    """Returns the facts that must agree for times to be comparable."""
    facts = {name: value for name, value in side.world.items() if name not in _OF_A_JOB}
    facts["devices"] = side.data.get("devices")
    return {_NAMES.get(name, name): value for name, value in facts.items() if value is not None}


def _versions(side: Saved) -> dict[str, Any]:
    setup = _setup(side)
    shown = (name for name in setup if name not in ("hosts", "settings"))
    return {name: setup[name] for name in shown if setup[name] is not None}


def _settings(a: Saved, b: Saved) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns both environments with the same names, or that one report alone has any."""
    every = [_setup(side).get("settings") for side in (a, b)]
    ours, theirs = (found if isinstance(found, dict) else None for found in every)
    if ours is None or theirs is None:
        return {"settings": ours} if ours else {}, {"settings": theirs} if theirs else {}
    names = {**ours, **theirs}
    return (
        {name: ours.get(name, _NOT_SET) for name in names},
        {name: theirs.get(name, _NOT_SET) for name in names},
    )


def _other_hosts(a: Saved, b: Saved) -> list[str]:
    ours, theirs = (_setup(side).get("hosts") for side in (a, b))
    if not isinstance(ours, list) or not isinstance(theirs, list):
        return []
    only = [
        [name for name in map(str, mine) if name not in others]
        for mine, others in ((ours, set(map(str, theirs))), (theirs, set(map(str, ours))))
    ]
    shown = [f"only {side} ran on {_few(names)}" for side, names in zip("AB", only, strict=True)
            if names]  # fmt: skip
    return [f"other hosts: {', '.join(shown)}"] if shown else []


def _setup(side: Saved) -> dict[str, Any]:
    found = side.data.get("setup")
    return found if isinstance(found, dict) else {}


def _few(names: list[str]) -> str:
    shown = ", ".join(map(_cut, names[:_MOST_HOSTS]))
    more = len(names) - _MOST_HOSTS
    return f"{shown} and {more} more" if more > 0 else shown


def _told(value: object) -> str:
    """Formats a fact for a sentence: lists and counts as `8 x H200`, long text cut."""
    if isinstance(value, list | dict):
        counts = Counter(map(str, value)) if isinstance(value, list) else value
        value = ", ".join(text if n == 1 else f"{n} x {text}" for text, n in counts.items())
    return _cut(str(value))


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TOLD else f"{text[:_MOST_TOLD]}..."


def report(found: RunComparison, a: Saved, b: Saved) -> Report:
    """Returns the report: slower and wrong rows name B's file; rows that B lacks are incomplete."""
    by_verdict = {verdict: [row for row in found.rows if row.verdict == verdict] for verdict in
                  ("WRONG", "SLOWER", "UNSURE", "FASTER", "SAME")}  # fmt: skip
    total, near = len(found.rows), f"within {100 * found.within:g}%"
    made = [
        findings.other_run(verdict, rows, total, a.path, b.path)
        for verdict in ("WRONG", "SLOWER", "UNSURE")
        if (rows := by_verdict[verdict])
    ]
    fast = [
        f"{words} in {len(by_verdict[verdict])} of {_rows(total)}"
        for verdict, words in (("SAME", f"as fast as A, {near},"), ("FASTER", "faster"))
        if by_verdict[verdict]
    ]
    why = f"B is {' and '.join(fast)}" if fast else ""
    lacking = [name_text(row.key) for row in found.only_a if row.median_us is not None]
    if lacking:
        more = f" and {_rows(len(lacking) - 1)} more" if len(lacking) > 1 else ""
        why = f"B lacks {lacking[0]}{more}, which A has measured{'; ' * bool(why)}{why}"
    data = {
        "a": a.path,
        "b": b.path,
        "within": found.within,
        "confidence": CONFIDENCE,
        "rows": [row.as_data() for row in found.rows],
        "only_a": [name_data(row.key) for row in found.only_a],
        "only_b": [name_data(row.key) for row in found.only_b],
        "notes": list(found.notes),
    }
    return Report.of("bench compare", {}, data, made, complete=not lacking, why=why)


def text(found: RunComparison) -> Iterable[str]:
    """Yields the lines below the table."""
    for row in found.rows:
        if row.why:
            yield f"{row.verdict.lower()}: {row}: {row.why}"
    for side, other, rows in (("A", "B", found.only_a), ("B", "A", found.only_b)):
        for alone in rows:
            name = name_text(alone.key)
            if alone.is_skipped:
                yield f"skipped in {side}: {name}: {_reason(alone)}; not in {other}"
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


def _rows(count: int) -> str:
    return f"{count} row{'s' if count != 1 else ''}"
