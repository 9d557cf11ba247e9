"""What _core exports, one section per subject."""

from collections.abc import Sequence
from typing import Any

build_info: dict[str, str]

# printing

def printing_open(folders: Sequence[str], timeout_s: float) -> tuple[str, str]: ...
def printing_prefix(prefix: str) -> None: ...
def printflock(
    *args: object,
    sep: str | None = " ",
    end: str | None = "\n",
    file: object = None,
    flush: object = False,
) -> None: ...

# selftest

def verify_host_memory(bytes: int, seed: int, *, damage: int | None = None) -> dict[str, Any]: ...
