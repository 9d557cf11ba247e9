"""Measures how fast the value check of collectives fills and checks GPU memory, against a copy.

Times of fill and check are of whole calls, including the transfer of their table to the GPU; times
of the copy are the GPU's own. A copy reads and writes each byte once: its rate counts both.
"""

import statistics
import sys
import time
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from oddrank import OddrankError, _native

BYTES = 8 << 30
DTYPES = {"float32": 4, "bfloat16": 2, "int8": 1, "float64": 8}


def rates(data: torch.Tensor, dtype: str) -> dict[str, float]:
    """Returns the GB/s of a fill, a check and a copy."""
    cuda, bytes_ = _native.cuda(), data.numel()
    segment = (0, dtype, "sum", 1, 0, [(data.data_ptr(), 0, 0, bytes_ // DTYPES[dtype])])
    start = time.perf_counter()
    cuda.gpu_fill(*segment)
    filled = time.perf_counter()
    ((wrong, *_),) = cuda.gpu_check(*segment)
    checked = time.perf_counter()
    if wrong:
        raise OddrankError(f"{wrong} elements of {dtype} are not what was written")
    copy = statistics.median(cuda.time_copies(0, 1 << 30, 3))
    return {
        "fill": bytes_ / (filled - start) / 1e9,
        "check": bytes_ / (checked - filled) / 1e9,
        "copy": (2 << 30) / copy / 1e9,
    }


def main() -> None:
    options = harness.parser(__doc__ or "").parse_args()
    if not torch.cuda.is_available():
        raise OddrankError("this benchmark needs a GPU, and torch sees none")
    bytes_ = min(BYTES, torch.cuda.mem_get_info()[0] // 4 // 4096 * 4096)
    data = torch.zeros(bytes_, dtype=torch.uint8, device="cuda:0")
    torch.cuda.synchronize()
    rows = []
    for dtype in DTYPES:
        found = harness.rates(partial(rates, data, dtype), options.repetitions, "check")
        rows.append({"dtype": dtype, "GiB": bytes_ / 2**30, **found})
    harness.report("gpu/verify_speed", rows, options.json, cuda=_native.cuda().build_info)


if __name__ == "__main__":
    harness.end(main, "verify_speed")
