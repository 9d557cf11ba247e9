"""Finds where copies of a tensor differ: blocks, then the first element and its values."""

from collections.abc import Callable, Mapping
from typing import Any

from oddrank import _native
from oddrank.replicas import digests

# Digests that a rank sends at a time.
_MOST_BLOCKS = 256

# Sends this rank's bytes, returns those of all ranks.
Gather = Callable[[bytes], Mapping[int, bytes]]


def locate(tensor: Any, gather: Gather) -> dict[str, Any] | None:
    """Returns how many blocks differ, and the first element that does, with each rank's value.

    Every rank with a copy calls it at the same time. None: the copies are the same by now.
    """
    chunk: int = _native.core().REPLICAS_CHUNK
    begin, end = 0, digests.size_of(tensor)
    block = largest = _block_of(end, chunk)
    blocks = different = 0
    while True:
        every = gather(digests.of_blocks(tensor, block, begin, end))
        odd = _different(every)
        if not odd:
            return None
        if not blocks:
            blocks, different = len(next(iter(every.values()))) // digests.BYTES, len(odd)
        begin, end = begin + odd[0] * block, min(end, begin + (odd[0] + 1) * block)
        if block == chunk:
            break
        block = _block_of(end - begin, chunk)
    contents = gather(digests.content(tensor, begin, end))
    size = tensor.element_size()
    at = _first_difference(contents, size)
    if at is None:
        return None
    values: dict[str, list[int]] = {}
    for rank, content in contents.items():
        values.setdefault(text_of(content[at : at + size], tensor.dtype), []).append(rank)
    return {
        "blocks": blocks,
        "different": different,
        "block_bytes": largest,
        "index": index_of((begin + at) // size, tuple(tensor.shape)),
        "values": values,
    }


def index_of(number: int, shape: tuple[int, ...]) -> list[int]:
    """Returns the index of the element with this number in row-major order."""
    index: list[int] = []
    for size in reversed(shape):
        index.insert(0, number % size)
        number //= size
    return index


def text_of(content: bytes, dtype: Any) -> str:
    """Returns a value and its bits, which tell apart what looks the same: `1.5 (0x3fc00000)`."""
    import torch

    bits = f"0x{int.from_bytes(content, 'little'):0{2 * len(content)}x}"
    value = torch.frombuffer(bytearray(content), dtype=dtype)
    try:
        if value.dtype.is_floating_point and value.element_size() == 1:
            value = value.to(torch.float32)
        number = value.item()
    except (RuntimeError, TypeError, ValueError):  # a type that torch only stores
        return bits
    shown = f"{number:.9g}" if isinstance(number, float) else str(number)
    return f"{shown} ({bits})"


def _block_of(bytes_: int, chunk: int) -> int:
    block = chunk
    while block * _MOST_BLOCKS < bytes_:
        block *= 2
    return block


def _different(every: Mapping[int, bytes]) -> list[int]:
    first, *others = every.values()
    return [
        i // digests.BYTES
        for i in range(0, len(first), digests.BYTES)
        if any(one[i : i + digests.BYTES] != first[i : i + digests.BYTES] for one in others)
    ]


def _first_difference(contents: Mapping[int, bytes], size: int) -> int | None:
    first, *others = contents.values()
    for at in range(0, len(first), size):
        if any(one[at : at + size] != first[at : at + size] for one in others):
            return at
    return None
