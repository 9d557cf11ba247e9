"""Two ranks move data between each other, one way at a time, and take the time of it.

The receiver decides and its clock counts: it says "go" with the number of messages, and stops when
the last byte of the last one is there. A sender's clock would stop when a buffer has taken the
data; a receiver's that started with the first byte would miss what was under way before it woke.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oddrank.bench.group import Group
from oddrank.bench.pairs.matrix import error_of_median
from oddrank.control.stages import Context

MOST = 41
# A repeat takes about this long where the messages are that quick.
_REPEAT_SECONDS = 0.02
_MOST_MESSAGES = 16
_WARMUP = 2
_TRIPS = 25
# Seconds after which a latency is known well enough, however noisy it is.
_LATENCY_SECONDS = 0.25


@dataclass(frozen=True)
class Effort:
    """How long to go on: `size` bytes a message, until the median's error is below `enough`.

    enough: the standard error of a logarithm; seconds: for one way, and as much again until the
    `fewest` repeats are made.
    """

    size: int
    enough: float
    seconds: float
    fewest: int


class Exchange:
    """The buffers of one rank."""

    def __init__(self, context: Context, group: Group, effort: Effort) -> None:
        import torch
        import torch.distributed as dist

        self._context, self._group, self._effort, self._dist = context, group, effort, dist
        self._large = torch.zeros(effort.size, dtype=torch.uint8, device=group.device)
        self._small = torch.zeros(1, dtype=torch.int64, device=group.device)

    def meet(self, peer: int) -> tuple[list[float], list[float]]:
        """(GB/s of what came from `peer`, a figure a repeat; microseconds one way, likewise).

        Both call it for each other; who has the lower rank sends first, and has the latencies.
        """
        first = self._group.rank < peer
        self._context.step(f"latency with rank {peer}", waiting=True)
        latency = self._ask(peer) if first else self._answer(peer)
        if first:
            self._send(peer)
        received = self._receive(peer)
        if not first:
            self._send(peer)
        self._context.step(f"done with rank {peer}")
        return received, latency

    def _receive(self, peer: int) -> list[float]:
        for _ in range(_WARMUP):  # connections, and TCP's windows
            took = self._timed(peer, 1)
        messages = min(_MOST_MESSAGES, max(1, round(_REPEAT_SECONDS / took)))
        until = time.monotonic() + self._effort.seconds
        rates: list[float] = []
        while self._goes_on(rates, until):
            took = self._timed(peer, messages)
            rates.append(self._effort.size * messages / took / 1e9)
        self._say(peer, 0)
        return rates

    def _send(self, peer: int) -> None:
        self._context.step(f"send to rank {peer}", waiting=True)
        while messages := self._hear(peer):
            self._context.step(f"send to rank {peer}", waiting=True)
            self._move(self._dist.isend, [self._large] * messages, peer)

    def _timed(self, peer: int, messages: int) -> float:
        """Seconds from the go to the last byte."""
        self._context.step(f"receive from rank {peer}", waiting=True)
        began = time.perf_counter()
        self._say(peer, messages)
        self._move(self._dist.irecv, [self._large] * messages, peer)
        return time.perf_counter() - began

    def _ask(self, peer: int) -> list[float]:
        """Half the shortest round trip of every block of trips: a delay hurts also the shortest."""
        until = time.monotonic() + min(_LATENCY_SECONDS, self._effort.seconds)
        self._trip(peer)
        blocks: list[float] = []
        while self._goes_on(blocks, until):
            blocks.append(min(self._trip(peer) for _ in range(_TRIPS)) * 1e6 / 2)
        self._say(peer, 0)
        return blocks

    def _answer(self, peer: int) -> list[float]:
        while self._hear(peer):
            self._say(peer, 1)
        return []

    def _trip(self, peer: int) -> float:
        began = time.perf_counter()
        self._say(peer, 1)
        self._hear(peer)
        return time.perf_counter() - began

    def _goes_on(self, values: Sequence[float], until: float) -> bool:
        """Whether the median of the repeats isn't known well enough yet, and there is time."""
        if len(values) < self._effort.fewest:
            # A link a hundred times too slow must not take the time of all others.
            return not values or time.monotonic() < until + self._effort.seconds
        noisy = error_of_median(values) > self._effort.enough
        return noisy and len(values) < MOST and time.monotonic() < until

    def _say(self, peer: int, number: int) -> None:
        self._small.fill_(number)
        self._move(self._dist.isend, [self._small], peer)

    def _hear(self, peer: int) -> int:
        self._move(self._dist.irecv, [self._small], peer)
        return int(self._small[0])

    def _move(self, operation: Any, tensors: Sequence[Any], peer: int) -> None:
        """All of them at once: nccl takes the whole group's communicator for a batch, and would
        make a new one for each pair otherwise."""
        operations = [self._dist.P2POp(operation, tensor, peer) for tensor in tensors]
        for work in self._dist.batch_isend_irecv(operations):
            work.wait()
        self._group.synchronize()
