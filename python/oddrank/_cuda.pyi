"""What `_cuda` exports. Kept by hand, compared with the module by a test."""

from collections.abc import Sequence
from typing import Any

build_info: dict[str, str]

# cuda
def set_rank(rank: int, /) -> None: ...
def driver_version() -> tuple[int, int] | None: ...  # newest CUDA that it knows; None: no driver
def runtime_version() -> tuple[int, int]: ...
def device_count() -> int: ...
def devices() -> list[dict[str, Any]]: ...
def memory_info(device: int, /) -> tuple[int, int]: ...  # (free, total) bytes, of all processes

# bench
def load_nccl(file: str, source: str, /) -> dict[str, Any]:
    """Loads NCCL once per process. source: how the file was found, for messages."""

def nccl_unique_id() -> bytes: ...
def nccl_obstacle() -> str: ...  # why this environment allows no communicator; '': it does
def gpu_fill(
    device: int, dtype: str, op: str, world: int, turn: int,
    places: Sequence[tuple[int, int, int, int]], *, seconds: float = 60.0,
) -> None:  # fmt: skip
    """As bench_fill, for all places (address, source, first, count) in one launch."""

def gpu_check(
    device: int, dtype: str, op: str, world: int, turn: int,
    places: Sequence[tuple[int, int, int, int]], *, seconds: float = 60.0,
) -> list[tuple[int, int, float, float]]:  # fmt: skip
    """As bench_check, for all places in one launch."""

def gpu_noise(
    device: int, address: int, bytes: int, dtype: str, op: str, *, low: bool, seconds: float = 60.0
) -> None: ...

class Memory:
    def __init__(
        self, communicator: Communicator, bytes: int, *, register: str = "", seconds: float = 60.0
    ) -> None: ...
    @property
    def data(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def allocator(self) -> str: ...
    @property
    def registered(self) -> bool: ...
    def close(self) -> None: ...

class Operation:
    def __init__(
        self, communicator: Communicator, memory: Memory, name: str,
        calls: Sequence[tuple[str, int, int, int, int]], dtype: int, op: int, *,
        send_bytes: int, recv_bytes: int, element: int = 1, recv_from: int = 0, stride: int = 0,
        windows: int = 1,
    ) -> None:  # fmt: skip
        """calls: (function, send_at, recv_at, count, peer); elements, from the windows' begins.
        element: its bytes; peer: -1 for none; dtype, op: nccl.h's numbers; recv_from: 0 in place.
        """
    @property
    def send(self) -> int: ...
    @property
    def recv(self) -> int: ...
    def run(self, *, seconds: float = 60.0) -> None: ...
    def block(
        self, n: int, *, each: bool = True, seconds: float = 60.0
    ) -> tuple[list[float], float]:
        """Returns (microseconds of each, mean). each=False: the mean alone."""

class Communicator:
    def __init__(
        self, unique_id: bytes, rank: int, world: int, *, device: int = -1, seconds: float = 60.0
    ) -> None: ...
    @property
    def rank(self) -> int: ...
    @property
    def world(self) -> int: ...
    @property
    def device(self) -> int: ...
    @property
    def direct(self) -> bool: ...
    def close(self, *, seconds: float = 10.0) -> None: ...
    def abort(self) -> None: ...

# replicas
def gpu_digest(device: int, stream: int, tensors: Sequence[tuple[int, int]], rows: int, /) -> None:
    """Writes 16 bytes for each tensor (address, bytes) to device memory `rows`; never waits."""

# selftest
def verify_memory(
    device: int, bytes: int, seed: int, *, seconds: float = 30.0, enough: float = 30.0,
    thorough: bool = False, damage: int | None = None, damage_pass: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """As verify_host_memory; begins no further pass after `enough` seconds."""

def time_copies(device: int, bytes: int, repeats: int, *, seconds: float = 30.0) -> list[float]: ...
def time_device_memory(
    device: int, bytes: int, repeats: int, *, seconds: float = 30.0
) -> dict[str, Any]: ...
def time_transfers(
    device: int, bytes: int, repeats: int, *, seconds: float = 30.0
) -> dict[str, Any]:
    """Returns the seconds of each copy between pinned host memory and the GPU."""

def gpu_fingerprint(
    device: int, enough: float, *, seconds: float = 30.0, spoil: str = ""
) -> dict[str, Any]:
    """seen: (multiprocessor, repeat, unit -> hash), once each, then those that differ."""
