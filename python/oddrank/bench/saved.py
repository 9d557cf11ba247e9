"""Reports that `bench run` and `bench pairs` have written, read back: nothing in them is trusted.

Whatever is not as it should be ends in one line that says where.
"""

import json
import os
import stat
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from oddrank.bench.fields import Fields, is_number, is_positive, refuse, short
from oddrank.bench.matrices import Matrix, read_matrices
from oddrank.finding import SCHEMA

_MOST_BYTES = 64 << 20  # of a file
_MOST_ROWS = 50_000
_MOST_SAMPLES = 1 << 12  # of a row; we write 512
_DIGITS = 30  # of a number: int() of millions of digits takes minutes

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
class Saved:
    """A report: of a sweep it has rows, of pairs matrices."""

    path: str
    world: Mapping[str, Any]
    data: Mapping[str, Any]
    findings: tuple[Mapping[str, Any], ...]
    rows: tuple[SavedRow, ...]
    matrices: tuple[Matrix, ...]


def read(path: str) -> Saved:
    """OddrankError where it can't be read, or is no report of bench."""
    found = _parse(path, _content(path))
    if not isinstance(found, dict) or "schema" not in found:
        raise refuse(path, "it is no report of oddrank")
    if found["schema"] != SCHEMA:
        raise refuse(path, f"its schema is {short(found['schema'])}, this oddrank reads {SCHEMA}")
    tool = found.get("tool")
    if tool != "bench":
        raise refuse(path, f"it is a report of {short(tool)}, not of bench run or pairs")
    field = Fields(path, found, "")
    data = field.mapping("data")
    findings = field.sequence("findings") if "findings" in found else []
    return Saved(
        path,
        field.mapping("world"),
        data,
        tuple(each for each in findings if isinstance(each, dict)),
        _rows(path, data),
        read_matrices(path, data),
    )


def names(runs: Sequence[Saved]) -> list[str]:
    """A short name for each, for legends, that no other has: its file's without .json.

    Files of one name take as much of their paths as tells them apart; what is there twice has a
    number.
    """
    found = [_tail(run.path, 1) for run in runs]
    for name, count in Counter(found).items():
        if count > 1:
            alike = [i for i, other in enumerate(found) if other == name]
            for i, told in zip(alike, _told_apart([runs[i].path for i in alike]), strict=True):
                found[i] = told
    return found


def _told_apart(paths: Sequence[str]) -> list[str]:
    depths = range(1, 1 + max(len(Path(path).parts) for path in paths))
    tails = [[_tail(path, depth) for path in paths] for depth in depths]
    apart = len(set(tails[-1]))
    shortest = next(tail for tail in tails if len(set(tail)) == apart)
    nth: Counter[str] = Counter()
    told = []
    for tail in shortest:
        nth[tail] += 1
        told.append(tail if shortest.count(tail) == 1 else f"{tail} #{nth[tail]}")
    return told


def _tail(path: str, depth: int) -> str:
    return str(Path(*Path(path).parts[-depth:])).removesuffix(".json") or path


def _rows(path: str, data: dict[str, Any]) -> tuple[SavedRow, ...]:
    listed = Fields(path, data, "data").sequence("rows") if "rows" in data else []
    if len(listed) > _MOST_ROWS:
        raise refuse(path, f"it has {len(listed)} rows, at most {_MOST_ROWS} are read")
    return tuple(_row(path, f"data.rows[{i}]", members) for i, members in enumerate(listed))


def _row(path: str, where: str, members: object) -> SavedRow:
    field = Fields(path, members, where)
    assert isinstance(members, dict)
    samples = field.sequence("samples_us") if members.get("samples_us") is not None else []
    timed = all(is_positive(value) or (is_number(value) and value == 0) for value in samples)
    if len(samples) > _MOST_SAMPLES or not timed:
        raise refuse(path, f"{where}.samples_us is not a list of times")
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


def _content(path: str) -> bytes:
    try:
        # Without O_NONBLOCK a pipe that nobody writes to would keep us here.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise refuse(path, "it is no regular file")
            content = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise refuse(path, getattr(error, "strerror", None) or str(error)) from None
    if len(content) > _MOST_BYTES:
        raise refuse(path, f"it has more than {_MOST_BYTES >> 20} MiB")
    if not content.strip():
        raise refuse(path, "it is empty")
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
        raise refuse(path, f"it is no JSON: {why}") from None
    except RecursionError:
        raise refuse(path, "it is nested too deeply") from None
    except ValueError as error:  # of the two above, or bytes that are no text
        raise refuse(path, f"it is no JSON: {error}") from None
