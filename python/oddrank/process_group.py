"""The process group of all ranks, its parts, and agreement among their ranks.

Agreement uses gloo on the CPU, never the GPUs' fabric, which is measured.
"""

import os
import socket
from array import array
from collections.abc import Sequence
from copy import copy
from datetime import timedelta
from typing import Any

from oddrank import _native
from oddrank.control.stages import Context
from oddrank.errors import OddrankError
from oddrank.machine.device import CPU, GPU, gpu_index

_GROUP = "group"
# Backends for init_process_group: gloo stays beside nccl, for agreement.
_BACKENDS = {"gloo": "gloo", "nccl": "cpu:gloo,cuda:nccl"}


def connect(context: Context[object], backend: str) -> "Group":
    """Returns the group of all ranks, made on first use: nccl on this rank's GPU, or gloo."""
    group = context.scratch.get(_GROUP)
    if group is None:
        group = context.scratch[_GROUP] = Group(context, backend)
    return group


def _refuse_unknown_interfaces() -> None:
    """Raises OddrankError if gloo is to use an interface that this host does not have.
    gloo says so inside the rendezvous: the others would wait for this rank until the deadline."""
    here = [name for _, name in socket.if_nameindex()]
    listed = os.environ.get("GLOO_SOCKET_IFNAME", "")
    names = [name.partition(":")[0] for name in listed.split(",")]  # eth0:1 is a label of eth0
    unknown = [name for name in names if name and name not in here]
    if unknown:
        raise OddrankError(
            f"GLOO_SOCKET_IFNAME={listed}: this host has no interface {', '.join(unknown)};"
            f" it has {', '.join(here)}"
        )


class Group:
    """A process group. Reports a step before each call that waits for others, and after it.

    ranks: its members by their ranks in the job. rank: this rank's index among them. handle:
    torch's group, None for all ranks. among: the group's name.
    """

    ranks: Sequence[int]
    handle: Any = None
    among = "world"

    def __init__(self, context: Context[object], backend: str) -> None:
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
        context.step("choose gloo's interface")
        if "GLOO_SOCKET_IFNAME" not in os.environ:
            # gloo asks the resolver for this host's name. In containers and network namespaces the
            # answer may be wrong or missing: use the interface that leads to the others.
            way = context.master or "127.0.0.1"
            interface = _native.core().control_interface_towards(way)
            if interface:
                os.environ["GLOO_SOCKET_IFNAME"] = interface
        _refuse_unknown_interfaces()
        # Connects two ranks when they first exchange something: hundreds of ranks need few of all
        # their connections, and open them once for each group.
        os.environ.setdefault("TORCH_GLOO_LAZY_INIT", "1")
        # Longer than the command: a rank that waits is not at fault and must not raise.
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

    @property
    def computes_on(self) -> str:
        """Where its tensors are: machine.device.GPU or CPU."""
        return GPU if self.backend == "nccl" else CPU

    def part(self, among: str, number: int, ranks: Sequence[int]) -> "Group":
        """Returns a group of some ranks, numbered anew. Its members call it, and no other rank.

        They must have made equally many groups before: torch derives the group's name from that
        number. number: a different one for each part of a rank.
        """
        part = copy(self)
        part.among, part.ranks, part.world = among, tuple(ranks), len(ranks)
        part.rank = part.ranks.index(self.rank)
        part._turn = number << 32  # values that one group left must not pass for another's
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
        """Returns a new number, the same on all ranks, for a check of values."""
        self._turn += 1
        return self._turn

    def synchronize(self) -> None:
        """Waits for the GPU's queue; on the CPU calls return when done."""
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)

    def barrier(self) -> None:
        self.context.step("barrier", waiting=True)
        ids = [self.device.index] if self.device.type == "cuda" else None
        self.dist.barrier(self.handle, device_ids=ids)
        self.synchronize()
        self.context.step("barrier done")

    def largest(self, values: "Sequence[float] | array[float]") -> "array[float]":
        """Returns the elementwise maximum over all ranks; all give equally many values."""
        return self._reduce(values, self.dist.ReduceOp.MAX)

    def smallest(self, values: "Sequence[float] | array[float]") -> "array[float]":
        """Returns the elementwise minimum over all ranks."""
        return self._reduce(values, self.dist.ReduceOp.MIN)

    def said_by(self, root: int, numbers: Sequence[int]) -> list[int]:
        """Returns the numbers of the rank at index `root`, on every rank; all give equally many."""
        shared = self.torch.tensor(numbers, dtype=self.torch.int64)
        self.context.step("agree", waiting=True)
        self.dist.broadcast(shared, self.ranks[root], self.handle)
        self.context.step("agreed")
        return [int(number) for number in shared.tolist()]

    def _reduce(self, values: "Sequence[float] | array[float]", op: Any) -> "array[float]":
        agreed = array("d", values)
        if not agreed:
            return agreed
        self.context.step("agree", waiting=True)
        # The tensor is a view of the array: all_reduce writes its result there.
        shown = self.torch.frombuffer(agreed, dtype=self.torch.float64)
        self.dist.all_reduce(shown, op, self.handle)
        self.context.step("agreed")
        return agreed
