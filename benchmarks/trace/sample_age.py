"""Measures how old the sample of a function that spins is, on this Python, beside other processes.

Each row is a number of processes that burn all cores. The age at any moment follows from the times
of all samples: `p50_ms` to `max_ms`; `late` is the share of the time in which it is over 100 ms.
As root, the reader runs before all others, else it misses samples on a busy machine.
"""

import itertools
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from oddrank.trace import ranks

PROGRAM = """
import oddrank
oddrank.arm()
def spins():
    value = 0
    while value < 2:
        value = 1 - value
def hot(i):
    return i
for i in range(3_000_000):
    hot(i)
spins()
"""
LATE = 0.1
STEP = 0.001


def sample_times(seconds: float) -> list[float]:
    with ExitStack() as ends:
        folder = ends.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm"))
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], env={**os.environ, "ODDRANK_DIR": folder}
        )
        ends.callback(process.wait)
        ends.callback(process.kill)
        found: dict[float, None] = {}
        end = time.monotonic() + 60
        while time.monotonic() < end:
            time.sleep(0.01)
            read, _ = ranks.read([*Path(folder).rglob("*.trace")])
            main = read[0].main if read else None
            if main is None or main.sampled is None or main.stack[-1].function != "spins":
                continue
            if not found:
                end = time.monotonic() + seconds
            found[main.sampled] = None
        return [*found]


def row(burners: int, seconds: float) -> dict[str, object]:
    with ExitStack() as ends:
        for _ in range(burners):
            burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            ends.callback(burner.wait)
            ends.callback(burner.kill)
        times = sample_times(seconds)
    # At each moment the age is the time since the last sample.
    ages = sorted(
        step * STEP
        for begin, end in itertools.pairwise(times)
        for step in range(round((end - begin) / STEP))
    )
    late = sum(age > LATE for age in ages) / len(ages)
    return {
        "beside": burners,
        **{f"p{p}_ms": 1e3 * ages[len(ages) * p // 100] for p in (50, 99)},
        "max_ms": 1e3 * ages[-1],
        "late": late,
        "samples": len(times),
    }


def main() -> None:
    parser = harness.parser(__doc__ or "", default_repetitions=1)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--beside", type=int, action="append")
    arguments = parser.parse_args()
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    rows = [
        row(beside, arguments.seconds)
        for beside in arguments.beside or (0, 11)
        for _ in range(arguments.repetitions)
    ]
    harness.report("sample_age", rows, arguments.json)


if __name__ == "__main__":
    main()
