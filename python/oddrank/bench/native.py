"""NCCL itself as a back end: a communicator of its own, CUDA events, no torch in between.

`block` queues its runs and times them between events on the GPU: a wait after each would show as
latency.
"""

from typing import Any

from oddrank import _native
from oddrank.bench import nccl_calls
from oddrank.bench.backend import Block, Noise, buffers, offsets, queued
from oddrank.bench.case import DTYPES, NO_OP, Case
from oddrank.bench.nccl_calls import OPS, TYPES
from oddrank.process_group import Group

_UNIQUE_ID_BYTES = 128
# A sweep of barriers alone reserves no memory.
_LEAST_BYTES = 1024


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
        self,
        unique_id: bytes,
        rank: int,
        world: int,
        device: int,
        *,
        seconds: float = 60.0,
        register: str = "",
    ) -> None:
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
        return nccl_calls.refusal(case, self.world, self.nccl["version"], self._capability)

    def prepare(self, case: Case) -> "NativeOperation":
        if self._memory is None:
            self.reserve(_LEAST_BYTES)
        return NativeOperation(self, self._communicator, self._memory, case)

    def link(self, peer: int, sent: int, received: int) -> Any:
        """Returns an operation that sends so many bytes to one rank and receives from it: a _cuda
        Operation, whose runs the peer must mirror. One of both may be 0."""
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
        plan = nccl_calls.plan_of(case, native.rank, native.world, native.nccl["missing"])
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
