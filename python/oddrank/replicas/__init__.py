"""Compares the copies that several ranks hold of the same tensors, bit by bit.

oddrank.replicas.check(model, optimizer)             # compares now, returns a report
oddrank.replicas.watch(model, optimizer, every=100)  # compares after every 100th step
oddrank.replicas.watch_nonfinite(model, optimizer)   # finds which rank made the first NaN
"""

from oddrank.replicas.check import check
from oddrank.replicas.nonfinite import NonfiniteError, NonfiniteWatch, watch_nonfinite
from oddrank.replicas.watch import ReplicasDifferError, Watch, watch

__all__ = [
    "NonfiniteError", "NonfiniteWatch", "ReplicasDifferError", "Watch", "check", "watch",
    "watch_nonfinite",
]  # fmt: skip
