"""Two ranks move data between each other, one way at a time, and take the time of it.

The receiver decides and its clock counts: it says "go" with the number of messages, and stops when
the last byte of the last one is there. A sender's clock would stop when a buffer has taken the
data; a receiver's that started with the first byte would miss what was under way before it woke.
"""

import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from oddrank.bench.group import Group
from oddrank.bench.pairs.games import Meeting
from oddrank.bench.pairs.noise import error_of_median
from oddrank.control.stages import Context

MOST = 41
# A repeat takes about this long where the messages are that quick.
_REPEAT_SECONDS = 0.02
_MOST_MESSAGES = 16
_WARMUP = 2
_TRIPS = 25
# Seconds after which a latency is known well enough, however noisy it is.
_LATENCY_SECONDS = 0.25
# Repeats of the slowest rank for each figure of ranks that share their way out.
_REPEATS_A_FIGURE = 2
# Marks of a meeting, of whatever length: a rank that is stuck is told by its fewer marks.
_MARKS = 2 * (MOST + _WARMUP + 1) + 2


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

    def window(self, longest: float) -> float:
        """Seconds in which all ranks of a node go on at once; longest: a repeat of the slowest."""
        least = min(self.fewest * longest, 2 * self.seconds)
        return max(least, min(_REPEATS_A_FIGURE * self.fewest * longest, self.seconds))


class Exchange:
    """The buffers of one rank."""

    def __init__(self, context: Context, group: Group, effort: Effort) -> None:
        import torch
        import torch.distributed as dist

        self._context, self._group, self._effort, self._dist = context, group, effort, dist
        self._large = torch.zeros(effort.size, dtype=torch.uint8, device=group.device)
        self._small = torch.zeros(1, dtype=torch.int64, device=group.device)
        self._marks = 0

    def meet(self, met: Meeting, shared: bool) -> tuple[list[float], list[float]]:
        """(GB/s of what came from the peer, a figure a repeat; microseconds one way, likewise).

        Both call it for each other; who sends first has the latencies. shared: all ranks of the
        group call it at once, and begin each step together, also those that rest.
        """
        self._marks = _MARKS
        if shared:
            self._group.barrier()
        latency = [] if met.peer is None else self._latency(met.peer, met.first)
        rates: list[float] = []
        for sends in (met.first, not met.first):
            if shared:
                rates += self._share(met.peer, sends)
            elif met.peer is not None:
                rates += self._move_alone(met.peer, sends)
        while self._marks > 1:
            self._mark("next")
        self._context.step("rest" if met.peer is None else f"done with rank {met.peer}")
        return rates, latency

    def _move_alone(self, peer: int, sends: bool) -> list[float]:
        """One way, until the median is known well enough, or there is no more time."""
        took = self._warm_up(peer, sends)
        if sends:
            while self._serve(peer):
                pass
            return []
        messages = self._messages(took)
        until = time.monotonic() + self._effort.seconds
        rates: list[float] = []
        while self._goes_on(rates, until):
            took = self._timed(peer, messages)
            rates.append(self._effort.size * messages / took / 1e9)
        self._say(peer, 0)
        return rates

    def _share(self, peer: int | None, sends: bool) -> list[float]:
        """The same for as long as all ranks do it, cut into equal times.

        Ranks of a node take turns on its way out, or one has more of it: only what they moved in
        the same time adds up to what the node moves. Nobody begins while others still measure what
        comes before; whoever was first would be in their way.
        """
        self._group.barrier()
        took = 0.0
        if peer is not None:
            took = self._warm_up(peer, sends)
        window = self._effort.window(max(_REPEAT_SECONDS, self._group.largest([took])[0]))
        self._group.barrier()  # some come to know the largest a little before others
        if peer is None:
            return []
        if sends:
            while self._serve(peer):
                pass
            return []
        messages = self._messages(took)
        began = time.perf_counter()
        ends = [0.0]
        while ends[-1] < window:
            self._timed(peer, messages)
            ends.append(time.perf_counter() - began)
        self._say(peer, 0)
        return rates_of(ends, self._effort.size * messages / 1e9, window, self._effort.fewest)

    def _warm_up(self, peer: int, sends: bool) -> float:
        """Connections, and TCP's windows; the seconds of a message, known to its receiver."""
        took = 0.0
        for _ in range(_WARMUP):
            if sends:
                self._serve(peer)
            else:
                took = self._timed(peer, 1)
        return took

    def _messages(self, took: float) -> int:
        """Of a repeat."""
        return min(_MOST_MESSAGES, max(1, round(_REPEAT_SECONDS / took)))

    def _serve(self, peer: int) -> int:
        """Sends as many messages as the peer asks for next, and says how many; 0: the last."""
        self._mark(f"send to rank {peer}")
        messages = self._hear(peer)
        if messages:
            self._move(self._dist.isend, [self._large] * messages, peer)
        return messages

    def _timed(self, peer: int, messages: int) -> float:
        """Seconds from the go to the last byte."""
        self._mark(f"receive from rank {peer}")
        began = time.perf_counter()
        self._say(peer, messages)
        self._move(self._dist.irecv, [self._large] * messages, peer)
        return time.perf_counter() - began

    def _latency(self, peer: int, asks: bool) -> list[float]:
        """Half the shortest round trip of every block of trips: a delay hurts also the shortest."""
        self._mark(f"latency with rank {peer}")
        if not asks:
            while self._hear(peer):
                self._say(peer, 1)
            return []
        until = time.monotonic() + min(_LATENCY_SECONDS, self._effort.seconds)
        self._trip(peer)
        blocks: list[float] = []
        while self._goes_on(blocks, until):
            blocks.append(min(self._trip(peer) for _ in range(_TRIPS)) * 1e6 / 2)
        self._say(peer, 0)
        return blocks

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

    def _mark(self, text: str) -> None:
        """This rank waits for its peer; more marks than all ranks make do not count."""
        if self._marks > 1:
            self._marks -= 1
            self._context.step(text, waiting=True)

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


def rates_of(ends: Sequence[float], each: float, window: float, parts: int) -> list[float]:
    """The rates in each of so many equal parts of the window, at most one for each repeat.

    More would be the same figure several times, and look as if nothing had disturbed it.
    ends: 0 and when each repeat ended, the last one not before the window's end; `each`: what a
    repeat moved, evenly while it went on.
    """

    def moved(at: float) -> float:
        place = max(1, bisect_left(ends, at))
        before, after = ends[place - 1], ends[place]
        return place - 1 + (at - before) / (after - before)

    parts = min(parts, len(ends) - 1)
    edges = [*(window * part / parts for part in range(parts)), window]
    return [each * parts * (moved(b) - moved(a)) / window for a, b in pairwise(edges)]
