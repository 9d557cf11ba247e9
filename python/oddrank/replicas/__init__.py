"""Whether the copies that several ranks hold of the same tensors still have the same bits.

oddrank.replicas.check(model, optimizer)             # compares now, returns a report
oddrank.replicas.watch(model, optimizer, every=100)  # compares after every 100th step
"""

from oddrank.replicas.check import check
from oddrank.replicas.watch import ReplicasDifferError, Watch, watch

__all__ = ["ReplicasDifferError", "Watch", "check", "watch"]
