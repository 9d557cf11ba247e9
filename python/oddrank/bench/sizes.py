"""The sizes of a sweep as text: 8:8G:x2, 1M:4M:+1M, 1M,4M,1G."""

import re

from oddrank.errors import OddrankError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_LARGEST = 1 << 40
_MOST = 1000
# What to write instead.
_RANGES = "SMALLEST:LARGEST[:xFACTOR or :+STEP] or a list, as in 8:256M:x2"
_ONE = "one size, as in 16M"


def size_text(size: int) -> str:
    """8 B, 64 MiB; exact sizes only are shortened."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def parse_sizes(text: str) -> list[int]:
    """Bytes, ascending, each once. OddrankError says what is not a size.

    `8:256M` doubles, `8:256M:x4` goes in factors of 4, `1M:4M:+1M` in steps of 1M, commas join
    any of these and single sizes; K, M, G are powers of 1024. The largest size of a range is
    always in it, however many factors or steps it is above the smallest.
    """
    sizes = {size for part in text.split(",") for size in _range(part, text)}
    if len(sizes) > _MOST:
        raise _bad(text, f"these are {len(sizes)} sizes, and {_MOST} are the most")
    return sorted(sizes)


def parse_size(text: str) -> int:
    """One size in bytes."""
    return _size(text, text, _ONE)


def _range(text: str, whole: str) -> list[int]:
    parts = text.split(":")
    if not 1 <= len(parts) <= 3:
        raise _bad(whole, "too many colons")
    smallest = _size(parts[0], whole)
    largest = _size(parts[1], whole) if len(parts) > 1 else smallest
    if largest < smallest:
        raise _bad(whole, "the largest size is below the smallest")
    factor, step = 2, 0
    if len(parts) == 3:
        factor, step = _progress(parts[2], whole)
    sizes: list[int] = []
    while smallest < largest and len(sizes) <= _MOST:
        sizes.append(smallest)
        smallest = smallest + step if step else smallest * factor
    return [*sizes, largest]


def _progress(text: str, whole: str) -> tuple[int, int]:
    """(factor, 0) or (1, step)."""
    if text.strip().startswith("+"):
        return 1, _size(text.strip()[1:], whole)
    if not re.fullmatch(r"x[0-9]{1,4}", text) or int(text[1:]) < 2:
        raise _bad(whole, f"{text[:20]!r} is not a factor of 2 or more, like x2, nor a step, +1M")
    return int(text[1:]), 0


def _size(text: str, whole: str, write: str = _RANGES) -> int:
    match = re.fullmatch(r"([0-9]{1,13})([KMG]?)(i?B)?", text.strip(), re.IGNORECASE | re.ASCII)
    if match is None:
        raise _bad(whole, f"{text[:20]!r} is not a size like 8, 4K or 256M", write)
    size = int(match[1]) * _UNITS[match[2].upper()]
    if not 1 <= size <= _LARGEST:
        raise _bad(whole, f"{text[:20]} is not between 1 byte and 1024G", write)
    return size


def _bad(text: str, why: str, write: str = _RANGES) -> OddrankError:
    return OddrankError(f"{text[:60]!r}: {why}; write {write}")
