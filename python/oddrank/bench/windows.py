"""Where in its buffers a case works: in turn at several places, so that caches do not serve it."""

# Together the windows are larger than the caches of today's GPUs (50 to 128 MiB of L2).
_CACHES = 128 << 20
_MOST = 64
# Of every window, and the same on all ranks: NCCL's registered buffers need equal offsets.
ALIGNMENT = 512


def capacity_of(size: int) -> int:
    """Bytes that a buffer needs for all windows of a case of `size` bytes."""
    stride = _stride(size)
    return size + stride * (min(_MOST, -(-_CACHES // stride)) - 1)


def offsets(size: int, capacity: int) -> list[int]:
    """Bytes from the buffer's begin to each window; as many as fit, at least one."""
    if size == 0:
        return [0]
    stride = _stride(size)
    number = min(_MOST, -(-_CACHES // stride), 1 + max(0, capacity - size) // stride)
    return [i * stride for i in range(max(1, number))]


def _stride(size: int) -> int:
    return max(ALIGNMENT, -(-size // ALIGNMENT) * ALIGNMENT)
