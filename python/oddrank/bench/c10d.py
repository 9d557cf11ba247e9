"""torch.distributed as a back end: gloo on the CPU, nccl on GPUs.

`_ISSUERS` has one row for each collective. It makes a function without arguments that runs the
collective. With gloo it returns when the collective is done, with nccl when it is queued on the
stream.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice, pairwise
from typing import Any

from oddrank.bench.backend import Block, Noise, buffers, offsets, one_by_one, queued
from oddrank.bench.case import COLLECTIVES, DTYPES, ROOT, Case, split_counts
from oddrank.bench.native import refusal
from oddrank.process_group import Group

Call = Callable[[], Any]


@dataclass(frozen=True)
class At:
    """A case on one rank, in one window: the tensors that it sends and receives.

    ranks: the members' ranks in the job; rank: this one's index among them; handle: torch's
    group of them, None: all ranks.
    """

    case: Case
    send: Any
    recv: Any
    rank: int
    ranks: Sequence[int]
    handle: Any = None

    @property
    def world(self) -> int:
        return len(self.ranks)

    @property
    def root(self) -> int:
        """The root's rank in the job, as torch takes it."""
        return self.ranks[ROOT]


def all_gather(dist: Any) -> Any:
    """Returns torch's all_gather of (received, sent): 2.13 renamed it and warns of the old name."""
    return getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


def _reduce_scatter(dist: Any) -> Any:
    return getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def _pieces(data: Any, at: At) -> list[Any] | None:
    """Returns the part of each rank on the root, None elsewhere."""
    return list(data.chunk(at.world)) if at.rank == ROOT else None


def _all_to_all_v(dist: Any, at: At) -> Call:
    sends, receives = split_counts(at.case, at.rank, at.world)
    return partial(dist.all_to_all_single, at.recv, at.send, receives, sends, at.handle)


def _ring(dist: Any, at: At) -> Call:
    if at.world == 1:  # a rank can't send to itself
        return partial(at.recv.copy_, at.send)
    after, before = at.ranks[(at.rank + 1) % at.world], at.ranks[at.rank - 1]
    ends = [
        dist.P2POp(dist.isend, at.send, after, at.handle),
        dist.P2POp(dist.irecv, at.recv, before, at.handle),
    ]

    def run() -> None:
        for work in dist.batch_isend_irecv(ends):
            work.wait()

    return run


def _barrier(dist: Any, at: At) -> Call:
    # Without a device, a group with two back ends uses the CPU's.
    device = at.recv.device
    ids = [device.index] if device.type == "cuda" else None
    return partial(dist.barrier, at.handle, device_ids=ids)


def _op(dist: Any, case: Case) -> Any:
    names = {"sum": "SUM", "min": "MIN", "max": "MAX", "avg": "AVG", "prod": "PRODUCT"}
    return getattr(dist.ReduceOp, names[case.op])


# Collective -> makes the call of torch.distributed for a case.
_ISSUERS: dict[str, Callable[[Any, At], Call]] = {
    "all_reduce": lambda d, at: partial(d.all_reduce, at.recv, _op(d, at.case), at.handle),
    "all_gather": lambda d, at: partial(all_gather(d), at.recv, at.send, at.handle),
    "reduce_scatter": lambda d, at: partial(
        _reduce_scatter(d), at.recv, at.send, _op(d, at.case), at.handle
    ),
    "broadcast": lambda d, at: partial(d.broadcast, at.recv, at.root, at.handle),
    "reduce": lambda d, at: partial(d.reduce, at.recv, at.root, _op(d, at.case), at.handle),
    "gather": lambda d, at: partial(d.gather, at.send, _pieces(at.recv, at), at.root, at.handle),
    "scatter": lambda d, at: partial(d.scatter, at.recv, _pieces(at.send, at), at.root, at.handle),
    "all_to_all": lambda d, at: partial(d.all_to_all_single, at.recv, at.send, group=at.handle),
    "all_to_all_v": _all_to_all_v,
    "sendrecv": _ring,
    "barrier": _barrier,
}
# gloo can't reduce these; it only moves their bytes.
_NOT_IN_GLOO = ("float8_e4m3fn", "float8_e5m2", "uint32", "uint64")
# NCCL has them; torch's table of NCCL's dtypes does not, or only in the newest torch.
_NOT_IN_TORCH_NCCL = ("uint32", "uint64")
_BYTES_WISE = ("sendrecv", "barrier")


class C10d:
    """A Backend on the group of all ranks, or on a part of it."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.name = f"c10d:{group.backend}"
        self.device = -1 if group.device.type == "cpu" else int(group.device.index)
        self._memory = group.torch.empty(0, dtype=group.torch.uint8)

    def reserve(self, size: int) -> None:
        group = self._group
        self._memory = None  # free first: two generations at once may not fit
        if group.device.type == "cuda":
            group.torch.cuda.empty_cache()  # else torch keeps it from other back ends
        self._memory = group.torch.empty(size, dtype=group.torch.uint8, device=group.device)

    def among(self, group: Group) -> "C10d":
        """Returns a copy for `group`, on the memory reserved here."""
        part = copy(self)
        part._group = group
        return part

    def refuses(self, case: Case) -> str | None:
        if self._group.backend == "gloo":
            if case.dtype in _NOT_IN_GLOO and case.collective not in _BYTES_WISE:
                return f"gloo has no {case.dtype}"
            whole = not case.dtype.startswith(("float", "bfloat"))
            return f"gloo has no avg of {case.dtype}" if case.op == "avg" and whole else None
        if case.dtype in _NOT_IN_TORCH_NCCL:
            return f"torch.distributed over nccl has no {case.dtype}"
        cuda = self._group.torch.cuda
        major, minor, patch = cuda.nccl.version()[:3]
        capability = cuda.get_device_capability(self.device)
        version = 10000 * major + 100 * minor + patch
        return refusal(case, self._group.world, version, 10 * capability[0] + capability[1])

    def prepare(self, case: Case) -> "_Operation":
        return _Operation(self._group, case, self._memory)


class _Operation:
    """An Operation: one prepared call a window."""

    def __init__(self, group: Group, case: Case, memory: Any) -> None:
        layout = COLLECTIVES[case.collective].layout(case, group.rank, group.world)
        size, dtype = DTYPES[case.dtype], getattr(group.torch, case.dtype)
        self._group, self._case = group, case
        self._windows = []
        calls: list[Call] = []
        whole = max(layout.send_count, layout.recv_count) * size
        capacity, behind = buffers(memory.numel(), case.in_place)
        places = offsets(whole, capacity)

        def view(begin: int, count: int) -> Any:
            return memory[begin : begin + count * size].view(dtype)

        for offset in places:
            ours = view(offset, layout.send_count)
            got = view(offset + behind, layout.recv_count)
            self._windows.append((ours, got))
            at = At(case, ours, got, group.rank, group.ranks, group.handle)
            calls.append(_ISSUERS[case.collective](group.dist, at))
        self.calls = tuple(calls)  # one a window
        self._in_turn = cycle(calls)
        ours, got = self._windows[0]
        self.send, self.recv = ours.data_ptr(), got.data_ptr()
        device = -1 if group.device.type == "cpu" else int(group.device.index)
        begin, sent = memory.data_ptr(), whole if case.in_place else layout.send_count * size
        windows = [(begin + place, sent) for place in places]
        self._noise = Noise(device, case, group.world, windows)

    def sent(self) -> Any:
        return self._windows[0][0]

    def once(self) -> None:
        self.calls[0]()
        self._group.synchronize()

    def ready(self) -> None:
        self._noise.write()
        if not self._case.in_place:
            for _, got in self._windows:
                got.zero_()  # touches its pages before the clock runs
        self._group.synchronize()

    def block(self, n: int) -> Block:
        if self._group.device.type == "cuda":
            return queued(self._noise, n, 1, self._queued)
        calls = (call for part in self._noise.parts(n) for call in self._next(part))
        return one_by_one(self._group.context.timestamps(n), calls)

    def _next(self, n: int) -> Iterator[Call]:
        return islice(self._in_turn, n)

    def _queued(self, n: int, each: bool) -> tuple[float, list[float]]:
        """Returns the microseconds of `n` runs and, if wanted, of each run.
        A run before the first event keeps the GPU busy while the host queues the others."""
        marks = n if each else 1
        events = [self._group.torch.cuda.Event(enable_timing=True) for _ in range(marks + 1)]
        first, *calls = self._next(n + 1)
        first()
        events[0].record()
        for number, call in enumerate(calls, 1):
            call()
            if each or number == n:
                events[number if each else 1].record()
        self._group.synchronize()
        samples = [a.elapsed_time(b) * 1e3 for a, b in pairwise(events)] if each else []
        return events[0].elapsed_time(events[-1]) * 1e3, samples
