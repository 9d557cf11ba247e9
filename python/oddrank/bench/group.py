"""All ranks of the run as torch.distributed's default group, and parts of them: made once, and
what they agree on.

What is agreed travels over gloo on the CPU, never over the fabric that is measured on GPUs.
"""

import os
from array import array
from collections.abc import Sequence
from copy import copy
from datetime import timedelta
from typing import Any

from oddrank import _native
from oddrank.bench.place import gpu_index
from oddrank.control.stages import Context

_GROUP = "group"
# What init_process_group is asked for: gloo stays beside nccl, for the agreements.
_BACKENDS = {"gloo": "gloo", "nccl": "cpu:gloo,cuda:nccl"}


def connect(context: Context, backend: str) -> "Group":
    """The process group over all ranks, made on first use: nccl on this rank's GPU, or gloo."""
    group = context.kept.get(_GROUP)
    if group is None:
        group = context.kept[_GROUP] = Group(context, backend)
    return group


class Group:
    """Every call that waits for others says so first, and says when it is through.

    ranks: the job's numbers of its members; rank: this one's place among them. handle: torch's for
    these ranks, None for all. among: what the group is called.
    """

    ranks: Sequence[int]
    handle: Any = None
    among = "world"

    def __init__(self, context: Context, backend: str) -> None:
        context.step("import torch")
        import torch
        import torch.distributed as dist

        self.context, self.torch, self.dist = context, torch, dist
        self.backend, self.rank, self.world = backend, context.launch.rank, context.launch.world
        self.ranks = range(self.world)
        self._turn = 0
        self.device = torch.device("cpu")
        if backend == "nccl":
            self.device = torch.device("cuda", gpu_index(context.launch))
            torch.cuda.set_device(self.device)
        if "GLOO_SOCKET_IFNAME" not in os.environ:
            # gloo asks the resolver for this host's name, which answers wrongly or not at all in
            # containers and network namespaces: take the interface that leads to the others.
            way = context.master or "127.0.0.1"
            interface = _native.core().control_interface_towards(way)
            if interface:
                os.environ["GLOO_SOCKET_IFNAME"] = interface
        # Longer than the command: who waits is not at fault and must not be the one to raise.
        self._timeout = timedelta(seconds=context.seconds + 60)
        context.step("connect", waiting=True)
        dist.init_process_group(
            _BACKENDS[backend],
            store=dist.PrefixStore("oddrank/c10d", context.store()),
            rank=self.rank,
            world_size=self.world,
            timeout=self._timeout,
        )
        context.step("connected")

    def part(self, among: str, number: int, ranks: Sequence[int]) -> "Group":
        """Some ranks, this one among them, as a group that numbers them anew; all of them call it.

        A rank makes as many groups as it is in, however many there are; torch wants all ranks to
        make as many, since it names them by that. number: another one for each part of a rank.
        """
        part = copy(self)
        part.among, part.ranks, part.world = among, tuple(ranks), len(ranks)
        part.rank = part.ranks.index(self.rank)
        part._turn = number << 32  # what one group left must not pass for another's
        self.context.step(f"connect {among}", waiting=True)
        part.handle = self.dist.new_group(
            list(ranks),
            timeout=self._timeout,
            backend=_BACKENDS[self.backend],
            use_local_synchronization=True,
        )
        self.context.step(f"connected {among}")
        return part

    def next_turn(self) -> int:
        """A number that no check by value had before; the same on all ranks."""
        self._turn += 1
        return self._turn

    def synchronize(self) -> None:
        """Until the GPU has done all that it was told; on the CPU calls return when done."""
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)

    def barrier(self) -> None:
        self.context.step("barrier", waiting=True)
        ids = [self.device.index] if self.device.type == "cuda" else None
        self.dist.barrier(self.handle, device_ids=ids)
        self.synchronize()
        self.context.step("barrier done")

    def largest(self, values: "Sequence[float] | array[float]") -> "array[float]":
        """Place by place the largest of all ranks' values, on every rank; all give as many."""
        return self._reduce(values, self.dist.ReduceOp.MAX)

    def smallest(self, values: "Sequence[float] | array[float]") -> "array[float]":
        """Place by place the smallest of all ranks' values, on every rank."""
        return self._reduce(values, self.dist.ReduceOp.MIN)

    def said_by(self, root: int, numbers: Sequence[int]) -> list[int]:
        """The numbers of the one in place `root`, on every rank; all give as many."""
        told = self.torch.tensor(numbers, dtype=self.torch.int64)
        self.context.step("agree", waiting=True)
        self.dist.broadcast(told, self.ranks[root], self.handle)
        self.context.step("agreed")
        return [int(number) for number in told.tolist()]

    def _reduce(self, values: "Sequence[float] | array[float]", op: Any) -> "array[float]":
        agreed = array("d", values)
        if not agreed:
            return agreed
        self.context.step("agree", waiting=True)
        # The tensor is a view of the array: the result is there, and nothing is copied.
        shown = self.torch.frombuffer(agreed, dtype=self.torch.float64)
        self.dist.all_reduce(shown, op, self.handle)
        self.context.step("agreed")
        return agreed
