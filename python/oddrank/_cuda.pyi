"""What `_cuda` exports. Kept by hand, compared with the module by a test."""

from typing import Any

build_info: dict[str, str]

# cuda
def set_rank(rank: int) -> None: ...
def driver_version() -> tuple[int, int] | None: ...
def runtime_version() -> tuple[int, int]: ...
def device_count() -> int: ...
def devices() -> list[dict[str, Any]]: ...

# bench
def load_nccl(wheel: str = "") -> dict[str, Any]: ...
def nccl_unique_id() -> bytes: ...

class Communicator:
    def __init__(
        self,
        unique_id: bytes,
        rank: int,
        world: int,
        *,
        device: int = -1,
        seconds: float = 60.0,
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

def gpu_fill(
    device: int,
    address: int,
    dtype: str,
    op: str,
    source: int,
    world: int,
    first: int,
    count: int,
    turn: int,
    *,
    seconds: float = 60.0,
) -> None: ...
def gpu_check(
    device: int,
    address: int,
    dtype: str,
    op: str,
    source: int,
    world: int,
    first: int,
    count: int,
    turn: int,
    *,
    seconds: float = 60.0,
) -> tuple[int, int, float, float]: ...

# selftest
def verify_memory(
    device: int, bytes: int, seed: int, *, seconds: float = 30.0, damage: int | None = None
) -> dict[str, Any]: ...
def time_copies(device: int, bytes: int, repeats: int, *, seconds: float = 30.0) -> list[float]: ...
