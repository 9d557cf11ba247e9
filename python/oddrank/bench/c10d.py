"""torch.distributed as a back end: gloo on the CPU, nccl on GPUs."""

from array import array
from copy import copy
from itertools import cycle, islice, pairwise
from typing import TYPE_CHECKING, Any

from oddrank import _native
from oddrank.bench.backend import stamped
from oddrank.bench.c10d_calls import ROWS, At, Call
from oddrank.bench.case import DTYPES, Case
from oddrank.bench.collectives import COLLECTIVES
from oddrank.bench.windows import buffers, footprint, offsets

if TYPE_CHECKING:
    from oddrank.bench.group import Group

# gloo has them as bytes only, which is what it sends and receives.
_NOT_IN_GLOO = ("float8_e4m3fn", "float8_e5m2")
_BYTES_WISE = ("sendrecv", "barrier")


class C10d:
    """A Backend on the group of all ranks, or of some."""

    def __init__(self, group: "Group") -> None:
        self._group = group
        self.name = f"c10d:{group.backend}"
        self.device = -1 if group.device.type == "cpu" else int(group.device.index)
        self._memory = group.torch.empty(0, dtype=group.torch.uint8)

    def reserve(self, size: int) -> None:
        group = self._group
        # Free first: two generations at once may not fit.
        self._memory = None
        if group.device.type == "cuda":
            group.torch.cuda.empty_cache()  # else torch keeps it from other back ends
        self._memory = group.torch.empty(size, dtype=group.torch.uint8, device=group.device)

    def among(self, group: "Group") -> "C10d":
        """The same for ranks of that group alone, on the memory that is reserved here."""
        part = copy(self)
        part._group = group
        return part

    def refuses(self, case: Case) -> str | None:
        if case.in_place not in ROWS[case.collective].places:
            place = "in place" if case.in_place else "out of place"
            return f"torch.distributed has no {case.collective} {place}"
        if self._group.backend == "gloo":
            return _gloo_refuses(case)
        return self._nccl_refuses(case)

    def _nccl_refuses(self, case: Case) -> str | None:
        """What the back end over NCCL itself says, of the NCCL that torch has loaded."""
        cuda = self._group.torch.cuda
        major, minor, patch = cuda.nccl.version()[:3]
        capability = cuda.get_device_capability(self.device)
        refusal: str = _native.cuda().nccl_refusal(
            case.collective, case.dtype, case.op,
            world=self._group.world, in_place=case.in_place,
            version=10000 * major + 100 * minor + patch,
            compute_capability=10 * capability[0] + capability[1],
        )  # fmt: skip
        return refusal or None

    def prepare(self, case: Case) -> "_Operation":
        return _Operation(self._group, case, self._memory)


def _gloo_refuses(case: Case) -> str | None:
    if case.dtype in _NOT_IN_GLOO and case.collective not in _BYTES_WISE:
        return f"gloo has no {case.dtype}"
    if case.op == "avg" and not case.dtype.startswith(("float", "bfloat")):
        return f"gloo has no avg of {case.dtype}"
    return None


class _Operation:
    """An Operation: one prepared call a window."""

    def __init__(self, group: "Group", case: Case, memory: Any) -> None:
        layout = COLLECTIVES[case.collective].layout(case, group.rank, group.world)
        size, dtype = DTYPES[case.dtype], getattr(group.torch, case.dtype)
        self._group, self._case = group, case
        self._windows = []
        calls: list[Call] = []
        whole = max(layout.send_count, layout.recv_count) * size
        capacity, behind = buffers(memory.numel(), case.in_place)
        send_at, recv_at = (layout.send_at, layout.recv_at) if case.in_place else (0, 0)

        def view(begin: int, count: int) -> Any:
            return memory[begin : begin + count * size].view(dtype)

        for offset in offsets(whole, capacity):
            ours = view(offset + send_at * size, layout.send_count)
            got = view(offset + behind + recv_at * size, layout.recv_count)
            self._windows.append((ours, got))
            make = ROWS[case.collective].make
            at = At(case, ours, got, group.rank, group.ranks, group.handle)
            calls.append(make(group.dist, at))
        self.calls = tuple(calls)  # one a window
        self._in_turn = cycle(calls)
        ours, got = self._windows[0]
        self.send, self.recv = ours.data_ptr(), got.data_ptr()
        self.footprint = footprint(whole, len(calls), case.in_place)

    def sent(self) -> Any:
        return self._windows[0][0]

    def once(self) -> None:
        self.calls[0]()
        self._group.synchronize()

    def ready(self) -> None:
        """Zeros where results are reduced again and again, else the checked window's values."""
        first, _ = self._windows[0]
        grows = self._case.in_place and COLLECTIVES[self._case.collective].reduces
        for ours, got in self._windows:
            if grows:
                ours.zero_()
            elif ours is not first:
                ours.copy_(first)
                if not self._case.in_place:
                    got.zero_()  # its pages are there before the clock runs
        self._group.synchronize()

    def block(self, laps: Any, n: int) -> list[float]:
        return self._on_gpu(laps, n) if self._group.device.type == "cuda" else self._on_cpu(laps, n)

    def _on_cpu(self, laps: Any, n: int) -> list[float]:
        """The hot loop of the CPU: two stamps around the call, nothing else."""
        enter, leave = laps.enter, laps.leave
        for call in islice(self._in_turn, n):
            enter()
            call()
            leave()
        return [ns / 1e3 for ns in array("q", laps.durations())]

    def _on_gpu(self, laps: Any, n: int) -> list[float]:
        """Times between the events that part one run from the next, all of them queued."""
        cuda = self._group.torch.cuda
        events = [cuda.Event(enable_timing=True) for _ in range(n + 1)]
        laps.enter()
        events[0].record()
        for call, event in zip(islice(self._in_turn, n), events[1:], strict=True):
            call()
            event.record()
        self._group.synchronize()
        laps.leave()
        for call in islice(self._in_turn, stamped(n)):
            laps.enter()
            call()
            self._group.synchronize()
            laps.leave()
        return [before.elapsed_time(after) * 1e3 for before, after in pairwise(events)]
