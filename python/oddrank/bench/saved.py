"""Reads back the reports of `bench run` and `bench pairs`, and trusts nothing in them.

OddrankError names the place of anything unexpected.
"""

import json
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from oddrank.errors import OddrankError
from oddrank.report import SCHEMA

_MOST_BYTES = 64 << 20  # in a file
_MOST_SAMPLES = 1 << 12  # in a row; bench.row writes 512
_MOST_FIGURES = 2_000_000  # in all matrices: a few times those of 16,384 nodes
_MOST_REASON = 200
_DIGITS = 30  # in a number: int() of millions of digits takes minutes
_MOST_TEXT = 200  # characters
_LARGEST = 1 << 62  # count or size
_LEAST, _MOST = 1e-9, 1e15  # range of a time or a bandwidth

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
    inplace: bool
    n: int
    check: str
    mean_us: float | None
    median_us: float | None
    p99_us: float | None
    algbw_GBps: float | None
    busbw_GBps: float | None
    reason: str
    samples: tuple[float, ...]
    """The time of each iteration, in their order; thinned if there were many."""

    @property
    def is_skipped(self) -> bool:
        return self.check == "skipped"

    @property
    def is_wrong(self) -> bool:
        return self.check == "wrong"

    @property
    def key(self) -> Key:
        """Identifies the measured case: rows with the same key can be compared."""
        return (self.backend, self.collective, self.dtype, self.op, self.bytes, self.inplace)


Cells = Mapping[tuple[int, int], float]
"""(sender, receiver) -> figure; measured links only."""


@dataclass(frozen=True)
class SavedMatrix:
    """A matrix of links. GBps: 1e9 bytes a second; latency_us: microseconds one way.

    where: `between nodes`, `inside HOST`, or "" for the only matrix. ranks: of each name.
    """

    where: str
    names: tuple[str, ...]
    ranks: tuple[frozenset[int], ...]
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


class _Refused(Exception):
    """Says what is wrong with a report, and where."""


def read(path: str) -> Saved:
    """Reads a report. OddrankError if it can't be read or is no report of bench."""
    try:
        return _saved(path, _parse(_content(path)))
    except _Refused as error:
        raise OddrankError(
            f"cannot read {path}: {error}; name a file that bench run or bench pairs wrote with"
            " --json"
        ) from None


def _content(path: str) -> bytes:
    try:
        # Without O_NONBLOCK a pipe without a writer would block.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _Refused("it is no regular file")
            content = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise _Refused(getattr(error, "strerror", None) or str(error)) from None
    if len(content) > _MOST_BYTES:
        raise _Refused(f"it has more than {_MOST_BYTES >> 20} MiB")
    if not content.strip():
        raise _Refused("it is empty")
    return content


def _parse(content: bytes) -> object:
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
        raise _Refused(f"it is no JSON: {why}") from None
    except RecursionError:
        raise _Refused("it is nested too deeply") from None
    except ValueError as error:  # raised by the functions above, or by bytes that are no text
        raise _Refused(f"it is no JSON: {error}") from None


def _is_figure(value: Any) -> bool:
    """Returns whether it can be a time in microseconds or a bandwidth in GB/s, or is unknown."""
    if value is None:
        return True
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and (value == 0 or _LEAST <= value <= _MOST)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _MOST_TEXT


# What a member must be, in words, and the test for it.
_Kind = tuple[str, Callable[[Any], bool]]
_OBJECT: _Kind = "an object", lambda value: isinstance(value, dict)
_LIST: _Kind = "a list", lambda value: isinstance(value, list)
_TEXT: _Kind = f"a text of at most {_MOST_TEXT} characters", _is_text
_FLAG: _Kind = "true or false", lambda value: isinstance(value, bool)
_COUNT: _Kind = "a whole number", lambda value: type(value) is int and 0 <= value <= _LARGEST
_FIGURE: _Kind = "a time or a bandwidth", _is_figure
_ROW = {
    "backend": _TEXT, "collective": _TEXT, "dtype": _TEXT, "op": _TEXT, "bytes": _COUNT,
    "inplace": _FLAG, "n": _COUNT, "check": _TEXT, "mean_us": _FIGURE, "median_us": _FIGURE,
    "p99_us": _FIGURE, "algbw_GBps": _FIGURE, "busbw_GBps": _FIGURE,
}  # fmt: skip


def _checked(value: Any, kind: _Kind, place: str) -> Any:
    what, fits = kind
    if not fits(value):
        raise _Refused(f"{place} is {_short(value)}, not {what}")
    return value


def _member(of: Any, name: str, kind: _Kind, place: str = "") -> Any:
    """Returns a member of an object at `place` of the file; the member must be of that kind."""
    members = _checked(of, _OBJECT, place or "the file")
    return _checked(members.get(name), kind, f"{place}.{name}" if place else name)


def _saved(path: str, found: Any) -> Saved:
    if not isinstance(found, dict) or "schema" not in found:
        raise _Refused("it is no report of oddrank")
    if found["schema"] != SCHEMA:
        raise _Refused(f"its schema is {_short(found['schema'])}, this oddrank reads {SCHEMA}")
    tool = found.get("tool")
    if tool != "bench":
        raise _Refused(f'its "tool" is {_short(tool)}, not "bench"')
    data = _member(found, "data", _OBJECT)
    rows = _member(data, "rows", _LIST, "data") if "rows" in data else []
    return Saved(
        path,
        _member(found, "world", _OBJECT),
        data,
        tuple(one for one in _member(found, "findings", _LIST) if isinstance(one, dict)),
        tuple(_row(row, f"data.rows[{i}]") for i, row in enumerate(rows)),
        _matrices(data),
    )


def _row(row: Any, place: str) -> SavedRow:
    found = {name: _member(row, name, kind, place) for name, kind in _ROW.items()}
    found |= {name: found[name] or None for name, kind in _ROW.items() if kind is _FIGURE}
    samples = _member(row, "samples_us", _LIST, place)
    if len(samples) > _MOST_SAMPLES or None in samples or not all(map(_is_figure, samples)):
        raise _Refused(f"{place}.samples_us is not a list of times")
    # A case that takes no time (one rank, in place) has no samples to compare.
    times = tuple(map(float, samples)) if all(samples) else ()
    return SavedRow(**found, reason=str(row.get("reason") or "")[:_MOST_REASON], samples=times)


def _matrices(data: Mapping[str, Any]) -> tuple[SavedMatrix, ...]:
    """Returns the matrices of `data.pairs`, the main one first."""
    if data.get("pairs") is None:
        return ()
    inside = _member(_member(data, "pairs", _OBJECT, "data"), "inside", _LIST, "data.pairs")
    found = [_matrix(data["pairs"], "data.pairs", "between nodes" if inside else "")]
    for i, each in enumerate(inside):
        place = f"data.pairs.inside[{i}]"
        found.append(_matrix(each, place, f"inside {_member(each, 'node', _TEXT, place)}"))
    if sum(len(one.GBps) + len(one.latency_us) for one in found) > _MOST_FIGURES:
        raise _Refused(f"data.pairs has more than {_MOST_FIGURES} figures")
    return tuple(found)


def _matrix(members: Any, place: str, where: str) -> SavedMatrix:
    names = _member(members, "names", _LIST, place)
    if len(names) < 2 or not all(map(_is_text, names)):
        raise _Refused(f"{place}.names is not a list of two texts or more")
    ranks = _member(members, "ranks", _LIST, place)
    lists = all(isinstance(own, list) for own in ranks)
    if len(ranks) != len(names) or not lists or any(type(r) is not int for o in ranks for r in o):
        raise _Refused(f"{place}.ranks is not a list of ranks of each name")
    if "links" in members:
        links = _member(members, "links", _LIST, place)
        if not all(_is_link(link, len(names)) for link in links):
            raise _Refused(f"{place}.links has one that is not [from, to, GB/s, us]")
        rates, latencies = (_cells(((one[0], one[1]), one[at]) for one in links) for at in (2, 3))
    else:
        rates, latencies = (_square(members, name, place) for name in ("GBps", "latency_us"))
    return SavedMatrix(where, tuple(names), tuple(map(frozenset, ranks)), rates, latencies)


def _is_link(link: Any, size: int) -> bool:
    if not isinstance(link, list) or len(link) != 4 or not all(map(_is_figure, link[2:])):
        return False
    return all(type(end) is int and 0 <= end < size for end in link[:2])


def _square(members: Mapping[str, Any], name: str, place: str) -> Cells:
    lines, size = _member(members, name, _LIST, place), len(members["names"])
    square = all(isinstance(line, list) and len(line) == size for line in lines)
    if len(lines) != size or not square or not all(_is_figure(v) for line in lines for v in line):
        raise _Refused(f"{place}.{name} is not a square of figures of {size} names")
    return _cells(((i, j), cell) for i, line in enumerate(lines) for j, cell in enumerate(line))


def _cells(every: Iterable[tuple[tuple[int, int], float | None]]) -> Cells:
    return {cell: float(figure) for cell, figure in every if figure is not None}


def _short(value: object) -> str:
    """Shortens an untrusted value to fit into a sentence."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if value is None:
        return "missing"
    text = str(value)[:40]
    return repr(text) if isinstance(value, str) else text
