"""torch.distributed as the means of communication: connect once, run a case, verify it by value."""

import fcntl
import os
import socket
import struct
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from oddrank.bench import pattern
from oddrank.bench.case import Case
from oddrank.bench.place import gpu_index
from oddrank.control.stages import Context

_GROUP = "c10d"
_SIOCGIFADDR = 0x8915


@dataclass(frozen=True)
class Mismatch:
    """The first wrong value that `observer` saw, and how many there are."""

    observer: int
    case: str
    index: int
    expected: float
    got: float
    wrong: int


def connect(context: Context, backend: str) -> "Group":
    """The process group over all ranks, made on first use: nccl on this rank's GPU, or gloo."""
    group = context.kept.get(_GROUP)
    if group is None:
        group = context.kept[_GROUP] = Group(context, backend)
    return group


class Group:
    """All ranks. Every call that waits for others says so first, and says when it is through."""

    def __init__(self, context: Context, backend: str) -> None:
        context.step("import torch")
        import torch
        import torch.distributed as dist

        self._context, self._torch, self._dist = context, torch, dist
        self.backend, self.rank, self.world = backend, context.launch.rank, context.launch.world
        self.device = torch.device("cpu")
        if backend == "nccl":
            self.device = torch.device("cuda", gpu_index(context.launch))
            torch.cuda.set_device(self.device)
        elif "GLOO_SOCKET_IFNAME" not in os.environ:
            # gloo asks the resolver for this host's name, which answers wrongly or not at all in
            # containers and network namespaces: take the interface that leads to the others.
            interface = interface_towards(context.launch.master)
            if interface:
                os.environ["GLOO_SOCKET_IFNAME"] = interface
        context.step("connect", waiting=True)
        dist.init_process_group(
            backend,
            store=dist.PrefixStore("oddrank/c10d", context.store()),
            rank=self.rank,
            world_size=self.world,
            # Longer than the command: who waits is not at fault and must not be the one to raise.
            timeout=timedelta(seconds=context.seconds + 60),
        )
        context.step("connected")

    def contribution(self, case: Case) -> Any:
        """What this rank puts into the case."""
        dtype = getattr(self._torch, case.dtype)
        values = pattern.contribution(self.rank, self.world, case.count, dtype, self.device)
        return self._context.own(values)

    def run(self, case: Case, tensor: Any) -> None:
        """The collective, in place, through to its end."""
        self._context.step(str(case), waiting=True)
        self._dist.all_reduce(tensor)
        self.synchronize()
        self._context.step(f"{case} done")

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            self._torch.cuda.synchronize(self.device)

    def verify(self, case: Case) -> Mismatch | None:
        """Runs the case once and compares every value."""
        tensor = self.contribution(case)
        self.run(case, tensor)
        expected = pattern.total(self.world, case.count, tensor.dtype, self.device)
        if self._torch.equal(tensor, expected):
            return None
        wrong = (tensor != expected).nonzero().flatten()
        index = int(wrong[0])
        return Mismatch(
            self.rank,
            str(case),
            index,
            float(expected[index]),
            float(tensor[index]),
            int(wrong.numel()),
        )

    def wrong_contributors(self, case: Case, start: int, count: int) -> list[int]:
        """Which ranks put wrong values into places start..start+count, as seen from here."""
        mine = self.contribution(case)[start : start + count].contiguous()
        pieces = [self._torch.empty_like(mine) for _ in range(self.world)]
        self._context.step(f"gather {case}", waiting=True)
        self._dist.all_gather(pieces, mine)
        self.synchronize()
        self._context.step(f"gather {case} done")
        found = []
        for rank, piece in enumerate(pieces):
            right = pattern.contribution(rank, self.world, start + count, mine.dtype, self.device)[
                start:
            ]
            if not self._torch.equal(piece, right):
                found.append(rank)
        return found

    def barrier(self) -> None:
        self._context.step("barrier", waiting=True)
        self._dist.barrier()
        self.synchronize()
        self._context.step("barrier done")

    def largest(self, value: float) -> float:
        """The largest of all ranks' values, on every rank."""
        tensor = self._torch.tensor([value], dtype=self._torch.float32, device=self.device)
        self._context.step("agree", waiting=True)
        self._dist.all_reduce(tensor, op=self._dist.ReduceOp.MAX)
        self.synchronize()
        self._context.step("agreed")
        return float(tensor[0])


def as_payload(mismatch: Mismatch | None) -> dict[str, Any] | None:
    return None if mismatch is None else asdict(mismatch)


def interface_towards(master: tuple[str, int] | None) -> str | None:
    """The interface from which packets to the master leave; None where that can't be told."""
    if master is None:
        return None
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((master[0], master[1] or 9))  # sends nothing
            address = probe.getsockname()[0]
            for _, name in socket.if_nameindex():
                request = struct.pack("256s", name.encode()[:15])
                try:
                    answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
                except OSError:
                    continue  # an interface without an IPv4 address
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    except OSError:
        return None
    return None
