"""The interface of a back end, its times, and the windows into which it cuts its memory.

A case sends and receives in turn in several parts of the memory, its windows, so that caches serve
it less. As many windows as fit are used. The memory holds the sweep's largest case and little more:
smaller cases may still find all their windows in the cache.
"""

import math
import statistics
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from oddrank import _native
from oddrank.bench.case import COLLECTIVES, Case
from oddrank.control.stages import Timestamps

# Sampling cuts blocks of 20 ms: in longer blocks a run takes less than 0.6 ms, and an event between
# runs would lengthen them.
_FEW = 32


@dataclass(frozen=True)
class Block:
    """One rank's times of a block of iterations, in microseconds: what every measurement returns.

    mean: from the first one's begin to the last one's end, for each. A back end that queues does
    not look at its queue meanwhile: an event between short iterations would lengthen them. samples:
    single iterations; on GPUs other ones than the mean's, if they are short.
    """

    mean: float
    samples: Sequence[float]


def one_by_one(timestamps: Timestamps, runs: Iterable[Callable[[], Any]]) -> Block:
    """Times runs that return at their end. The hot loop: two stamps around the call, nothing else.

    timestamps: empty, with room for all runs.
    """
    enter, leave = timestamps.enter, timestamps.leave
    for run in runs:
        enter()
        run()
        leave()
    samples = [ns / 1e3 for ns in array("q", timestamps.durations())]
    return Block(statistics.fmean(samples), samples)


class Operation(Protocol):
    """One case, ready to run in its windows.

    send, recv: addresses of the first element of each buffer in the window that `once` uses.
    """

    send: int
    recv: int

    def once(self) -> None:
        """Runs the case once in the first window and waits for its end, for the check by value."""

    def block(self, n: int) -> Block:
        """Times `n` runs, in turn over all windows."""

    def sent(self) -> Any:
        """Returns this rank's send buffer as a tensor, for tests that spoil it, or None."""

    def ready(self) -> None:
        """Fills all windows with random values: zeros take less power, and GPUs run faster on them.

        `block` writes them again, outside its clock, before reducing in place makes them infinite.
        """


class Backend(Protocol):
    """name: "c10d:gloo", "c10d:nccl" or "nccl"; device: CUDA device, or -1: the host's memory."""

    name: str
    device: int

    def refuses(self, case: Case) -> str | None:
        """Returns why this rank can't run the case, or None; another rank's GPU may be older."""

    def prepare(self, case: Case) -> Operation:
        """Returns the case on the memory reserved; runs nothing."""

    def reserve(self, size: int) -> None:
        """Reserves `size` bytes for all cases to come; `buffers` cuts them for each; 0: none."""


CACHES = 128 << 20  # bytes, more than any GPU's cache of today (L2: 50 to 126 MiB)
_MOST = 64
# Alignment of every window, the same on all ranks: registered buffers need equal offsets.
ALIGNMENT = 512


def needed(size: int, in_place: bool) -> int:
    """Returns the bytes of memory for one window of a case of `size` bytes."""
    return size if in_place else 2 * _stride(size)


def buffers(memory: int, in_place: bool) -> tuple[int, int]:
    """Cuts `memory` bytes for a case: (bytes of a buffer, start of the receive buffer).
    Out of place: two halves, the first one to send from. In place: both buffers are the whole."""
    half = memory // 2 // ALIGNMENT * ALIGNMENT
    return (memory, 0) if in_place else (half, half)


def capacity_of(size: int) -> int:
    """Returns the bytes of a buffer for the most windows of a case of `size` bytes."""
    stride = _stride(size)
    return size + stride * (min(_MOST, -(-CACHES // stride)) - 1)


def offsets(size: int, capacity: int) -> list[int]:
    """Returns each window's offset in the buffer in bytes: as many as fit, at least one."""
    if size == 0:
        return [0]
    stride = _stride(size)
    number = min(_MOST, -(-CACHES // stride), 1 + max(0, capacity - size) // stride)
    return [i * stride for i in range(max(1, number))]


def _stride(size: int) -> int:
    return max(ALIGNMENT, -(-size // ALIGNMENT) * ALIGNMENT)


# Dtype -> how often its smallest random value (csrc/bench/verify/verify.hpp) can double and still
# is finite. Integers lose a bit of randomness with each.
_DOUBLINGS = {"float32": 250, "float16": 26, "bfloat16": 250, "float8_e4m3fn": 10,
              "float8_e5m2": 26, "float64": 2000, "int8": 6, "int32": 30, "int64": 62,
              "uint8": 6, "uint32": 30, "uint64": 62}  # fmt: skip


def runs_of(case: Case, world: int) -> int:
    """Returns how many runs one window stands until its values may be infinite, at least 2.

    An all_reduce in place makes a sum `world` times as large each time, another reduction in place
    adds the same again. Maxima, averages and products of 1 and -1 stay what they are.
    """
    if not (case.in_place and COLLECTIVES[case.collective].reduces and case.op == "sum"):
        return sys.maxsize
    doublings = _DOUBLINGS[case.dtype]
    if case.collective == "all_reduce":
        return max(2, int(doublings / math.log2(world))) if world > 1 else sys.maxsize
    return max(2, (1 << doublings) // world)


class Noise:
    """Random values in the windows of a case's operation, written again before they overflow.

    windows: (address, bytes) of each. device: CUDA's, or -1: the host's memory.
    """

    def __init__(
        self, device: int, case: Case, world: int, windows: Sequence[tuple[int, int]]
    ) -> None:
        self._device, self._case, self._windows = device, case, windows
        self._lasts = runs_of(case, world)  # of the window that is used most, the first one
        self._low = self._lasts < sys.maxsize
        self._left = 0

    def write(self) -> None:
        for address, size in self._windows:
            args = (address, size, self._case.dtype, self._case.op)
            if self._device < 0:
                _native.core().bench_noise(*args, low=self._low)
            else:
                _native.cuda().gpu_noise(self._device, *args, low=self._low)
        self._left = self._lasts

    def parts(self, n: int, beside: int = 0) -> Iterator[int]:
        """Cuts a block of `n` runs into parts that the values stand; writes new ones in between.
        Each part begins with the first window. beside: further runs in it that a part makes."""
        while n:
            if self._left < 1 + beside:
                self.write()
            part = max(1, min(n, (self._left - beside) * len(self._windows)))
            self._left -= -(-part // len(self._windows)) + beside
            n -= part
            yield part


def queued(
    noise: Noise, n: int, beside: int, run: Callable[[int, bool], tuple[float, list[float]]]
) -> Block:
    """Times `n` runs on a GPU; their mean and their samples one after the other, if they are short.

    run: makes so many runs; returns microseconds of all and, if wanted, of each. beside: runs that
    it makes besides.
    """

    def timed(each: bool) -> tuple[float, list[float]]:
        total, samples = 0.0, list[float]()
        for part in noise.parts(n, beside):
            took, times = run(part, each)
            total += took
            samples += times
        return total / n, samples

    mean, samples = timed(n <= _FEW)
    return Block(mean, samples or timed(True)[1])
