"""Measures how fast the GPU digests tensors, against a copy: one large tensor, and a thousand.

The GPU takes the times, between two events. A copy reads and writes each byte once: its rate counts
both; a digest reads each byte once.
"""

import statistics
import sys
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from oddrank import OddrankError, _native

BYTES = 1 << 30
RUNS = 1000  # tensors of a model, 1 MiB each at full size
COUNTS = {"one tensor": 1, "many tensors": RUNS}


def rates(data: torch.Tensor, count: int) -> dict[str, float]:
    """Returns the GB/s of digests of `count` equal parts of the data, and of a copy."""
    cuda, each = _native.cuda(), data.numel() // count // 16 * 16
    tensors = [(data.data_ptr() + i * each, each) for i in range(count)]
    rows = torch.zeros((count, 2), dtype=torch.int64, device="cuda:0")
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    cuda.gpu_digest(0, 0, tensors, rows.data_ptr())
    end.record()
    torch.cuda.synchronize()
    copy = statistics.median(cuda.time_copies(0, data.numel(), 3))
    return {
        "digest": each * count / (begin.elapsed_time(end) / 1e3) / 1e9,
        "copy": 2 * data.numel() / copy / 1e9,
    }


def main() -> None:
    options = harness.parser(__doc__ or "").parse_args()
    if not torch.cuda.is_available():
        raise OddrankError("this benchmark needs a GPU, and torch sees none")
    data = torch.zeros(BYTES, dtype=torch.uint8, device="cuda:0")
    torch.cuda.synchronize()
    rows = []
    for name, count in COUNTS.items():
        found = harness.rates(partial(rates, data, count), options.repetitions, "digest")
        rows.append({"case": name, "GiB": BYTES / 2**30, **found})
    harness.report("gpu/digest_speed", rows, options.json, cuda=_native.cuda().build_info)


if __name__ == "__main__":
    harness.end(main, "digest_speed")
