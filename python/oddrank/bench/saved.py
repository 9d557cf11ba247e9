"""Reads back the reports of `bench run`, and trusts nothing in them.

OddrankError names the place of anything unexpected.
"""

import json
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from oddrank.bench.data import Row
from oddrank.errors import OddrankError
from oddrank.report import SCHEMA

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


# What a member must be, in words, and the test for it.
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
