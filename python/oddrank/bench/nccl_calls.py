"""The collectives as calls of NCCL: those of one rank, and the cases that NCCL can't run."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

from oddrank.bench.case import NO_OP, Case
from oddrank.bench.collectives import COLLECTIVES, ROOT, split_counts

# ncclDataType_t and ncclRedOp_t, which NCCL never changes.
TYPES = {
    "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6,
    "float32": 7, "float64": 8, "bfloat16": 9, "float8_e4m3fn": 10, "float8_e5m2": 11,
}  # fmt: skip
OPS = {NO_OP: 0, "sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}

# Collective -> NCCL's function; those that are absent are always groups.
_FUNCTIONS = {
    "all_reduce": "AllReduce", "all_gather": "AllGather", "reduce_scatter": "ReduceScatter",
    "broadcast": "Broadcast", "reduce": "Reduce", "gather": "Gather", "scatter": "Scatter",
    "all_to_all": "AlltoAll", "barrier": "AllReduce",
}  # fmt: skip
_ROOTED = ("broadcast", "reduce", "gather", "scatter")
_OLDEST_WITH_FLOAT8 = 22403
# NCCL's reduction on one rank cuts the elements into segments by a division that rounds down: some
# at the end may be in none of them.
_OLDEST_SHORT_AVERAGE, _OLDEST_WHOLE_AVERAGE = 21900, 22907

# A function, where it sends from and where it receives in their windows, how many elements, and the
# root or the other side; -1: none.
Call: TypeAlias = tuple[str, int, int, int, int]


@dataclass(frozen=True)
class Plan:
    """The calls of one run; several are one group. send_count, recv_count: elements of the windows,
    which are equal on all ranks: registered buffers need that."""

    calls: Sequence[Call]
    send_count: int
    recv_count: int

    def __str__(self) -> str:
        alone = len(self.calls) == 1 and self.calls[0][0] not in ("Send", "Recv")
        return f"nccl{self.calls[0][0]}" if alone else "grouped ncclSend and ncclRecv"


def plan_of(case: Case, rank: int, world: int, missing: Collection[str]) -> Plan:
    """Returns one rank's calls. missing: functions that the library lacks: "ncclGather"."""
    if not case.count:  # NCCL has no barrier of its own
        return Plan([("AllReduce", 0, 0, 1, -1)], 1, 1)
    row = COLLECTIVES[case.collective]
    windows, part = row.layout(case, ROOT, world), case.count // row.shares(world)
    function = _FUNCTIONS.get(case.collective)
    if function and f"nccl{function}" not in missing:
        calls = [(function, 0, 0, part, ROOT if case.collective in _ROOTED else -1)]
    else:
        calls = _GROUPS[case.collective](case, rank, world)
    return Plan(calls, windows.send_count, windows.recv_count)


def _gather(case: Case, rank: int, world: int) -> list[Call]:
    part = case.count // world
    sources = range(world) if rank == ROOT else ()
    return [("Send", 0, 0, part, ROOT), *(("Recv", 0, i * part, part, i) for i in sources)]


def _scatter(case: Case, rank: int, world: int) -> list[Call]:
    part = case.count // world
    targets = range(world) if rank == ROOT else ()
    return [*(("Send", i * part, 0, part, i) for i in targets), ("Recv", 0, 0, part, ROOT)]


def _all_to_all(case: Case, rank: int, world: int) -> list[Call]:
    parts = [case.count // world] * world
    return _with_all(parts, parts)


def _all_to_all_v(case: Case, rank: int, world: int) -> list[Call]:
    return _with_all(*split_counts(case, rank, world))


def _with_all(sent: Sequence[int], received: Sequence[int]) -> list[Call]:
    """Returns the calls that send so many elements to each rank, and receive so many from it."""
    ends = (accumulate(counts, initial=0) for counts in (sent, received))
    calls: list[Call] = []
    for peer, (out, into, send_at, recv_at) in enumerate(zip(sent, received, *ends, strict=False)):
        calls += [("Send", send_at, 0, out, peer), ("Recv", 0, recv_at, into, peer)]
    return calls


def _ring(case: Case, rank: int, world: int) -> list[Call]:
    after, before = (rank + 1) % world, (rank - 1) % world
    return [("Send", 0, 0, case.count, after), ("Recv", 0, 0, case.count, before)]


# Where the library lacks the function.
_GROUPS: dict[str, Callable[[Case, int, int], list[Call]]] = {
    "gather": _gather, "scatter": _scatter, "all_to_all": _all_to_all,
    "all_to_all_v": _all_to_all_v, "sendrecv": _ring,
}  # fmt: skip


def refusal(case: Case, world: int, version: int, capability: int) -> str | None:
    """Returns why NCCL can't run a case, or None. version: 22809 is 2.28.9; capability: the GPU's,
    90 is 9.0."""
    reduces = case.op != NO_OP
    if case.dtype.startswith("float8"):
        if version < _OLDEST_WITH_FLOAT8:
            return f"NCCL {_dotted(version)} has no {case.dtype}, 2.24 has"
        if reduces and capability < 90:
            return f"NCCL reduces {case.dtype} on GPUs of compute capability 9.0 and newer only"
        # ncclLaunchOneRank() leaves its fp8 cases to device code: invalid argument, up to 2.30.
        if case.op == "avg" and world == 1:
            return f"NCCL has no avg of {case.dtype} on one rank"
        return None
    alone = case.op == "avg" and world == 1 and not case.in_place and "float" in case.dtype
    if not (alone and _OLDEST_SHORT_AVERAGE <= version < _OLDEST_WHOLE_AVERAGE):
        return None
    return (
        f"NCCL {_dotted(version)} leaves out elements of an avg of {case.dtype} on one rank,"
        f" {_dotted(_OLDEST_WHOLE_AVERAGE)} does not"
    )


def _dotted(version: int) -> str:
    return f"{version // 10000}.{version % 10000 // 100}.{version % 100}"
