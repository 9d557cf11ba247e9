"""Digests of torch's tensors, on the CPU or the GPU where they are: 16 bytes each."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from oddrank import _native

BYTES = 16
# Enough for the memory bandwidth of most hosts, and too few to disturb the other ranks of a node.
_MOST_THREADS = 4
# Bytes of a GPU that copies of tensors may take, which are not contiguous: channels_last.
_MOST_COPIED = 256 << 20


def of(tensors: Sequence[Any]) -> list[bytes]:
    """Returns the digest of each tensor. Waits for each GPU once, for all of its tensors."""
    import torch

    core, threads = _native.core(), _threads()
    found: list[bytes] = [b""] * len(tensors)
    places: dict[Any, list[int]] = defaultdict(list)
    for number, tensor in enumerate(tensors):
        places[tensor.device].append(number)
    rows: dict[Any, list[Any]] = {}
    for device, numbers in places.items():
        if _reads(device):
            # A copy's memory is used again by later work of the same stream only.
            rows[device] = [
                _on_gpu([_plain(tensors[number]) for number in batch])
                for batch in _batches(tensors, numbers)
            ]
    for device, numbers in places.items():
        if device in rows:
            every = _content(torch.cat(rows[device]))
        elif device.type == "cpu":
            plain = [_plain(tensors[number]) for number in numbers]
            every = core.digest_tensors([described(tensor) for tensor in plain], threads)
        else:  # one copy at a time: all of them may be more than the host has room for
            every = b"".join(_of_copy(tensors[number], threads) for number in numbers)
        for place, number in enumerate(numbers):
            found[number] = every[place * BYTES : (place + 1) * BYTES]
    return found


def _batches(tensors: Sequence[Any], numbers: Sequence[int]) -> Iterator[list[int]]:
    """Yields the numbers in parts whose copies together are small, or a single one."""
    batch: list[int] = []
    copied = 0
    for number in numbers:
        size = 0 if tensors[number].is_contiguous() else size_of(tensors[number])
        if size and copied and copied + size > _MOST_COPIED:
            yield batch
            batch, copied = [], 0
        batch.append(number)
        copied += size
    yield batch


def of_blocks(tensor: Any, block: int, begin: int, end: int) -> bytes:
    """Returns 16 bytes for each block of bytes [begin, end) of the elements in row-major order."""
    tensor = _plain(tensor)
    end = min(end, size_of(tensor))
    if tensor.is_cuda:
        return _content(_on_gpu([tensor], block, begin, end))
    blocks: bytes = _native.core().digest_blocks(described(tensor), block, begin, end, _threads())
    return blocks


def content(tensor: Any, begin: int, end: int) -> bytes:
    """Returns bytes [begin, end) of the elements in row-major order, fewer at the tensor's end."""
    tensor = _plain(tensor)
    if tensor.is_cuda:
        size = tensor.element_size()
        tensor = tensor.reshape(-1)[begin // size : -(-end // size)].cpu()
        begin, end = 0, end - begin
    taken: bytes = _native.core().tensor_bytes(described(tensor), begin, end)
    return taken


def described(tensor: Any) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    """Returns what the native digest takes: address, bytes of an element, sizes, strides."""
    return (
        tensor.data_ptr(), tensor.element_size(), tuple(tensor.size()), tuple(tensor.stride()),
    )  # fmt: skip


def size_of(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def of_bytes(data: bytes) -> bytes:
    """Returns the digest of bytes as those of a tensor."""
    import ctypes

    held = ctypes.create_string_buffer(data, max(1, len(data)))
    one = (ctypes.addressof(held), 1, (len(data),), (1,))
    digest: bytes = _native.core().digest_tensors([one])
    return digest


def _plain(tensor: Any) -> Any:
    """Returns a tensor whose memory holds its values, on a device whose memory we can read."""
    tensor = tensor.detach()
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return tensor.contiguous() if _reads(tensor.device) else tensor.cpu()


def _reads(device: Any) -> bool:
    """Returns whether our kernels read the memory of this device."""
    return device.type == "cuda" and _native.cuda_part().module is not None


def _of_copy(tensor: Any, threads: int) -> bytes:
    copy = _plain(tensor)
    digest: bytes = _native.core().digest_tensors([described(copy)], threads)
    return digest


def _on_gpu(tensors: Sequence[Any], block: int = 0, begin: int = 0, end: int = 0) -> Any:
    """Returns the digests on the GPU: a row of two words each. Waits for nothing."""
    import torch

    device = tensors[0].device
    ranges = [(t.data_ptr(), begin, end or size_of(t)) for t in tensors]
    cuda = _native.cuda()
    count = cuda.gpu_digest(device.index, 0, ranges, block, 0, 0)
    rows = torch.empty((count, 2), dtype=torch.int64, device=device)
    stream = torch.cuda.current_stream(device).cuda_stream
    cuda.gpu_digest(device.index, stream, ranges, block, rows.data_ptr(), count)
    return rows


def _content(rows: Any) -> bytes:
    return content(rows.cpu(), 0, size_of(rows))


def _threads() -> int:
    import torch

    return min(_MOST_THREADS, int(torch.get_num_threads()))
