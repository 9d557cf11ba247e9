"""Parses SLURM's compressed lists, `n[0-3,7],m1` and `4(x2),3`, without SLURM.

Yields names one by one and bounds lists: `n[0-999999999]` costs nothing.
"""

import re
from collections.abc import Iterator
from itertools import islice
from typing import TypeAlias

from oddrank.errors import LaunchError

# More than any machine has: a longer list is an accident or an attack.
MAX_HOSTS = 1 << 17
_MAX_TEXT = 1 << 20
_MAX_BRACKETS = 8
_MAX_NAME = 253

# A plain text, or the ranges of one pair of brackets as (width, numbers).
_Piece: TypeAlias = "str | list[tuple[int, range]]"

_PLAIN = re.compile(r"[A-Za-z0-9._-]*", re.ASCII)
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", re.ASCII)
_COUNT = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?", re.ASCII)


def hosts(text: str) -> Iterator[str]:
    """Yields the names in order, leading zeros kept. LaunchError if the text is no host list."""
    if len(text) > _MAX_TEXT:
        raise LaunchError(f"a host list of {len(text)} characters is too long to be one")
    for item in _split(text):
        yield from _names(_pieces(item))


def expand(text: str, limit: int = MAX_HOSTS) -> list[str]:
    """Returns all names; LaunchError for more than `limit`."""
    names = list(islice(hosts(text), limit + 1))
    if len(names) > limit:
        raise LaunchError(f"host list {text[:80]!r} names more than {limit} hosts")
    return names


def first(text: str) -> str:
    """Returns the first name: the host of rank 0 of a SLURM step."""
    return next(hosts(text))


def count_at(text: str, index: int) -> int | None:
    """Returns element `index` of a list like `4(x2),3`; None if it is shorter or malformed."""
    if len(text) > _MAX_TEXT:
        return None
    for item in text.split(","):
        match = _COUNT.fullmatch(item)
        if match is None:
            return None
        index -= int(match[2] or 1)
        if index < 0:
            return int(match[1])
    return None


def _split(text: str) -> Iterator[str]:
    """Yields the items between commas outside brackets."""
    start, depth = 0, 0
    for position, character in enumerate(text):
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        elif character == "," and depth == 0:
            yield text[start:position]
            start = position + 1
        if depth not in (0, 1):
            break
    if depth:
        raise LaunchError(f"host list {text[:80]!r} has unbalanced brackets")
    yield text[start:]


def _pieces(item: str) -> list[_Piece]:
    """Parses `r[0-1]n[00-15]` into plain texts and lists of (width, numbers)."""
    parts = re.split(r"[\[\]]", item)
    if len(parts) // 2 > _MAX_BRACKETS or len(item) == 0:
        raise LaunchError(f"{item[:80]!r} is not a host name or a range of them")
    pieces: list[_Piece] = []
    for number, part in enumerate(parts):
        if number % 2:
            pieces.append([_range(text, item) for text in part.split(",")])
        elif _PLAIN.fullmatch(part) and len(part) <= _MAX_NAME:
            pieces.append(part)
        else:
            raise LaunchError(f"{item[:80]!r} is not a host name or a range of them")
    return pieces


def _range(text: str, item: str) -> tuple[int, range]:
    match = _RANGE.fullmatch(text)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if match is None or low > high:
        raise LaunchError(f"{text[:80]!r} in {item[:80]!r} is not a range of numbers")
    return len(match[1]), range(low, high + 1)


def _names(pieces: list[_Piece], prefix: str = "") -> Iterator[str]:
    if not pieces:
        yield prefix
        return
    head, rest = pieces[0], pieces[1:]
    if isinstance(head, str):
        yield from _names(rest, prefix + head)
        return
    for width, numbers in head:
        for number in numbers:
            yield from _names(rest, f"{prefix}{number:0{width}d}")
