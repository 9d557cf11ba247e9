"""One thing to measure: a collective, a dtype, an operation, a size, in place or not."""

import re
from dataclasses import dataclass

from oddrank.errors import OddrankError

# Name in torch -> bytes of an element.
DTYPES = {
    "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "float64": 8,
    "int8": 1, "int32": 4, "int64": 8, "uint8": 1, "uint32": 4, "uint64": 8,
}  # fmt: skip
# Names that nccl-tests and people use.
DTYPE_ALIASES = {
    "fp32": "float32", "float": "float32", "fp16": "float16", "half": "float16",
    "bf16": "bfloat16", "fp8": "float8_e4m3fn", "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2", "fp64": "float64", "double": "float64",
}  # fmt: skip
OPS = ("sum", "min", "max", "avg", "prod")
# The op of collectives that reduce nothing.
NO_OP = "none"


@dataclass(frozen=True)
class Case:
    """`bytes` is the size as nccl-tests counts it: one rank's buffer, or all ranks' together.

    The collective decides which of the two (oddrank.bench.collectives). `Collective.case` makes
    cases for a world and rounds the size to a multiple that its ranks can share.
    """

    collective: str
    dtype: str
    bytes: int
    op: str = "sum"
    in_place: bool = True

    @property
    def count(self) -> int:
        return self.bytes // DTYPES[self.dtype]

    def __str__(self) -> str:
        """Names the case for people, without whether it is in place."""
        words = [self.collective, self.dtype]
        words += [self.op] if self.op not in ("sum", NO_OP) else []
        return " ".join([*words, size_text(self.bytes)])


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_LARGEST = 1 << 40
_MOST = 1000
# Accepted forms, for error messages.
_RANGES = "SMALLEST:LARGEST[:xFACTOR or :+STEP] or a list, as in 8:256M:x2"
_ONE = "one size, as in 16M"


def size_text(size: int) -> str:
    """Formats bytes: 8 B, 64 MiB. Uses a larger unit only if the number is whole."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def parse_sizes(text: str) -> list[int]:
    """Returns the sizes in bytes, ascending, each once. OddrankError if one is not a size.

    `8:256M` doubles, `8:256M:x4` goes in factors of 4, `1M:4M:+1M` in steps of 1M; commas join
    ranges and single sizes; K, M, G are powers of 1024. A range always includes its largest size,
    even if no factor or step reaches it exactly.
    """
    sizes = {size for part in text.split(",") for size in _range(part, text)}
    if len(sizes) > _MOST:
        raise _bad(text, f"these are more than {_MOST} sizes")
    return sorted(sizes)


def parse_size(text: str) -> int:
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
    """Returns (factor, 0) or (1, step)."""
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
