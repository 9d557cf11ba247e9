"""How long does a healthy self-test of 4 CPU ranks take, and how much of it is starting torch?

Each side is a whole torchrun; figure: seconds from start to exit. The least that 4 ranks can do is
to import torch, connect over gloo and meet in one barrier.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness

RANKS = 4
LEAST = (
    "import torch.distributed as dist; dist.init_process_group('gloo');"
    " dist.barrier(); dist.destroy_process_group()"
)
SIDES = {
    "least (import, connect, barrier)": ["--no-python", sys.executable, "-c", LEAST],
    "oddrank selftest": ["-m", "oddrank", "selftest"],
}


def seconds(arguments: list[str]) -> float:
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS)]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    start = time.perf_counter()
    subprocess.run([*run, *arguments], capture_output=True, check=True, timeout=120, env=environ)
    return time.perf_counter() - start


def main() -> None:
    arguments = harness.parser(__doc__ or "").parse_args()
    sides: dict[str, Callable[[], float]] = {
        name: partial(seconds, side) for name, side in SIDES.items()
    }
    for side in sides.values():
        side()  # byte code written, files in the page cache
    figures = harness.paired(sides, arguments.repetitions)
    least = next(iter(SIDES))
    rows = [
        {
            "4 CPU ranks": name,
            "seconds (min / median / max)": harness.spread(values),
            "over the least": harness.ratio(values, figures[least]),
        }
        for name, values in figures.items()
    ]
    harness.report("selftest_wall_time", rows, arguments.json)


if __name__ == "__main__":
    main()
