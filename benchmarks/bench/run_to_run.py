"""Measures how much the figures of a sweep differ from run to run, and how long a sweep takes.

All sides are whole torchruns on gloo at the same sizes and take turns: `oddrank bench run`, the
same with a small --budget, and all_reduce_script.py, which measures like the usual scripts. Figures
of each size: the coefficient of variation of busbw over the runs, ours over the script's; and the
seconds of the sweeps, without the start of torch.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness

SIZES = [1 << power for power in range(15, 31)]
RANKS = 2
OURS = ("oddrank", "quick")
SCRIPT = Path(__file__).with_name("all_reduce_script.py")


def script(sizes: list[int]) -> dict[str, Any]:
    told = harness.torchrun(RANKS, [str(SCRIPT), ",".join(map(str, sizes))], 600)
    said: dict[str, Any] = json.loads(told)
    return {"busbw": {int(k): v for k, v in said["busbw"].items()}, "seconds": said["seconds"]}


def ours(sizes: list[int], *options: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = ["-m", "oddrank", "bench", "run", "--sizes", ",".join(map(str, sizes))]
        harness.torchrun(RANKS, [*command, "--json", str(report), *options], 600)
        data = json.loads(report.read_text())["data"]
    busbw = {row["bytes"]: row["busbw_GBps"] for row in data["rows"]}
    return {"busbw": busbw, "seconds": data["seconds"]}


def in_little_time(sizes: list[int], seconds: float) -> dict[str, Any]:
    return ours(sizes, "--budget", f"{seconds}s", "--precision", "100%")


def cv(values: list[float]) -> float:
    return statistics.stdev(values) / statistics.fmean(values)


def main() -> None:
    parser = harness.parser(__doc__ or "", default_repetitions=10)
    parser.add_argument("--largest", type=int, default=1 << 27, metavar="BYTES",
                        help="size of the sweep, at most 1 GiB (default: 128 MiB)")  # fmt: skip
    parser.add_argument("--budget", type=float, default=1.0, metavar="SECONDS")
    arguments = parser.parse_args()
    sizes = [size for size in SIZES if size <= arguments.largest]
    sides: dict[str, Callable[[], dict[str, Any]]] = {
        "oddrank": lambda: ours(sizes),
        "quick": lambda: in_little_time(sizes, arguments.budget),
        "script": lambda: script(sizes),
    }
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    for number in range(arguments.repetitions):
        for name in list(sides)[:: 1 if number % 2 == 0 else -1]:
            runs[name].append(sides[name]())
        print(f"run {number + 1} of {arguments.repetitions}: {time.strftime('%H:%M:%S')}",
              file=sys.stderr)  # fmt: skip
    rows: list[dict[str, Any]] = []
    for size in sizes:
        row: dict[str, Any] = {"bytes": size}
        seen = {name: [run["busbw"][size] for run in runs[name]] for name in sides}
        row |= {f"CV, {name}": cv(seen[name]) for name in sides}
        row |= {f"CV ratio, {name}": cv(seen[name]) / cv(seen["script"]) for name in OURS}
        medians = {name: statistics.median(seen[name]) for name in sides}
        rows.append(row | {"busbw, script over oddrank": medians["script"] / medians["oddrank"]})
    took = {name: statistics.median(run["seconds"] for run in runs[name]) for name in sides}
    last: dict[str, Any] = {"bytes": "all"}
    for name in OURS:
        key = f"CV ratio, {name}"
        last[key] = statistics.median(row[key] for row in rows)
    last |= {f"seconds, {name}": took[name] for name in sides}
    last |= {f"seconds ratio, {name}": took[name] / took["script"] for name in OURS}
    rows.append(last)
    harness.report("bench_run_to_run", rows, arguments.json, ranks=RANKS)


if __name__ == "__main__":
    main()
