"""NCCL itself as a back end: a communicator of its own, CUDA events, no torch in between.

`block` queues its runs and times them between events on the GPU: a wait after each would show as
latency. `plan_of` and `refusal` have the collectives as calls of NCCL.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeAlias

from oddrank import _native
from oddrank.bench.backend import Block, Noise, buffers, offsets, queued
from oddrank.bench.case import COLLECTIVES, DTYPES, NO_OP, ROOT, Case, split_counts
from oddrank.process_group import Group

_UNIQUE_ID_BYTES = 128
_LEAST_BYTES = 1024  # a sweep of barriers alone reserves no memory


def connect(group: Group, *, register: str = "") -> "Native":
    """Makes the back end; all ranks call it together. The id travels over the group."""
    _native.load_nccl()
    cuda = _native.cuda()
    mine = cuda.nccl_unique_id() if group.rank == 0 else bytes(_UNIQUE_ID_BYTES)
    unique_id = bytes(group.said_by(0, list(mine)))
    context = group.context
    context.step("connect nccl", waiting=True)
    device = int(group.device.index)
    made = Native(
        unique_id, group.rank, group.world, device,
        seconds=context.seconds, register=register,
    )  # fmt: skip
    context.step("connected nccl")
    return made


class Native:
    """A Backend. seconds: deadline of every wait.

    register: "buffer" or "window" registers the memory with the communicator; "": no. OddrankError
    if NCCL is missing or can't.
    """

    name = "nccl"

    def __init__(
        self, unique_id: bytes, rank: int, world: int, device: int, *, seconds: float = 60.0,
        register: str = "",
    ) -> None:  # fmt: skip
        self.nccl = _native.load_nccl()
        cuda = _native.cuda()
        self.rank, self.world, self.device = rank, world, device
        self.seconds, self.register = seconds, register
        major, minor = cuda.devices()[device]["compute_capability"]
        self._capability = 10 * major + minor
        self._communicator = cuda.Communicator(
            unique_id, rank, world, device=device, seconds=seconds
        )
        self._memory: Any = None

    def reserve(self, size: int) -> None:
        """Reserves zeroed memory for all cases to come; 0: none. Ends operations on the old one."""
        if self._memory is not None:
            self._memory.close()  # first: two generations at once may not fit
            self._memory = None
        if size:
            self._memory = _native.cuda().Memory(
                self._communicator, max(size, _LEAST_BYTES),
                register=self.register, seconds=self.seconds,
            )  # fmt: skip

    def refuses(self, case: Case) -> str | None:
        return refusal(case, self.world, self.nccl["version"], self._capability)

    def prepare(self, case: Case) -> "NativeOperation":
        if self._memory is None:
            self.reserve(_LEAST_BYTES)
        return NativeOperation(self, self._communicator, self._memory, case)

    def link(self, peer: int, sent: int, received: int) -> Any:
        """Returns a _cuda Operation that sends bytes to one rank and receives bytes from it.
        The peer must mirror its runs. One of `sent` and `received` may be 0."""
        calls = [("Send", 0, 0, sent, peer)] * bool(sent)
        calls += [("Recv", 0, 0, received, peer)] * bool(received)
        _, behind = buffers(self._memory.bytes, in_place=False)
        return _native.cuda().Operation(
            self._communicator, self._memory, f"ncclSend and ncclRecv with rank {peer}", calls,
            TYPES["int8"], OPS[NO_OP],
            send_bytes=sent, recv_bytes=received, recv_from=behind,
        )  # fmt: skip

    def close(self) -> None:
        """Ends the communicator; all ranks call it together. No operation may exist any more."""
        self.reserve(0)
        self._communicator.close(seconds=min(10.0, self.seconds))


class NativeOperation:
    def __init__(self, native: Native, communicator: Any, memory: Any, case: Case) -> None:
        self._seconds = native.seconds
        plan = plan_of(case, native.rank, native.world, native.nccl["missing"])
        element = DTYPES[case.dtype]
        sent, received = plan.send_count * element, plan.recv_count * element
        capacity, behind = buffers(memory.bytes, case.in_place)
        places = offsets(max(sent, received), capacity)
        self._native = _native.cuda().Operation(
            communicator, memory, f"{plan} ({case.collective}, {case.bytes} bytes)", plan.calls,
            TYPES[case.dtype], OPS[case.op], element=element, send_bytes=sent,
            recv_bytes=received, recv_from=behind, stride=places[1] if len(places) > 1 else 0,
            windows=len(places),
        )  # fmt: skip
        self.send: int = self._native.send
        self.recv: int = self._native.recv
        windows = [(memory.data + at, sent) for at in places]
        self._noise = Noise(native.device, case, native.world, windows)

    def once(self) -> None:
        self._native.run(seconds=self._seconds)

    def sent(self) -> None:
        """Returns None: the buffer is no tensor."""

    def ready(self) -> None:
        self._noise.write()

    def block(self, n: int) -> Block:
        # Beside them: the run that connects, and the one that fills the queue.
        return queued(self._noise, n, 2, self._timed)

    def _timed(self, n: int, each: bool) -> tuple[float, list[float]]:
        samples, mean = self._native.block(n, each=each, seconds=self._seconds)
        return mean * n, samples


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
    """The calls of one run; several are one group. send_count, recv_count: the windows' elements.
    They are equal on all ranks, as registered buffers need."""

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
    "sendrecv": _ring,
    "all_to_all_v": lambda case, rank, world: _with_all(*split_counts(case, rank, world)),
}  # fmt: skip


def refusal(case: Case, world: int, version: int, capability: int) -> str | None:
    """Returns why NCCL can't run a case, or None.
    version: 22809 is 2.28.9; capability: the GPU's, 90 is 9.0."""
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
