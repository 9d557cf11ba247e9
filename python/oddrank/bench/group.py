"""All ranks of the run as torch.distributed's default group: joined once, and what they agree on.

What is agreed travels over gloo on the CPU, never over the fabric that is measured on GPUs.
"""

import os
from array import array
from collections.abc import Sequence
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
    """Every call that waits for others says so first, and says when it is through."""

    def __init__(self, context: Context, backend: str) -> None:
        context.step("import torch")
        import torch
        import torch.distributed as dist

        self.context, self.torch, self.dist = context, torch, dist
        self.backend, self.rank, self.world = backend, context.launch.rank, context.launch.world
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
        context.step("connect", waiting=True)
        dist.init_process_group(
            _BACKENDS[backend],
            store=dist.PrefixStore("oddrank/c10d", context.store()),
            rank=self.rank,
            world_size=self.world,
            # Longer than the command: who waits is not at fault and must not be the one to raise.
            timeout=timedelta(seconds=context.seconds + 60),
        )
        context.step("connected")

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
        self.dist.barrier(device_ids=[self.device.index] if self.device.type == "cuda" else None)
        self.synchronize()
        self.context.step("barrier done")

    def largest(self, values: "Sequence[float] | array[float]") -> "array[float]":
        """Place by place the largest of all ranks' values, on every rank; all give as many."""
        return self._reduce(values, self.dist.ReduceOp.MAX)

    def smallest(self, values: "Sequence[float] | array[float]") -> "array[float]":
        """Place by place the smallest of all ranks' values, on every rank."""
        return self._reduce(values, self.dist.ReduceOp.MIN)

    def said_by(self, root: int, numbers: Sequence[int]) -> list[int]:
        """The numbers of rank `root`, on every rank; all give as many."""
        told = self.torch.tensor(numbers, dtype=self.torch.int64)
        self.context.step("agree", waiting=True)
        self.dist.broadcast(told, root)
        self.context.step("agreed")
        return [int(number) for number in told.tolist()]

    def _reduce(self, values: "Sequence[float] | array[float]", op: Any) -> "array[float]":
        agreed = array("d", values)
        if not agreed:
            return agreed
        self.context.step("agree", waiting=True)
        # The tensor is a view of the array: the result is there, and nothing is copied.
        self.dist.all_reduce(self.torch.frombuffer(agreed, dtype=self.torch.float64), op=op)
        self.context.step("agreed")
        return agreed
