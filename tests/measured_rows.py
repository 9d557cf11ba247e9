"""Rows and results of a sweep, and topologies, for tests of expectations and rows."""

from dataclasses import dataclass
from statistics import fmean

from oddrank.bench.case import Case
from oddrank.bench.expected import expected, held, judged_from
from oddrank.bench.findings import nothing_published
from oddrank.bench.topology import Facts

GIB = 1 << 30
H200 = Facts("NVIDIA H200", 8, 1, nccl="2.29.7", nvls=True)
A100 = Facts("NVIDIA A100-SXM4-80GB", 8, 1)


@dataclass
class Measured:
    bytes: int = 8 * GIB
    busbw_GBps: float | None = 473.0
    collective: str = "all_reduce"
    dtype: str = "float32"
    op: str = "sum"
    in_place: bool = True
    n: int = 8
    check: str = "ok"


def said_of_nothing(facts, rows):
    """Returns the sentence of --fail-below if none of these rows may be judged."""
    due = [expected(facts, row) for row in rows]
    assert held(rows, due) == []
    sizes = [judged_from(facts, Case(row.collective, row.dtype, row.bytes)) for row in rows]
    return nothing_published(rows, due, sizes, 0.9, "8 ranks over nccl")


def result(*passes, **changes):
    """Returns a rank's result of a case. passes: times of single iterations."""
    times = [time for one_pass in passes for time in one_pass]
    return {
        "backend": "c10d:gloo", "times": [list(one_pass) for one_pass in passes], "mismatch": None,
        "mean": fmean(times) if times else None, "iterations": len(times), "skipped": None,
        **changes,
    }  # fmt: skip
