"""How torch.distributed issues each collective: one row each, asked for a case and a window.

A row gives a function without arguments that runs the collective and returns when the back end
says that it is done (gloo: when it is; nccl: when it is queued on the stream).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from oddrank.bench.case import Case
from oddrank.bench.collectives import ROOT, parts_of

Call = Callable[[], Any]
OUT, IN = False, True


@dataclass(frozen=True)
class At:
    """A case on one rank, in one window: what it sends and where it receives, as tensors.

    rank: this one's place among `ranks`, which are the job's; handle: torch's for them, None: all.
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
        """As the job numbers it, which torch asks for."""
        return self.ranks[ROOT]


@dataclass(frozen=True)
class Row:
    """`make(torch.distributed, at)`; places: out of place, in place, or both."""

    make: Callable[[Any, At], Call]
    places: tuple[bool, ...]


def _all_reduce(dist: Any, at: At) -> Call:
    return partial(dist.all_reduce, at.recv, _op(dist, at.case), at.handle)


def _all_gather(dist: Any, at: At) -> Call:
    return partial(all_gather(dist), at.recv, at.send, at.handle)


def _reduce_scatter(dist: Any, at: At) -> Call:
    call = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    return partial(call, at.recv, at.send, _op(dist, at.case), at.handle)


def _broadcast(dist: Any, at: At) -> Call:
    return partial(dist.broadcast, at.recv, at.root, at.handle)


def _reduce(dist: Any, at: At) -> Call:
    return partial(dist.reduce, at.recv, at.root, _op(dist, at.case), at.handle)


def _gather(dist: Any, at: At) -> Call:
    pieces = list(at.recv.chunk(at.world)) if at.rank == ROOT else None
    return partial(dist.gather, at.send, pieces, at.root, at.handle)


def _scatter(dist: Any, at: At) -> Call:
    pieces = list(at.send.chunk(at.world)) if at.rank == ROOT else None
    return partial(dist.scatter, at.recv, pieces, at.root, at.handle)


def _all_to_all(dist: Any, at: At) -> Call:
    return partial(dist.all_to_all_single, at.recv, at.send, group=at.handle)


def _all_to_all_v(dist: Any, at: At) -> Call:
    unit = at.case.count // (at.world * (at.world + 1) // 2)
    sends = [part * unit for part in parts_of(at.rank, at.world)]
    receives = [(1 + (at.rank - source) % at.world) * unit for source in range(at.world)]
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
    # Without its device a group with two back ends takes the CPU's.
    device = at.recv.device
    ids = [device.index] if device.type == "cuda" else None
    return partial(dist.barrier, at.handle, device_ids=ids)


def all_gather(dist: Any) -> Any:
    """`(received, sent)`: torch 2.13 has given it another name, and warns of the old one."""
    return getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


def _op(dist: Any, case: Case) -> Any:
    names = {"sum": "SUM", "min": "MIN", "max": "MAX", "avg": "AVG", "prod": "PRODUCT"}
    return getattr(dist.ReduceOp, names[case.op])


ROWS = {
    "all_reduce": Row(_all_reduce, (IN,)),
    "all_gather": Row(_all_gather, (OUT, IN)),
    "reduce_scatter": Row(_reduce_scatter, (OUT, IN)),
    "broadcast": Row(_broadcast, (IN,)),
    "reduce": Row(_reduce, (IN,)),
    "gather": Row(_gather, (OUT,)),
    "scatter": Row(_scatter, (OUT,)),
    "all_to_all": Row(_all_to_all, (OUT,)),
    "all_to_all_v": Row(_all_to_all_v, (OUT,)),
    "sendrecv": Row(_ring, (OUT,)),
    "barrier": Row(_barrier, (IN,)),
}
