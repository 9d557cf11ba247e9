"""The collectives, one row each: how busbw follows from algbw.

Definitions: nccl-tests, doc/PERFORMANCE.md.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Collective:
    """`bytes` of a case is the buffer of one rank; busbw = algbw * bus_factor(n)."""

    name: str
    bus_factor: Callable[[int], float]


COLLECTIVES = {
    row.name: row for row in (Collective("all_reduce", bus_factor=lambda n: 2 * (n - 1) / n),)
}
