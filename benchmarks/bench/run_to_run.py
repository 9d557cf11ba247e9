"""Does a sweep give the same figures every time, and how long does it take for that?

Both sides are whole torchruns on gloo at the same sizes, in turn: `oddrank bench run`, and
all_reduce_script.py, which measures as the usual script does. Per size: the coefficient of
variation of busbw over the runs, ours over the script's; and the seconds of both sweeps, without
the start of torch.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness

SIZES = [1 << power for power in range(15, 28)]
RANKS = 2
SCRIPT = Path(__file__).with_name("all_reduce_script.py")


def torchrun(*arguments: str) -> str:
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS)]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [*run, *arguments], capture_output=True, check=True, timeout=600, env=environ, text=True
    )
    return done.stdout


def script(sizes: list[int]) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(torchrun(str(SCRIPT), ",".join(map(str, sizes))))
    return {"busbw": {int(k): v for k, v in said["busbw"].items()}, "seconds": said["seconds"]}


def ours(sizes: list[int]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        torchrun("-m", "oddrank", "bench", "run", "--sizes", ",".join(map(str, sizes)),
                 "--json", str(report))  # fmt: skip
        data = json.loads(report.read_text())["data"]
    busbw = {row["bytes"]: row["busbw_GBps"] for row in data["rows"]}
    return {"busbw": busbw, "seconds": data["seconds"]}


def cv(values: list[float]) -> float:
    return statistics.stdev(values) / statistics.fmean(values)


def main() -> None:
    parser = harness.parser(__doc__ or "", default_repetitions=10)
    parser.add_argument("--largest", type=int, default=SIZES[-1], metavar="BYTES")
    arguments = parser.parse_args()
    sizes = [size for size in SIZES if size <= arguments.largest]
    runs: dict[str, list[dict[str, Any]]] = {"oddrank": [], "script": []}
    for number in range(arguments.repetitions):
        order = [("oddrank", ours), ("script", script)]
        for name, side in order if number % 2 == 0 else reversed(order):
            runs[name].append(side(sizes))
        print(f"run {number + 1} of {arguments.repetitions}: {time.strftime('%H:%M:%S')}",
              file=sys.stderr)  # fmt: skip
    rows: list[dict[str, Any]] = []
    for size in sizes:
        found = {name: [run["busbw"][size] for run in side] for name, side in runs.items()}
        rows.append(
            {
                "bytes": size,
                "CV, oddrank": cv(found["oddrank"]),
                "CV, script": cv(found["script"]),
                "CV ratio": cv(found["oddrank"]) / cv(found["script"]),
                "busbw, script over oddrank": statistics.median(found["script"])
                / statistics.median(found["oddrank"]),
            }
        )
    seconds = {name: [run["seconds"] for run in side] for name, side in runs.items()}
    rows.append(
        {
            "bytes": "all",
            "CV ratio": statistics.median(row["CV ratio"] for row in rows),
            "seconds, oddrank": statistics.median(seconds["oddrank"]),
            "seconds, script": statistics.median(seconds["script"]),
            "seconds ratio": statistics.median(seconds["oddrank"])
            / statistics.median(seconds["script"]),
        }
    )
    harness.report("bench_run_to_run", rows, arguments.json, ranks=RANKS)


if __name__ == "__main__":
    main()
