"""Reports that `bench run` and `bench pairs` have written, read back: nothing in them is trusted.

Whatever is not as it should be ends in one line that says where.
"""

import json
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

from oddrank.errors import OddrankError
from oddrank.finding import SCHEMA

_MOST_BYTES = 64 << 20  # of a file
_MOST_ROWS = 50_000
_MOST_SAMPLES = 1 << 12  # of a row; we write 512
_MOST_NAMES = 4096  # of a matrix
_MOST_TEXT = 200
_LARGEST = 1 << 62
_LEAST, _MOST = 1e-9, 1e15  # of a time or a bandwidth
_DIGITS = 30  # of a number: int() of millions of digits takes minutes

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
    median_us: float | None
    p99_us: float | None
    algbw_GBps: float | None
    busbw_GBps: float | None
    samples: tuple[float, ...]
    """The time of each iteration, in the order of time; thinned where there were many."""

    @property
    def key(self) -> Key:
        """What is measured: two rows with one key can be compared."""
        return (self.backend, self.collective, self.dtype, self.op, self.bytes, self.in_place)


@dataclass(frozen=True)
class Matrix:
    """`data.pairs`: GBps[sender][receiver] in 1e9 bytes a second, None where nothing is known."""

    names: tuple[str, ...]
    GBps: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class Saved:
    """A report: of a sweep it has rows, of pairs a matrix."""

    path: str
    world: Mapping[str, Any]
    data: Mapping[str, Any]
    findings: tuple[Mapping[str, Any], ...]
    rows: tuple[SavedRow, ...]
    matrix: Matrix | None

    @property
    def name(self) -> str:
        """Short, for tables and legends."""
        return Path(self.path).name.removesuffix(".json") or self.path


def read(path: str) -> Saved:
    """OddrankError where it can't be read, or is no report of bench."""
    found = _parse(path, _content(path))
    if not isinstance(found, dict) or "schema" not in found:
        raise _refuse(path, "it is no report of oddrank")
    if found["schema"] != SCHEMA:
        raise _refuse(path, f"its schema is {_short(found['schema'])}, this oddrank reads {SCHEMA}")
    tool = found.get("tool")
    if not isinstance(tool, str) or tool.split(" ")[0] != "bench":
        raise _refuse(path, f"it is a report of {_short(tool)}, not of bench")
    field = _Fields(path, found, "")
    data = field.mapping("data")
    findings = field.sequence("findings") if "findings" in found else []
    return Saved(
        path,
        field.mapping("world"),
        data,
        tuple(each for each in findings if isinstance(each, dict)),
        _rows(path, data),
        _matrix(path, data),
    )


class _Fields:
    """The members of one JSON object, each with a type; `where` is its own place in the file."""

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

    def flag(self, name: str, default: bool | None = None) -> bool:
        return self._take(name, lambda v: isinstance(v, bool), "true or false", False, default)

    def count(self, name: str) -> int:
        return self._take(
            name, lambda v: type(v) is int and 0 <= v <= _LARGEST, "a whole number", 0
        )

    def positive(self, name: str) -> float | None:
        """Absent and null alike: not known. A time or a bandwidth of 0 is not known either."""
        value = self._members.get(name)
        if value is None or (is_number(value) and value == 0):
            return None
        return float(self._take(name, is_positive, "a time or a bandwidth", 0.0))

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


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_positive(value: Any) -> bool:
    """Within what a time in microseconds or a bandwidth in GB/s can be."""
    return is_number(value) and _LEAST <= value <= _MOST


def _rows(path: str, data: dict[str, Any]) -> tuple[SavedRow, ...]:
    listed = _Fields(path, data, "data").sequence("rows") if "rows" in data else []
    if len(listed) > _MOST_ROWS:
        raise _refuse(path, f"it has {len(listed)} rows, at most {_MOST_ROWS} are read")
    return tuple(_row(path, f"data.rows[{i}]", members) for i, members in enumerate(listed))


def _row(path: str, where: str, members: object) -> SavedRow:
    field = _Fields(path, members, where)
    assert isinstance(members, dict)
    samples = field.sequence("samples_us") if members.get("samples_us") is not None else []
    timed = all(is_positive(value) or (is_number(value) and value == 0) for value in samples)
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
        median_us=field.positive("median_us"),
        p99_us=field.positive("p99_us"),
        algbw_GBps=field.positive("algbw_GBps"),
        busbw_GBps=field.positive("busbw_GBps"),
        # What takes no time at all (one rank, in place) has none to compare.
        samples=tuple(map(float, samples)) if all(samples) else (),
    )


def _matrix(path: str, data: dict[str, Any]) -> Matrix | None:
    if data.get("pairs") is None:
        return None
    field = _Fields(path, _Fields(path, data, "data").mapping("pairs"), "data.pairs")
    names, lines = field.sequence("names"), field.sequence("GBps")
    if not 2 <= len(names) <= _MOST_NAMES:
        raise _refuse(path, f"data.pairs.names has {len(names)} names, not 2 to {_MOST_NAMES}")
    if not all(isinstance(name, str) and len(name) <= _MOST_TEXT for name in names):
        raise _refuse(path, "data.pairs.names is not a list of names")
    square = all(isinstance(line, list) and len(line) == len(names) for line in lines)
    if len(lines) != len(names) or not square:
        raise _refuse(path, f"data.pairs.GBps is not a square of {len(names)} names")
    for cell in (cell for line in lines for cell in line):
        if cell is not None and not is_positive(cell) and not (is_number(cell) and cell == 0):
            raise _refuse(path, f"data.pairs.GBps has a cell {_short(cell)}, not a bandwidth")
    return Matrix(tuple(names), tuple(tuple(line) for line in lines))


def _content(path: str) -> bytes:
    try:
        # Without O_NONBLOCK a pipe that nobody writes to would keep us here.
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
    except ValueError as error:  # of the two above, or bytes that are no text
        raise _refuse(path, f"it is no JSON: {error}") from None


def _short(value: object) -> str:
    """A foreign value as part of a sentence: never all of it."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if value is None:
        return "missing"
    text = str(value)[:40]
    return repr(text) if isinstance(value, str) else text


def _refuse(path: str, why: str) -> OddrankError:
    return OddrankError(
        f"cannot read {path}: {why}; name a file that oddrank bench wrote with --json"
    )
