"""The random values that runs are timed on, kept finite while they are reduced in place."""

import math
import sys
from collections.abc import Iterator, Sequence

from oddrank import _native
from oddrank.bench.case import Case
from oddrank.bench.collectives import COLLECTIVES

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

        Each part begins with the first window. beside: further runs in it that a part makes.
        """
        while n:
            if self._left < 1 + beside:
                self.write()
            part = max(1, min(n, (self._left - beside) * len(self._windows)))
            self._left -= -(-part // len(self._windows)) + beside
            n -= part
            yield part
