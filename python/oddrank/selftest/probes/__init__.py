"""Measures a rank's own device: a module for hosts and one for GPUs, with the same functions."""

from types import ModuleType

from oddrank.machine.device import GPU
from oddrank.selftest.probes import gpu, host

# Scope -> the module with
#   kind(launch) -> str: equal for ranks whose figures may be compared;
#   A_TURN: repeats that a rank makes before others of its host have their turn;
#   speed(launch, repeats) -> dict[str, list[float]]: metric -> figures, for wanted metrics that can
#       be measured here; repeats: metric -> number of repeats;
#   at(number): context manager, around a turn's measurements: chooses the part of the device that
#       they use; ranks that measure at the same time have different numbers;
#   alone(launch, metric) -> str: a part of the host that only one rank at a time may use while it
#       measures the metric; "": none;
#   FINGERPRINTS: name -> prints.Compute.


def of(device: str) -> dict[str, ModuleType]:
    """Returns scope -> its probes, for ranks that are tested on `device`."""
    return {"host": host, "gpu": gpu} if device == GPU else {"host": host}
