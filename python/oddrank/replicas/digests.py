"""Digests of torch's tensors, on the CPU or the GPU where they are: 16 bytes each."""

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

from oddrank import _native
from oddrank.finding import grouped

BYTES = 16
# Enough for the memory bandwidth of most hosts, and too few to disturb the other ranks of a node.
_MOST_THREADS = 4
# Bytes that copies of tensors may take, which are not contiguous: channels_last.
_MOST_COPIED = 256 << 20


def of(tensors: Sequence[Any]) -> list[bytes]:
    """Returns the digest of each tensor. Waits for GPUs when all have their work."""
    found: list[bytes] = [b""] * len(tensors)
    places = grouped((tensor.device, number) for number, tensor in enumerate(tensors))
    # A copy's memory is used again by later work of the same stream only.
    rows = [
        (batch, _rows([_plain(tensors[number]) for number in batch]))
        for numbers in places.values()
        for batch in _batches(tensors, numbers)
    ]
    for batch, row in rows:
        every = row if isinstance(row, bytes) else content(row, 0, size_of(row))
        for place, number in enumerate(batch):
            found[number] = every[place * BYTES : (place + 1) * BYTES]
    return found


def _batches(tensors: Sequence[Any], numbers: Sequence[int]) -> Iterator[list[int]]:
    """Yields the numbers in parts whose copies together are small, or a single one."""
    batch: list[int] = []
    copied = 0
    for number in numbers:
        tensor = tensors[number]
        is_plain = not (tensor.is_conj() or tensor.is_neg()) and tensor.is_contiguous()
        size = 0 if is_plain and _reads(tensor.device) else size_of(tensor)  # _plain() copies it
        if size and copied and copied + size > _MOST_COPIED:
            yield batch
            batch, copied = [], 0
        batch.append(number)
        copied += size
    yield batch


def of_blocks(tensor: Any, block: int, begin: int, end: int) -> bytes:
    """Returns 16 bytes for each block of bytes [begin, end) of the elements in row-major order."""
    part = _part(tensor, begin, end)
    last = begin + size_of(part)
    ranges = [(part.data_ptr() - begin, begin, last)] if last > begin else []
    return bytes(_native.core().digest_blocks(ranges, block, _threads()))


def content(tensor: Any, begin: int, end: int) -> bytes:
    """Returns the whole elements in bytes [begin, end) in row-major order."""
    part = _part(tensor, begin, end)
    return ctypes.string_at(part.data_ptr(), size_of(part))


def _part(tensor: Any, begin: int, end: int) -> Any:
    size = tensor.element_size()
    return _plain(tensor).reshape(-1)[begin // size : end // size].cpu()


def size_of(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def of_bytes(data: bytes) -> bytes:
    """Returns the digest of bytes, taken as a tensor's."""
    held = ctypes.create_string_buffer(data, max(1, len(data)))
    return bytes(_native.core().digest_blocks([(ctypes.addressof(held), 0, len(data))]))


def _plain(tensor: Any) -> Any:
    """Returns a tensor whose memory holds its values in order, where we can read it."""
    tensor = tensor.detach()
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return (tensor if _reads(tensor.device) else tensor.cpu()).contiguous()


def _reads(device: Any) -> bool:
    """Returns whether our code reads the memory of this device."""
    is_ours = device.type == "cuda" and _native.cuda_part().module is not None
    return device.type == "cpu" or is_ours


def _rows(tensors: Sequence[Any]) -> Any:
    """Returns the digests: bytes; on a GPU, rows of two words there. Waits for no GPU."""
    import torch

    device = tensors[0].device
    places = [(tensor.data_ptr(), size_of(tensor)) for tensor in tensors]
    if device.type == "cpu":
        return _native.core().digest_blocks([(at, 0, size) for at, size in places], 0, _threads())
    rows = torch.empty((len(tensors), 2), dtype=torch.int64, device=device)
    stream = torch.cuda.current_stream(device).cuda_stream
    _native.cuda().gpu_digest(device.index, stream, places, rows.data_ptr())
    return rows


def _threads() -> int:
    import torch

    return min(_MOST_THREADS, int(torch.get_num_threads()))
