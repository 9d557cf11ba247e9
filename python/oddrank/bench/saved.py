"""Reads back the reports of `bench run`, and trusts nothing in them.

OddrankError names the place of anything unexpected.
"""

import json
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from oddrank.bench.data import Row
from oddrank.errors import OddrankError
from oddrank.report import SCHEMA

_MOST_BYTES = 64 << 20  # in a file
_MOST_SAMPLES = 1 << 12  # in a row; bench.row writes 512
_MOST_REASON = 200
_DIGITS = 30  # in a number: int() of millions of digits takes minutes
_MOST_TEXT = 200  # characters
_LARGEST = 1 << 62  # count or size
_LEAST, _MOST = 1e-9, 1e15  # range of a time or a bandwidth


@dataclass(frozen=True)
class Saved:
    """A report of `bench run`."""

    path: str
    world: Mapping[str, Any]
    data: Mapping[str, Any]
    rows: tuple[Row, ...]


class _Refused(Exception):
    """Says what is wrong with a report, and where."""


def read(path: str) -> Saved:
    """Reads a report. OddrankError if it can't be read or is no report of `bench run`."""
    try:
        return _saved(path, _parse(_content(path)))
    except _Refused as error:
        raise OddrankError(
            f"cannot read {path}: {error}; name a file that bench run wrote with --json"
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
    "count": _COUNT, "inplace": _FLAG, "n": _COUNT, "check": _TEXT, "mean_us": _FIGURE,
    "median_us": _FIGURE, "p99_us": _FIGURE, "algbw_GBps": _FIGURE, "busbw_GBps": _FIGURE,
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
    if "pairs" in data:
        raise _Refused("it is of bench pairs")
    rows = _member(data, "rows", _LIST, "data")
    every = tuple(_row(row, f"data.rows[{i}]") for i, row in enumerate(rows))
    return Saved(path, _member(found, "world", _OBJECT), data, every)


def _row(row: Any, place: str) -> Row:
    found = {name: _member(row, name, kind, place) for name, kind in _ROW.items()}
    found |= {name: found[name] or None for name, kind in _ROW.items() if kind is _FIGURE}
    samples = _member(row, "samples_us", _LIST, place)
    if len(samples) > _MOST_SAMPLES or None in samples or not all(map(_is_figure, samples)):
        raise _Refused(f"{place}.samples_us is not a list of times")
    # A case that takes no time (one rank, in place) has no samples to compare.
    times = tuple(map(float, samples)) if all(samples) else ()
    return Row(**found, reason=str(row.get("reason") or "")[:_MOST_REASON], samples_us=times)


def _short(value: object) -> str:
    """Shortens an untrusted value to fit into a sentence."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if value is None:
        return "missing"
    text = str(value)[:40]
    return repr(text) if isinstance(value, str) else text
