"""Compares two runs of `bench run` row by row: same, faster, slower, unsure or wrong.

Judges a row by the confidence interval of the ratio of medians, B's time over A's. SLOWER: all of
it lies above the range that counts as equal. SAME: within. FASTER: below. UNSURE: it crosses a
limit of the range (too few iterations, or too much noise). WRONG: B has wrong values, however fast.
The interval covers the variation within a run, not from run to run (another allocation, another
hour): compare several runs before blaming a change.
"""

import json
import os
import stat
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from oddrank import _native
from oddrank.bench.data import Key, Row
from oddrank.errors import OddrankError
from oddrank.finding import Evidence, Finding, Who, counted, grouped, size_text, some
from oddrank.finding import Row as CauseRow
from oddrank.report import SCHEMA, Report

_MOST_BYTES = 64 << 20  # in a file
_MOST_SAMPLES = 1 << 12  # in a row; bench.row writes 512
_DIGITS = 30  # in a number: int() of millions of digits takes minutes
_MOST_TEXT = 200  # characters
_MOST_SHOWN = 40  # characters of a value in a sentence
_LARGEST = 1 << 62  # count or size
_LEAST, _MOST = 1e-9, 1e15  # range of a time or a bandwidth


@dataclass(frozen=True)
class Saved:
    path: str
    world: Mapping[str, Any]
    data: Mapping[str, Any]
    rows: tuple[Row, ...]


def read(path: str) -> Saved:
    """Reads a report. OddrankError if it can't be read or is no report of `bench run`."""
    try:
        found = json.loads(_content(path), parse_int=_integer)
        if not isinstance(found, dict) or "schema" not in found:
            raise ValueError("it is no report of oddrank")
        if found["schema"] != SCHEMA:
            schema = _short(found["schema"])
            raise ValueError(f"its schema is {schema}, this oddrank reads {SCHEMA}")
        if found.get("tool") != "bench":
            raise ValueError(f'its "tool" is {_short(found.get("tool"))}, not "bench"')
        world, data = _member(found, "world", _OBJECT), _member(found, "data", _OBJECT)
        if "pairs" in data:
            raise ValueError("it is of bench pairs")
        rows = enumerate(_member(data, "rows", _LIST, "data"))
        return Saved(path, world, data, tuple(_row(row, f"data.rows[{i}]") for i, row in rows))
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or str(error)
        if isinstance(error, json.JSONDecodeError):
            cut = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated")
            said = "it ends in the middle" if cut else f"{error.msg} in line {error.lineno}"
            why = f"it is no JSON: {said}"
        elif isinstance(error, RecursionError):
            why = "it is nested too deeply"
        raise OddrankError(
            f"cannot read {path}: {why}; name a file that bench run wrote with --json"
        ) from None


def _content(path: str) -> bytes:
    # Without O_NONBLOCK a pipe without a writer would block.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is no regular file")
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES >> 20} MiB")
    if not content.strip():
        raise ValueError("it is empty")
    return content


def _integer(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"it has a number with {len(text)} digits")
    return int(text)


def _is_figure(value: Any) -> bool:
    """Returns whether it can be a time in microseconds or a bandwidth in GB/s, or is unknown."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value is None or (is_number and (value == 0 or _LEAST <= value <= _MOST))


def _are_times(value: Any) -> bool:
    few = isinstance(value, list) and len(value) <= _MOST_SAMPLES
    return few and None not in value and all(map(_is_figure, value))


# The required type of a member, in words, and the test for it.
_Kind = tuple[str, Callable[[Any], bool]]
_OBJECT: _Kind = "an object", lambda value: isinstance(value, dict)
_LIST: _Kind = "a list", lambda value: isinstance(value, list)
_TEXT: _Kind = (
    f"a text of at most {_MOST_TEXT} characters",
    lambda value: isinstance(value, str) and len(value) <= _MOST_TEXT,
)
_FLAG: _Kind = "true or false", lambda value: isinstance(value, bool)
_COUNT: _Kind = "a whole number", lambda value: type(value) is int and 0 <= value <= _LARGEST
_FIGURE: _Kind = "a time or a bandwidth", _is_figure
_CHECK: _Kind = "ok, wrong or skipped", lambda value: value in ("ok", "wrong", "skipped")
_ROW = {
    "backend": _TEXT, "collective": _TEXT, "dtype": _TEXT, "op": _TEXT, "bytes": _COUNT,
    "count": _COUNT, "inplace": _FLAG, "n": _COUNT, "check": _CHECK, "mean_us": _FIGURE,
    "median_us": _FIGURE, "p99_us": _FIGURE, "algbw_GBps": _FIGURE, "busbw_GBps": _FIGURE,
    "samples_us": ("a list of times", _are_times),
}  # fmt: skip


def _member(of: Any, name: str, kind: _Kind, place: str = "") -> Any:
    """Returns a member of an object at `place` of the file; the member must be of that kind."""
    if not isinstance(of, dict):
        raise ValueError(f"{place} is {_short(of)}, not an object")
    value, (what, fits) = of.get(name), kind
    if not fits(value):
        raise ValueError(f"{place}{'.' * bool(place)}{name} is {_short(value)}, not {what}")
    return value


def _row(row: Any, place: str) -> Row:
    found = {name: _member(row, name, kind, place) for name, kind in _ROW.items()}
    found |= {name: found[name] or None for name, kind in _ROW.items() if kind is _FIGURE}
    samples = found.pop("samples_us")
    # A case that takes no time (one rank, in place) has no samples to compare.
    times = tuple(map(float, samples)) if all(samples) else ()
    return Row(**found, reason=str(row.get("reason") or "")[:_MOST_TEXT], samples_us=times)


def _short(value: object) -> str:
    if isinstance(value, str):
        return repr(value[:_MOST_SHOWN])
    text = "missing" if value is None else repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


CONFIDENCE = 0.99
COLUMNS = ("size", "collective", "dtype", "op", "place", "A p50 us", "B p50 us", "B/A",
           "99 % interval", "verdict")  # fmt: skip
_REPLICATES = 4000
_SEED = 20
_FEWEST = 10  # iterations: with fewer, the interval does not have its confidence
_OF_A_JOB = {"job", "launcher"}  # facts about the job, not about its machines
_MOST_TOLD = 100
_MOST_HOSTS = 5

RowVerdict = Literal["SAME", "FASTER", "SLOWER", "UNSURE", "WRONG"]


@dataclass(frozen=True)
class Compared:
    """One row of both runs. ratio: B's median time over A's, from low to high; None: unknown."""

    key: Key
    a_us: float | None
    b_us: float | None
    ratio: float | None
    low: float | None
    high: float | None
    verdict: RowVerdict
    why: str = ""

    def as_data(self) -> dict[str, Any]:
        return {**self.key._asdict(), **{k: v for k, v in asdict(self).items() if k != "key"}}

    def __str__(self) -> str:
        if self.why or self.ratio is None:
            return f"{self.key}: {self.why}" if self.why else str(self.key)
        return (
            f"{self.key} takes {self.ratio:.2f} times as long ({self.low:.3f} to {self.high:.3f})"
        )


@dataclass(frozen=True)
class RunComparison:
    """Both runs. only_a, only_b: rows that the other run lacks."""

    rows: tuple[Compared, ...]
    only_a: tuple[Row, ...]
    only_b: tuple[Row, ...]
    within: float
    notes: tuple[str, ...]


def compare_runs(a: Saved, b: Saved, *, within: float, force: bool = False) -> RunComparison:
    """Compares the rows that both runs have.

    within: 0.05 treats up to 5 % more or less time as the same. OddrankError if a run has no rows,
    no row is in both, or their worlds differ and `force` is false.
    """
    for side in (a, b):
        if not side.rows:
            why = "its run ended before the first row; name reports of bench run"
            raise OddrankError(f"cannot compare {side.path}: {why}")
    worlds = _other_worlds(a, b)
    if worlds and not force:
        raise OddrankError(
            f"not the same world: {'; '.join(worlds)}; --force compares them all the same"
        )
    # Compares different back ends only if each run has a single one.
    across = not _backends(a) & _backends(b) and len(_backends(a)) == len(_backends(b)) == 1
    ours, theirs = _by_key(a, across), _by_key(b, across)
    both = [key for key in ours if key in theirs]
    if not both:
        raise OddrankError(f"{a.path} and {b.path} have no row in common: nothing to compare")
    skipped = [key for key in both if ours[key].is_skipped and theirs[key].is_skipped]
    if len(skipped) == len(both):
        raise OddrankError(f"{a.path} and {b.path} skipped every row that they have in common")
    return RunComparison(
        tuple(_judge(ours[key], theirs[key], within) for key in both if key not in skipped),
        tuple(row for key, row in ours.items() if key not in theirs),
        tuple(row for key, row in theirs.items() if key not in ours),
        within,
        (
            *(f"not the same world: {what}" for what in worlds),
            *_other_setups(a, b),
            *(f"skipped in A and B: {ours[key].key}: {ours[key].reason}" for key in skipped),
        ),
    )


def _judge(a: Row, b: Row, within: float) -> Compared:
    why = "wrong values in B" if b.is_wrong else _useless(a, "A") or _useless(b, "B")
    if why:
        ratio = b.median_us / a.median_us if a.median_us and b.median_us else None
        verdict: RowVerdict = "WRONG" if b.is_wrong else "UNSURE"
        return Compared(a.key, a.median_us, b.median_us, ratio, None, None, verdict, why)
    _, low, high, *_ = _native.core().ratio_of_medians(
        b.samples_us, a.samples_us, CONFIDENCE, _REPLICATES, _SEED
    )
    # Medians of the samples, not of all iterations, as for the interval.
    a_us, b_us = statistics.median(a.samples_us), statistics.median(b.samples_us)
    most = 1 + within
    verdict = "UNSURE"
    if low > most:
        verdict = "SLOWER"
    elif high < 1 / most:
        verdict = "FASTER"
    elif low >= 1 / most and high <= most:
        verdict = "SAME"
    return Compared(a.key, a_us, b_us, b_us / a_us, low, high, verdict)


def _useless(row: Row, side: str) -> str:
    """Returns why the row can't be judged; "" if it can."""
    if row.is_skipped:
        return f"skipped in {side}: {row.reason}"
    if row.median_us is None:
        return f"not measured in {side}"
    if row.is_wrong:
        return f"wrong values in {side}"
    count = len(row.samples_us)
    if count < _FEWEST:
        many = counted(count, "iteration") if count else "no times of single iterations"
        return f"{many} (at least {_FEWEST} are needed) in {side}"
    return ""


def _by_key(side: Saved, any_backend: bool) -> dict[tuple[Any, ...], Row]:
    """Indexes the rows. A repeated key gets a number: second rows are compared with second rows."""
    seen: Counter[tuple[Any, ...]] = Counter()
    found = {}
    for row in side.rows:
        key = row.key[1:] if any_backend else row.key
        numbered = (*key, seen[key])
        found[numbered] = row
        seen[key] += 1
    return found


def _backends(side: Saved) -> set[str]:
    return {row.backend for row in side.rows}


def _other_worlds(a: Saved, b: Saved) -> list[str]:
    found = []
    if not _backends(a) & _backends(b):
        sides = (", ".join(sorted(_backends(side))) for side in (a, b))
        found.append(_cut(f"back end {' and '.join(sides)}"))
    ours, theirs = ({**side.world, "devices": side.data.get("devices")} for side in (a, b))
    for facts in (ours, theirs):
        facts["ranks"] = facts.pop("size", None)
    return found + _differing(ours, theirs, leave_out=_OF_A_JOB)


def _other_setups(a: Saved, b: Saved) -> list[str]:
    """Returns other versions, links, settings and hosts, which may explain a change."""
    ours, theirs = (_mapping(side.data.get("setup")) for side in (a, b))
    found = _differing(ours, theirs, leave_out={"hosts", "settings"})
    settings = (_mapping(setup.get("settings")) for setup in (ours, theirs))
    found += _differing(*settings, absent="not set")
    notes = [f"differs: {what}" for what in found]
    hosts = [setup.get("hosts") for setup in (ours, theirs)]
    one, other = (
        dict.fromkeys(map(str, names if isinstance(names, list) else ())) for names in hosts
    )
    only = (("A", [h for h in one if h not in other]), ("B", [h for h in other if h not in one]))
    shown = [
        f"only {side} ran on {some([*map(_cut, names)], _MOST_HOSTS)}"
        for side, names in only
        if names
    ]
    return [*notes, f"other hosts: {', '.join(shown)}"] if shown else notes


def _differing(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], *, leave_out: Iterable[str] = (),
    absent: str = "unknown",
) -> list[str]:  # fmt: skip
    sides = [{name: facts.get(name) for name in {**ours, **theirs}} for facts in (ours, theirs)]
    return [
        f"{_cut(name)} {_told(one, absent)} and {_told(sides[1][name], absent)}"
        for name, one in sides[0].items()
        if name not in leave_out and one != sides[1][name]
    ]


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _told(value: object, absent: str) -> str:
    """Formats a fact for a sentence: lists and counts as `8 x H200`, long text cut."""
    if isinstance(value, list | dict):
        counts = Counter(map(str, value)) if isinstance(value, list) else value
        value = ", ".join(text if n == 1 else f"{n} x {text}" for text, n in counts.items())
    return absent if value is None else _cut(str(value))


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TOLD else f"{text[:_MOST_TOLD]}..."


def report(found: RunComparison, a: Saved, b: Saved) -> Report:
    """Returns the report: slower and wrong rows name B's file; rows that B lacks are incomplete."""
    total, near = len(found.rows), f"within {100 * found.within:g}%"
    by_verdict = grouped((row.verdict, row) for row in found.rows)
    made = [
        _finding(verdict, by_verdict[verdict], total, a.path, b.path)
        for verdict in _FINDINGS
        if verdict in by_verdict
    ]
    fast = [
        f"{words} in {len(by_verdict[verdict])} of {counted(total, 'row')}"
        for verdict, words in (("SAME", f"as fast as A, {near},"), ("FASTER", "faster"))
        if verdict in by_verdict
    ]
    why = f"B is {' and '.join(fast)}" if fast else ""
    lacking = [row.key for row in found.only_a if row.median_us is not None]
    if lacking:
        more = f" and {counted(len(lacking) - 1, 'row')} more" if len(lacking) > 1 else ""
        why = f"B lacks {lacking[0]}{more}, which A has measured{'; ' * bool(why)}{why}"
    data = {
        "a": a.path,
        "b": b.path,
        "within": found.within,
        "confidence": CONFIDENCE,
        "rows": [row.as_data() for row in found.rows],
        "only_a": [row.key._asdict() for row in found.only_a],
        "only_b": [row.key._asdict() for row in found.only_b],
        "notes": list(found.notes),
    }
    return Report.of("bench compare", {}, data, made, complete=not lacking, why=why)


def _finding(verdict: str, rows: Sequence[Compared], total: int, a: str, b: str) -> Finding:
    """Returns the finding on rows of B that are WRONG, SLOWER or UNSURE against A's rows."""
    worst, row = max(rows, key=lambda row: row.ratio or 0.0), _FINDINGS[verdict]
    return row.found(
        Who("file", device=b if row.condition != "unknown" else None),
        *(Evidence(str(one), "99 % interval of the ratio of medians") for one in rows[:8]),
        a=a, b=b, worst=worst, among=f"{len(rows)} of {counted(total, 'row')}",
    )  # fmt: skip


# fmt: off
_FINDINGS = {
    "WRONG": CauseRow(
        "wrong-values", "broken", "{b} has wrong values in {among}: {worst}",
        ("medium", "the run compared its values"),
        ("read B's findings first: which ranks saw wrong values, and whose values were wrong",
         "run oddrank selftest several times on B's hosts: it compares every rank's own values")),
    "SLOWER": CauseRow(
        "slower-than-before", "slow", "{b} is slower than {a} in {among}, most: {worst}",
        ("medium",
         "the interval covers the noise within a run: two runs of one machine may differ by more"),
        ("compare with further runs before you blame a change",
         "oddrank bench pairs, launched in the same way: which link or rank is slower")),
    "UNSURE": CauseRow(
        "unsure", "unknown", "whether {b} is slower than {a} is unsure in {among}: {worst}",
        ("medium", "too few iterations, or too much noise"),
        ("measure both again with a longer --budget and a smaller --precision",
         "or measure both several times: noise is different in each run, a real change is not")),
}
# fmt: on


def text(found: RunComparison) -> Iterable[str]:
    """Yields the lines below the table."""
    for row in found.rows:
        if row.why:
            yield f"{row.verdict.lower()}: {row}"
    for side, other, rows in (("A", "B", found.only_a), ("B", "A", found.only_b)):
        for alone in rows:
            if alone.is_skipped:
                yield f"skipped in {side}: {alone.key}: {alone.reason}; not in {other}"
            else:
                yield f"only in {side}: {alone.key}"
    yield from found.notes


def cells(row: Compared) -> tuple[object, ...]:
    _, collective, dtype, op, size, in_place = row.key
    interval = None if row.low is None or row.high is None else f"{row.low:.3f}-{row.high:.3f}"
    return (
        size_text(size, exact=True), collective, dtype, op, "in" if in_place else "out",
        None if row.a_us is None else f"{row.a_us:.1f}",
        None if row.b_us is None else f"{row.b_us:.1f}",
        None if row.ratio is None else f"{row.ratio:.3f}",
        interval, row.verdict,
    )  # fmt: skip
