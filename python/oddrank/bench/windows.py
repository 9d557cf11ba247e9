"""Where in the memory reserved a case works: what it sends from and receives into, and there in
turn at several places, so that caches serve it less.

As many as there is memory for, which is that of the sweep's largest case and little more: smaller
cases may still find all their windows in the cache.
"""

CACHES = 128 << 20
"""No GPU of today has a larger one (L2: 50 to 126 MiB): what goes over more is in its memory."""
_MOST = 64
# Of every window, and the same on all ranks: NCCL's registered buffers need equal offsets.
ALIGNMENT = 512


def needed(size: int, in_place: bool) -> int:
    """Bytes of the memory on which a case of `size` bytes has one window."""
    return size if in_place else 2 * _stride(size)


def buffers(memory: int, in_place: bool) -> tuple[int, int]:
    """How that many bytes are cut for a case: (bytes of a buffer, where the one to receive begins).

    Out of place the halves, the first one to send from; in place both are the whole.
    """
    half = memory // 2 // ALIGNMENT * ALIGNMENT
    return (memory, 0) if in_place else (half, half)


def capacity_of(size: int) -> int:
    """Bytes that a buffer needs for all windows of a case of `size` bytes."""
    stride = _stride(size)
    return size + stride * (min(_MOST, -(-CACHES // stride)) - 1)


def offsets(size: int, capacity: int) -> list[int]:
    """Bytes from the buffer's begin to each window; as many as fit, at least one."""
    if size == 0:
        return [0]
    stride = _stride(size)
    number = min(_MOST, -(-CACHES // stride), 1 + max(0, capacity - size) // stride)
    return [i * stride for i in range(max(1, number))]


def footprint(size: int, windows: int, in_place: bool) -> int:
    """Bytes that a case of `size` bytes goes over in that many windows."""
    return size * windows * (1 if in_place else 2)


def _stride(size: int) -> int:
    return max(ALIGNMENT, -(-size // ALIGNMENT) * ALIGNMENT)
