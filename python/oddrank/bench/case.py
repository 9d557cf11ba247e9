"""One thing to measure: a collective, a dtype, a size; and the sizes of a sweep as text."""

import re
from dataclasses import dataclass

from oddrank.errors import OddrankError

DTYPE_BYTES = {"float32": 4, "bfloat16": 2}
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_LARGEST = 1 << 40


@dataclass(frozen=True)
class Case:
    """`bytes` are one rank's buffer, a multiple of the dtype's size."""

    collective: str
    dtype: str
    bytes: int

    @property
    def count(self) -> int:
        return self.bytes // DTYPE_BYTES[self.dtype]

    def __str__(self) -> str:
        return f"{self.collective} {self.dtype} {size_text(self.bytes)}"


def size_text(size: int) -> str:
    """8 B, 64 MiB; exact sizes only are shortened."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def parse_sizes(text: str) -> list[int]:
    """`8:256M`, `8:256M:x4` or one size; K, M, G are powers of 1024. OddrankError: what is not.

    The largest size is always among them, however many factors it is above the smallest.
    """
    parts = text.split(":")
    if not 1 <= len(parts) <= 3:
        raise _bad(text, "too many colons")
    smallest = _parse_size(parts[0], text)
    largest = _parse_size(parts[1], text) if len(parts) > 1 else smallest
    factor = 2
    if len(parts) == 3:
        if not re.fullmatch(r"x[0-9]{1,4}", parts[2]) or int(parts[2][1:]) < 2:
            raise _bad(text, f"{parts[2][:20]!r} is not a factor of 2 or more, like x2")
        factor = int(parts[2][1:])
    if largest < smallest:
        raise _bad(text, "the largest size is below the smallest")
    sizes = []
    while smallest < largest:
        sizes.append(smallest)
        smallest *= factor
    return [*sizes, largest]


def _parse_size(text: str, whole: str) -> int:
    match = re.fullmatch(r"([0-9]{1,13})([KMG]?)(i?B)?", text.strip(), re.IGNORECASE | re.ASCII)
    if match is None:
        raise _bad(whole, f"{text[:20]!r} is not a size like 8, 4K or 256M")
    size = int(match[1]) * _UNITS[match[2].upper()]
    if not 4 <= size <= _LARGEST or size % 4:
        raise _bad(whole, f"{text[:20]} is not a multiple of 4 bytes between 4 and 1024G")
    return size


def _bad(text: str, why: str) -> OddrankError:
    return OddrankError(f"{text[:60]!r}: {why}; write SMALLEST:LARGEST[:xFACTOR], as in 8:256M:x2")
