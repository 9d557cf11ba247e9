"""Moves messages between two ranks and times them: over torch.distributed, or over NCCL itself.

Torch's clock is the receiver's: it starts when the receiver sends the number of messages it wants,
and stops at the last byte of the last message. A sender's clock would stop when a buffer has taken
the data; a clock that starts at the first byte would miss data that was under way before.

NCCL's is the receiver's GPU: an event after a first message, which finds both sides ready, and one
after the last. The host's part in a message, Python's above all, would show as a slow NVLink.
"""

import time
from collections.abc import Sequence
from typing import Any, TypeAlias

from oddrank import _native
from oddrank.bench import native
from oddrank.bench.backend import ALIGNMENT, Block, needed
from oddrank.bench.native import Native
from oddrank.control.stages import Context
from oddrank.process_group import Group

_NATIVE = "pairs over NCCL"
# Round trips in one latency.
_TRIPS = 25


def wire_of(context: Context[object], group: Group, size: int) -> "Wire":
    """Returns NCCL's wire for messages of `size` bytes if every rank can, else torch's.

    All ranks call it together.
    """
    able = group.device.type == "cuda" and not _obstacle()
    (everywhere,) = group.smallest([float(able)])
    if not everywhere:
        return TorchWire(group, size)
    made: Native | None = context.scratch.get(_NATIVE)
    if made is None:
        made = context.scratch[_NATIVE] = native.connect(group)
    return NativeWire(group, made, size)


def _obstacle() -> str:
    """Returns why this rank can't use NCCL itself; "" if it can."""
    part = _native.cuda_part()
    return str(part.module.nccl_obstacle()) if part.module else str(part.reason)


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
        return min(self._trip(peer) for _ in range(_TRIPS)) * 1e6 / 2

    def answer(self, peer: int) -> int:
        """Takes part in the peer's latency; returns 0 at the end."""
        said = self._hear(peer)
        if said:
            self._say(peer, said)
        return said

    def end(self, peer: int) -> None:
        """Tells a peer that serves or answers that this was all."""
        self._say(peer, 0)

    def _trip(self, peer: int) -> float:
        began = time.perf_counter()
        self._say(peer, 1)
        self._hear(peer)
        return time.perf_counter() - began

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

    What the ranks tell each other goes over gloo. Both sides make the same runs: those that are
    timed, one before them, and one that connects, the first time.
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
        """Both send at once: the time of a run is that of one way."""
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
