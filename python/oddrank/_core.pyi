"""What _core exports, one section per subject."""

from typing import Any

build_info: dict[str, str]

# selftest

def verify_host_memory(bytes: int, seed: int, *, damage: int | None = None) -> dict[str, Any]: ...
