"""Measures how fast data of collectives is filled and checked, against a copy of the same memory.

One thread each. The copy (torch's) reads and writes each byte once; its rate counts both.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from oddrank import _native

BYTES = 256 << 20
DTYPES = {"float32": 4, "bfloat16": 2, "float8_e5m2": 1, "float64": 8, "int8": 1}
# avg over 3 ranks has a tolerance: the only check that is no memcmp.
CASES = [(dtype, "sum", 1) for dtype in DTYPES] + [("float32", "none", 8), ("float32", "avg", 3)]


def rate(work: Callable[[], object], bytes_: int) -> float:
    """Returns the GB/s of one call."""
    start = time.perf_counter()
    work()
    return bytes_ / (time.perf_counter() - start) / 1e9


def main() -> None:
    arguments = harness.parser(__doc__ or "").parse_args()
    torch.set_num_threads(1)
    core = _native.core()
    data = torch.zeros(BYTES, dtype=torch.uint8)
    other = torch.zeros(BYTES, dtype=torch.uint8)
    rows = []
    for dtype, op, world in CASES:
        segment = (data.data_ptr(), dtype, op, 0, world, 0, BYTES // DTYPES[dtype], 0)
        sides = {
            "fill": partial(rate, partial(core.bench_fill, *segment), BYTES),
            "check": partial(rate, partial(core.bench_check, *segment), BYTES),
            "copy": partial(rate, partial(other.copy_, data), 2 * BYTES),
        }
        core.bench_fill(*segment)
        wrong = core.bench_check(*segment)[0]
        if op == "avg":  # one rank's contribution is not the average: makes the average
            _make_right(data, dtype, op, world)
            wrong = core.bench_check(*segment)[0]
            del sides["fill"]
        if wrong:
            sys.exit(f"verify_speed: {dtype} {op}: {wrong} wrong elements")
        figures = harness.paired(sides, arguments.repetitions)
        row = {"case": f"{dtype} {op}, {world} ranks"}
        row |= {f"{name} GB/s": harness.spread(values) for name, values in figures.items()}
        rows.append(row | {"check / copy": harness.ratio(figures["check"], figures["copy"])})
    harness.report("bench_verify_speed", rows, arguments.json)


def _make_right(data: torch.Tensor, dtype: str, op: str, world: int) -> None:
    kind = getattr(torch, dtype)
    total = torch.zeros(BYTES // DTYPES[dtype], dtype=kind)
    for rank in range(world):
        _native.core().bench_fill(data.data_ptr(), dtype, op, rank, world, 0, total.numel(), 0)
        total += data.view(kind)
    data.copy_((total / world).view(torch.uint8))


if __name__ == "__main__":
    main()
