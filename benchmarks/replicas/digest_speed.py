"""Measures how fast the CPU digests tensors, against reading memory and against SHA-1.

python benchmarks/replicas/digest_speed.py --json benchmarks/results/replicas_digest.json

The sides: digests by one and two threads, the read of time_host_memory by one, and Megatron's way
for each parameter, tensor.cpu().float() and SHA-1 over that. All read the same bytes of bfloat16.
The rates of one thread count its CPU time, which leaves out waits for a core.
"""

import hashlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from oddrank import _native
from oddrank.replicas import digests

BYTES = 256 << 20  # several times the last cache
TENSORS = {"1 x 256 MiB": 1, "256 x 1 MiB": 256, "16384 x 16 KiB": 16384}


def rate(work: Callable[[], Any], clock: Callable[[], float], bytes_: int = BYTES) -> float:
    """Returns GB/s."""
    began = clock()
    work()
    return bytes_ / (clock() - began) / 1e9


def read_rate() -> float:
    times = _native.core().time_host_memory(BYTES, 1, 16)
    return float(times["bytes"] / times["read"][0] / 1e9)


def as_megatron(tensors: list[torch.Tensor]) -> list[bytes]:
    return [hashlib.sha1(t.to("cpu").float().numpy().tobytes()).digest() for t in tensors]


def main() -> None:
    options = harness.parser((__doc__ or "").partition("\n")[0]).parse_args()
    core = _native.core()
    rows = []
    for name, count in TENSORS.items():
        whole = torch.randint(-1000, 1000, (BYTES // 2,), dtype=torch.int16).view(torch.bfloat16)
        tensors = list(whole.chunk(count))
        taken = [(tensor.data_ptr(), 0, digests.size_of(tensor)) for tensor in tensors]
        small = tensors[: max(1, count // 8)] if count > 1 else [whole[: BYTES // 16]]
        small_bytes = sum(digests.size_of(tensor) for tensor in small)
        figures = harness.paired(
            {
                "digest": lambda t=taken: rate(
                    lambda: core.digest_blocks(t, 0, 1), time.thread_time
                ),
                "digest, 2 threads": lambda t=taken: rate(
                    lambda: core.digest_blocks(t, 0, 2), time.perf_counter
                ),
                "read": read_rate,
                "SHA-1": lambda s=small, b=small_bytes: rate(
                    lambda: as_megatron(s), time.thread_time, b
                ),
            },
            options.repetitions,
        )
        rows.append(
            {
                "tensors": name,
                **{f"{side} GB/s": harness.spread(values) for side, values in figures.items()},
                "digest / read": harness.ratio(figures["digest"], figures["read"]),
                "digest / SHA-1": harness.ratio(figures["digest"], figures["SHA-1"]),
            }
        )
    harness.report("replicas/digest_speed", rows, options.json)


if __name__ == "__main__":
    main()
