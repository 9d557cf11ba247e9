"""One rank's side of its meetings: latency, then data one way at a time, until it is known."""

import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from oddrank import _native
from oddrank.bench import native
from oddrank.bench.backend import ALIGNMENT, Block, needed
from oddrank.bench.native import Native
from oddrank.bench.pairs.matrix import error_of_median
from oddrank.bench.pairs.schedule import Meeting
from oddrank.control.stages import Context
from oddrank.process_group import Group

_NATIVE = "pairs over NCCL"
_TRIPS = 25  # round trips in one latency


def wire_of(context: Context[object], group: Group, size: int) -> "Wire":
    """Agrees with all ranks on a wire for `size` bytes: NCCL's if every rank can, else torch's."""
    cuda = _native.cuda_part().module
    able = group.device.type == "cuda" and cuda is not None and not cuda.nccl_obstacle()
    (everywhere,) = group.smallest([float(able)])
    if not everywhere:
        return TorchWire(group, size)
    made: Native | None = context.scratch.get(_NATIVE)
    if made is None:
        made = context.scratch[_NATIVE] = native.connect(group)
    return NativeWire(group, made, size)


class TorchWire:
    """One rank's end of all its links, over torch.distributed.

    Moves a batch of messages at a time: without a batch, nccl would make a new communicator for
    each pair. most: messages of a repeat, at most; beside: messages that `fetch` moves in addition,
    before its own clock runs.
    """

    most, beside = 16, 0

    def __init__(self, group: Group, size: int) -> None:
        self._group, self._dist = group, group.dist
        torch = group.torch
        self._large = torch.zeros(size, dtype=torch.uint8, device=group.device)
        self._small = torch.zeros(1, dtype=torch.int64, device=group.device)

    def fetch(self, peer: int, messages: int) -> Block:
        """Receives `messages` messages from a peer that serves. Returns the times of one."""
        began = time.perf_counter()
        self._say(peer, messages)
        self._move(self._dist.irecv, [self._large] * messages, peer)
        one = (time.perf_counter() - began) * 1e6 / messages
        return Block(one, [one])

    def serve(self, peer: int) -> int:
        """Sends as many messages as the peer asks for; returns how many, 0 at the end."""
        messages = self._hear(peer)
        if messages:
            self._move(self._dist.isend, [self._large] * messages, peer)
        return messages

    def latency(self, peer: int) -> float:
        """Returns the shortest of some messages' microseconds one way; the peer answers."""
        trips = []
        for _ in range(_TRIPS):
            began = time.perf_counter()
            self._say(peer, 1)
            self._hear(peer)
            trips.append(time.perf_counter() - began)
        return min(trips) * 1e6 / 2

    def answer(self, peer: int) -> int:
        """Takes part in the peer's latency; returns 0 at the end."""
        said = self._hear(peer)
        if said:
            self._say(peer, said)
        return said

    def end(self, peer: int) -> None:
        """Tells a peer that serves or answers that this was all."""
        self._say(peer, 0)

    def _say(self, peer: int, number: int) -> None:
        self._small.fill_(number)
        self._move(self._dist.isend, [self._small], peer)

    def _hear(self, peer: int) -> int:
        self._move(self._dist.irecv, [self._small], peer)
        return int(self._small[0])

    def _move(self, operation: Any, tensors: Sequence[Any], peer: int) -> None:
        operations = [self._dist.P2POp(operation, tensor, peer) for tensor in tensors]
        for work in self._dist.batch_isend_irecv(operations):
            work.wait()
        self._group.synchronize()


class NativeWire:
    """Moves messages by NCCL and times them by events of the receiver's GPU.

    Ranks talk to each other over gloo. Both sides make the same runs: the timed ones, one before
    them, and one that connects, the first time.
    """

    most, beside = 1000, 1

    def __init__(self, group: Group, made: Native, size: int) -> None:
        self._group, self._made, self._size = group, made, size
        made.reserve(needed(max(size, ALIGNMENT), in_place=False))
        self._links: dict[tuple[int, int, int], Any] = {}

    def fetch(self, peer: int, messages: int) -> Block:
        self._say(peer, messages)
        return self._run(peer, 0, self._size, messages)

    def serve(self, peer: int) -> int:
        messages = self._hear(peer)
        if messages:
            self._run(peer, self._size, 0, messages)
        return messages

    def latency(self, peer: int) -> float:
        """Both send at once: the time of a run is the time of one way."""
        self._say(peer, _TRIPS)
        return min(self._run(peer, 8, 8, _TRIPS, each=True).samples)

    def answer(self, peer: int) -> int:
        runs = self._hear(peer)
        if runs:
            self._run(peer, 8, 8, runs, each=True)
        return runs

    def end(self, peer: int) -> None:
        self._say(peer, 0)

    def _run(self, peer: int, sent: int, received: int, n: int, *, each: bool = False) -> Block:
        link = self._links.get((peer, sent, received))
        if link is None:
            link = self._links[peer, sent, received] = self._made.link(peer, sent, received)
        samples, mean = link.block(n, each=each, seconds=self._made.seconds)
        return Block(mean, samples or [mean])

    def _say(self, peer: int, number: int) -> None:
        torch = self._group.torch
        self._group.dist.send(torch.tensor([number], dtype=torch.int64), peer)

    def _hear(self, peer: int) -> int:
        torch = self._group.torch
        heard = torch.zeros(1, dtype=torch.int64)
        self._group.dist.recv(heard, peer)
        return int(heard[0])


Wire: TypeAlias = TorchWire | NativeWire

MOST = 41
# A repeat has as many messages as fit into this time, at least one.
_REPEAT_SECONDS = 0.02
_WARMUP = 2
_LATENCY_SECONDS = 0.25  # most seconds for a latency, however noisy it is
_REPEATS_A_FIGURE = 2  # repeats of the slowest rank for each figure, if ranks share a network card
# Marks in each meeting, long or short: a stuck rank has fewer.
_MARKS = 2 * (MOST + _WARMUP + 1) + 2


@dataclass(frozen=True)
class Effort:
    """Limits of a measurement: messages of `size` bytes until the median's error is below `enough`.

    enough: standard error of the logarithm; seconds: for one way, and at most as much again to
    complete the `fewest` repeats.
    """

    size: int
    enough: float
    seconds: float
    fewest: int

    def window(self, longest: float) -> float:
        """Returns seconds in which all ranks measure at once; longest: the slowest one's repeat."""
        least = min(self.fewest * longest, 2 * self.seconds)
        return max(least, min(_REPEATS_A_FIGURE * self.fewest * longest, self.seconds))


class Exchange:
    """One rank's wire, and its side of each meeting."""

    def __init__(self, context: Context[object], group: Group, effort: Effort, wire: Wire) -> None:
        self._context, self._group, self._effort, self._wire = context, group, effort, wire
        self._marks = 0

    def meet(self, met: Meeting, shared: bool) -> tuple[list[float], list[float]]:
        """Returns (GB/s from the peer; microseconds one way), each one figure a repeat.

        Both ranks of the meeting call it; only the first sender gets latencies. shared: all ranks
        of the group call it at once, resting ones too, and begin each step together.
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
        """Measures one way until the median is known well enough or the time is over."""
        took = self._warm_up(peer, sends)
        if sends:
            while self._serve(peer):
                pass
            return []
        messages = self._messages(took)
        until = time.monotonic() + self._effort.seconds
        rates: list[float] = []
        while self._goes_on(rates, until):
            rates.append(self._effort.size / self._timed(peer, messages).mean / 1e3)
        self._wire.end(peer)
        return rates

    def _share(self, peer: int | None, sends: bool) -> list[float]:
        """Measures one way in a window that all ranks share, cut into equal parts.

        Ranks of a node take turns on its network card, or one gets more of it: only rates in the
        same time add up to the node's rate. All begin together: an early rank would disturb others
        that still measure the step before.
        """
        self._group.barrier()
        took = 0.0
        if peer is not None:
            took = self._warm_up(peer, sends)
        window = self._effort.window(max(_REPEAT_SECONDS, self._group.largest([took])[0]))
        self._group.barrier()  # some ranks get the agreed value a little before others
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
        self._wire.end(peer)
        moved = self._effort.size * (messages + self._wire.beside) / 1e9
        return rates_of(ends, moved, window, self._effort.fewest)

    def _warm_up(self, peer: int, sends: bool) -> float:
        """Opens connections and TCP's windows. Returns a message's seconds; 0 on the sender."""
        took = 0.0
        for _ in range(_WARMUP):
            if sends:
                self._serve(peer)
            else:
                took = self._timed(peer, 1).mean / 1e6
        return took

    def _messages(self, took: float) -> int:
        """Returns the number of messages in a repeat, from the seconds that one took."""
        return min(self._wire.most, max(1, round(_REPEAT_SECONDS / took)))

    def _serve(self, peer: int) -> int:
        self._mark(f"send to rank {peer}")
        return self._wire.serve(peer)

    def _timed(self, peer: int, messages: int) -> Block:
        self._mark(f"receive from rank {peer}")
        return self._wire.fetch(peer, messages)

    def _latency(self, peer: int, asks: bool) -> list[float]:
        """Returns each block's shortest way: a real delay shows there too."""
        self._mark(f"latency with rank {peer}")
        if not asks:
            while self._wire.answer(peer):
                pass
            return []
        until = time.monotonic() + min(_LATENCY_SECONDS, self._effort.seconds)
        self._wire.latency(peer)  # connects
        blocks: list[float] = []
        while self._goes_on(blocks, until):
            blocks.append(self._wire.latency(peer))
        self._wire.end(peer)
        return blocks

    def _goes_on(self, values: Sequence[float], until: float) -> bool:
        """Returns whether the median needs more repeats and there is time for them."""
        if len(values) < self._effort.fewest:
            # A link a hundred times too slow must not take the time of all others.
            return not values or time.monotonic() < until + self._effort.seconds
        noisy = error_of_median(values) > self._effort.enough
        return noisy and len(values) < MOST and time.monotonic() < until

    def _mark(self, text: str) -> None:
        """Reports that this rank waits for its peer; at most as many marks as every rank makes."""
        if self._marks > 1:
            self._marks -= 1
            self._context.step(text, waiting=True)


def rates_of(ends: Sequence[float], each: float, window: float, parts: int) -> list[float]:
    """Returns the rates in `parts` equal parts of the window, at most as many as repeats.

    More parts would repeat a figure and hide the noise. ends: 0 and the end of each repeat in
    seconds, the last one not before the window's end; each: GB in a repeat, assumed to move evenly.
    """

    def moved(at: float) -> float:
        place = max(1, bisect_left(ends, at))
        before, after = ends[place - 1], ends[place]
        return place - 1 + (at - before) / (after - before)

    parts = min(parts, len(ends) - 1)
    edges = [*(window * part / parts for part in range(parts)), window]
    return [each * parts * (moved(b) - moved(a)) / window for a, b in pairwise(edges)]
