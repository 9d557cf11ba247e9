"""Measures how fast the self-test reads and writes GPU memory, against the GPU's own copy.

verify_memory writes and reads a pattern; the yardstick is cudaMemcpy within the GPU, which reads
and writes each byte once: its rate counts both. The GPU takes the times.
"""

import statistics
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from oddrank import OddrankError, _native

BYTES = 4 << 30  # far beyond any L2 cache


def rates(device: int, bytes_: int) -> dict[str, float]:
    """Returns the GB/s of one test and of a copy right after it."""
    cuda = _native.cuda()
    test = cuda.verify_memory(device, bytes_, seed=bytes_)
    if test["mismatches"]["count"]:
        raise OddrankError(f"GPU {device} does not hold what is written: {test['mismatches']}")
    copy = statistics.median(cuda.time_copies(device, bytes_, 3))
    return {
        "write": test["bytes"] / test["write_seconds"] / 1e9,
        "read": test["bytes"] / test["read_seconds"] / 1e9,
        "copy": 2 * bytes_ / copy / 1e9,
    }


def main() -> None:
    options = harness.parser(__doc__.splitlines()[0]).parse_args()
    gpus = _native.cuda().devices()
    if not gpus:
        raise OddrankError("this benchmark needs a GPU, and the driver sees none")
    rows = []
    for gpu in gpus:
        bytes_ = min(BYTES, gpu["memory_bytes"] // 4)
        once = partial(rates, gpu["index"], bytes_)
        row = {"gpu": f"{gpu['index']} {gpu['name']}", "GiB": bytes_ / 2**30}
        rows.append(row | harness.rates(once, options.repetitions, "read", "write"))
    harness.report("gpu/device_memory", rows, options.json, cuda=_native.cuda().build_info)


if __name__ == "__main__":
    harness.end(main, "device_memory")
