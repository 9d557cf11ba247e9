"""What a rank finds out about its device by itself: a module for hosts and one for GPUs, alike."""

from types import ModuleType

from oddrank.bench.place import GPU
from oddrank.selftest.probes import gpu, host

# Scope -> the module with
#   kind(launch) -> str: equal for ranks whose figures may be compared;
#   facts(launch) -> dict[str, str]: what may explain a slow one, told where peers have another;
#   A_TURN: repeats that a rank makes before others of its host have their turn;
#   speed(launch, repeats) -> dict[str, list[float]]: each wanted metric that can be measured here,
#       by name; repeats: metric -> how many;
#   fingerprint(launch, seconds) -> dict: see prints.summary.


def of(device: str) -> dict[str, ModuleType]:
    """Scope -> its probes, for ranks that are tested on `device`."""
    return {"host": host, "gpu": gpu} if device == GPU else {"host": host}
