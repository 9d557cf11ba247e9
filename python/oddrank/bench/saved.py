"""Reads back the reports of `bench run` and `bench pairs`, and trusts nothing in them.

OddrankError names the place of anything unexpected.
"""

import json
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar, cast

from oddrank.errors import OddrankError
from oddrank.report import SCHEMA

_MOST_BYTES = 64 << 20  # in a file
_MOST_ROWS = 50_000
_MOST_SAMPLES = 1 << 12  # in a row; bench.row writes 512
_MOST_REASON = 200
_DIGITS = 30  # in a number: int() of millions of digits takes minutes
# Limits for all matrices together: a few times the numbers in a report of 16,384 nodes.
_MOST_NAMES = 1 << 17
_MOST_FIGURES = 2_000_000
_MOST_MATRICES = 1 << 14
_MOST_TEXT = 200  # characters
_LARGEST = 1 << 62  # count or size
_LEAST, _MOST = 1e-9, 1e15  # range of a time or a bandwidth

T = TypeVar("T")

Key = tuple[str, str, str, str, int, bool]
"""backend, collective, dtype, op, bytes, in place."""


@dataclass(frozen=True)
class SavedRow:
    """A row of `data.rows`. Times in microseconds, bandwidths in 1e9 bytes a second."""

    backend: str
    collective: str
    dtype: str
    op: str
    bytes: int
    in_place: bool
    n: int
    check: str
    reason: str
    mean_us: float | None
    """None in reports of older versions too."""
    median_us: float | None
    p99_us: float | None
    algbw_GBps: float | None
    busbw_GBps: float | None
    samples: tuple[float, ...]
    """The time of each iteration, in their order; thinned if there were many."""

    @property
    def is_skipped(self) -> bool:
        return self.check.startswith("skipped")

    @property
    def us(self) -> float | None:
        """Returns the headline: the mean, or the median in reports without one."""
        return self.mean_us or self.median_us

    @property
    def key(self) -> Key:
        """Identifies the measured case: rows with the same key can be compared."""
        return (self.backend, self.collective, self.dtype, self.op, self.bytes, self.in_place)


Cells = Mapping[tuple[int, int], float]
"""(sender, receiver) -> figure; measured links only."""


@dataclass(frozen=True)
class SavedMatrix:
    """A matrix of links. GBps: 1e9 bytes a second; latency_us: microseconds one way.

    where: `between nodes`, `inside HOST`, or "" for the only matrix. ranks: the ranks of each name;
    None if the report does not say.
    """

    where: str
    names: tuple[str, ...]
    ranks: tuple[frozenset[int], ...] | None
    GBps: Cells
    latency_us: Cells


@dataclass(frozen=True)
class Saved:
    """A report. `bench run` writes rows, `bench pairs` matrices."""

    path: str
    world: Mapping[str, Any]
    data: Mapping[str, Any]
    findings: tuple[Mapping[str, Any], ...]
    rows: tuple[SavedRow, ...]
    matrices: tuple[SavedMatrix, ...]


def read(path: str) -> Saved:
    """Reads a report. OddrankError if it can't be read or is no report of bench."""
    found = _parse(path, _content(path))
    if not isinstance(found, dict) or "schema" not in found:
        raise _refuse(path, "it is no report of oddrank")
    if found["schema"] != SCHEMA:
        raise _refuse(path, f"its schema is {_short(found['schema'])}, this oddrank reads {SCHEMA}")
    tool = found.get("tool")
    if tool != "bench":
        raise _refuse(path, f'its "tool" is {_short(tool)}, not "bench"')
    field = _Fields(path, found, "")
    data = field.mapping("data")
    findings = field.sequence("findings") if "findings" in found else []
    return Saved(
        path,
        field.mapping("world"),
        data,
        tuple(each for each in findings if isinstance(each, dict)),
        _rows(path, data),
        _matrices(path, data),
    )


def _content(path: str) -> bytes:
    try:
        # Without O_NONBLOCK a pipe without a writer would block.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _refuse(path, "it is no regular file")
            content = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise _refuse(path, getattr(error, "strerror", None) or str(error)) from None
    if len(content) > _MOST_BYTES:
        raise _refuse(path, f"it has more than {_MOST_BYTES >> 20} MiB")
    if not content.strip():
        raise _refuse(path, "it is empty")
    return content


def _parse(path: str, content: bytes) -> object:
    def no_constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is not JSON")

    def integer(text: str) -> int:
        if len(text) > _DIGITS:
            raise ValueError(f"a number with {len(text)} digits")
        return int(text)

    try:
        return json.loads(content, parse_constant=no_constant, parse_int=integer)
    except json.JSONDecodeError as error:
        cut = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string")
        why = "it ends in the middle" if cut else f"{error.msg} in line {error.lineno}"
        raise _refuse(path, f"it is no JSON: {why}") from None
    except RecursionError:
        raise _refuse(path, "it is nested too deeply") from None
    except ValueError as error:  # raised by the functions above, or by bytes that are no text
        raise _refuse(path, f"it is no JSON: {error}") from None


def _rows(path: str, data: dict[str, Any]) -> tuple[SavedRow, ...]:
    listed = _Fields(path, data, "data").sequence("rows") if "rows" in data else []
    if len(listed) > _MOST_ROWS:
        raise _refuse(path, f"it has {len(listed)} rows, at most {_MOST_ROWS} are read")
    return tuple(_row(path, f"data.rows[{i}]", members) for i, members in enumerate(listed))


def _row(path: str, where: str, members: object) -> SavedRow:
    field = _Fields(path, members, where)
    assert isinstance(members, dict)
    samples = field.sequence("samples_us") if members.get("samples_us") is not None else []
    timed = all(_is_positive(value) or (_is_number(value) and value == 0) for value in samples)
    if len(samples) > _MOST_SAMPLES or not timed:
        raise _refuse(path, f"{where}.samples_us is not a list of times")
    return SavedRow(
        backend=field.text("backend"),
        collective=field.text("collective"),
        dtype=field.text("dtype"),
        op=field.text("op", "sum"),
        bytes=field.count("bytes"),
        in_place=field.flag("inplace", True),
        n=field.count("n"),
        check=field.text("check", ""),
        reason=str(members.get("reason") or "")[:_MOST_REASON],
        mean_us=field.positive("mean_us"),
        median_us=field.positive("median_us"),
        p99_us=field.positive("p99_us"),
        algbw_GBps=field.positive("algbw_GBps"),
        busbw_GBps=field.positive("busbw_GBps"),
        # A case that takes no time (one rank, in place) has no samples to compare.
        samples=tuple(map(float, samples)) if all(samples) else (),
    )


def _matrices(path: str, data: dict[str, Any]) -> tuple[SavedMatrix, ...]:
    """Returns the matrices of `data.pairs`, the main one first."""
    if data.get("pairs") is None:
        return ()
    pairs = _Fields(path, data, "data").mapping("pairs")
    inside = _Fields(path, pairs, "data.pairs").sequence("inside") if "inside" in pairs else []
    if len(inside) > _MOST_MATRICES:
        raise _refuse(path, f"data.pairs.inside has {len(inside)} matrices")
    reader = _MatrixReader(path)
    found = [reader.matrix(pairs, "data.pairs", "between nodes" if inside else "")]
    for i, each in enumerate(inside):
        where = f"data.pairs.inside[{i}]"
        host = _Fields(path, each, where).text("node")
        found.append(reader.matrix(each, where, f"inside {host}"))
    return tuple(found)


class _MatrixReader:
    """Reads the matrices of one file; limits their names and figures in all."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._names, self._figures = _MOST_NAMES, _MOST_FIGURES

    def matrix(self, members: dict[str, Any], place: str, where: str) -> SavedMatrix:
        names = _Fields(self._path, members, place).texts("names")
        if not 2 <= len(names) <= self._names:
            raise _refuse(
                self._path, f"{place}.names has {len(names)} names, not 2 to {self._names}"
            )
        self._names -= len(names)
        ranks = _ranks(members, len(names))
        if "links" in members:
            return SavedMatrix(where, names, ranks, *self._links(members, place, len(names)))
        rates = self._square(members, place, "GBps", len(names))
        latencies: Cells = {}
        if members.get("latency_us") is not None:
            latencies = self._square(members, place, "latency_us", len(names))
        return SavedMatrix(where, names, ranks, rates, latencies)

    def _links(self, members: dict[str, Any], place: str, size: int) -> tuple[Cells, Cells]:
        """Reads a sparse matrix: [from, to, GB/s, us] of each measured link."""
        links = _Fields(self._path, members, place).sequence("links")
        for link in links:
            known = isinstance(link, list) and len(link) == 4
            if not known or not all(type(end) is int and 0 <= end < size for end in link[:2]):
                raise _refuse(self._path, f"{place}.links has one that is not [from, to, GB/s, us]")
        where = f"{place}.links"
        rates = self._cells(where, (((a, b), rate) for a, b, rate, _ in links))
        return rates, self._cells(where, (((a, b), latency) for a, b, _, latency in links))

    def _square(self, members: dict[str, Any], place: str, name: str, size: int) -> Cells:
        lines = _Fields(self._path, members, place).sequence(name)
        square = all(isinstance(line, list) and len(line) == size for line in lines)
        if len(lines) != size or not square:
            raise _refuse(self._path, f"{place}.{name} is not a square of {size} names")
        every = (((i, j), cell) for i, line in enumerate(lines) for j, cell in enumerate(line))
        return self._cells(f"{place}.{name}", every)

    def _cells(self, place: str, every: Iterable[tuple[tuple[int, int], Any]]) -> Cells:
        found: dict[tuple[int, int], float] = {}
        for cell, value in every:
            figure = _figure(self._path, place, value)
            if figure is not None:
                found[cell] = figure
                self._figures -= 1
            if self._figures < 0:
                raise _refuse(self._path, f"{place} has more than {_MOST_FIGURES} figures in all")
        return found


def _figure(path: str, place: str, cell: Any) -> float | None:
    if cell is not None and not _is_positive(cell) and not (_is_number(cell) and cell == 0):
        raise _refuse(path, f"{place} has a cell {_short(cell)}, not a figure")
    return None if cell is None else float(cell)


def _ranks(members: dict[str, Any], size: int) -> tuple[frozenset[int], ...] | None:
    listed = members.get("ranks")
    if not isinstance(listed, list) or len(listed) != size:
        return None
    return tuple(
        frozenset(rank for rank in own if isinstance(rank, int))
        if isinstance(own, list)
        else frozenset()
        for own in listed
    )


class _Fields:
    """Reads the members of one JSON object and refuses a member of another type, with its place.

    where: the object's place in the file.
    """

    def __init__(self, path: str, members: object, where: str) -> None:
        self._path, self._where = path, where
        if not isinstance(members, dict):
            self._wrong("", members, "an object")
        self._members: dict[str, Any] = members

    def mapping(self, name: str) -> dict[str, Any]:
        return self._take(name, lambda value: isinstance(value, dict), "an object", {})

    def sequence(self, name: str) -> list[Any]:
        return self._take(name, lambda value: isinstance(value, list), "a list", [])

    def text(self, name: str, default: str | None = None) -> str:
        return self._take(
            name,
            lambda value: isinstance(value, str) and len(value) <= _MOST_TEXT,
            f"a text of at most {_MOST_TEXT} characters",
            "",
            default,
        )

    def texts(self, name: str) -> tuple[str, ...]:
        """Returns a list of texts."""
        found = self.sequence(name)
        if not all(isinstance(text, str) and len(text) <= _MOST_TEXT for text in found):
            self._wrong(name, found, f"a list of texts of at most {_MOST_TEXT} characters")
        return tuple(found)

    def flag(self, name: str, default: bool | None = None) -> bool:
        return self._take(name, lambda v: isinstance(v, bool), "true or false", False, default)

    def count(self, name: str) -> int:
        return self._take(
            name, lambda v: type(v) is int and 0 <= v <= _LARGEST, "a whole number", 0
        )

    def positive(self, name: str) -> float | None:
        """Returns a time or a bandwidth; None if it is absent, null or 0."""
        value = self._members.get(name)
        if value is None or (_is_number(value) and value == 0):
            return None
        return float(self._take(name, _is_positive, "a time or a bandwidth", 0.0))

    def _take(
        self,
        name: str,
        fits: Callable[[Any], bool],
        what: str,
        kind: T,
        default: T | None = None,
    ) -> T:
        if name not in self._members and default is not None:
            return default
        value = self._members.get(name)
        if not fits(value):
            self._wrong(name, value, what)
        return cast(T, value)

    def _wrong(self, name: str, value: object, what: str) -> NoReturn:
        place = ".".join(part for part in (self._where, name) if part) or "the file"
        raise _refuse(self._path, f"{place} is {_short(value)}, not {what}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_positive(value: Any) -> bool:
    """Returns whether it can be a time in microseconds or a bandwidth in GB/s."""
    return _is_number(value) and _LEAST <= value <= _MOST


def _short(value: object) -> str:
    """Shortens an untrusted value to fit into a sentence."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if value is None:
        return "missing"
    text = str(value)[:40]
    return repr(text) if isinstance(value, str) else text


def _refuse(path: str, why: str) -> OddrankError:
    return OddrankError(
        f"cannot read {path}: {why}; name a file that bench run or bench pairs wrote with --json"
    )
