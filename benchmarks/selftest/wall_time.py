"""Measures the seconds of a healthy self-test of CPU ranks, and torch's share at its start.

Each side is a whole torchrun; figure: seconds from start to exit. "least" is an import of torch, a
connection over gloo and one barrier. Then 8 ranks with --quick: seconds from the end of join to the
verdict, and of every stage (the first one imports torch).
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness

RANKS, QUICK_RANKS = 4, 8
_SECONDS = "seconds (min / median / max)"
LEAST = (
    "import torch.distributed as dist; dist.init_process_group('gloo');"
    " dist.barrier(); dist.destroy_process_group()"
)
SIDES = {
    "least (import, connect, barrier)": ["--no-python", sys.executable, "-c", LEAST],
    "oddrank selftest": ["-m", "oddrank", "selftest"],
    "oddrank selftest --quick": ["-m", "oddrank", "selftest", "--quick"],
}


def seconds(arguments: list[str], ranks: int = RANKS) -> float:
    start = time.perf_counter()
    harness.torchrun(ranks, arguments, 120)
    return time.perf_counter() - start


def quick_stages() -> dict[str, float]:
    """Returns the seconds of each stage of one run, join included."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        tool = ["-m", "oddrank", "selftest", "--quick", "--json", str(report)]
        seconds(tool, QUICK_RANKS)
        stages = json.loads(report.read_text())["data"]["stages"]
    return {stage["name"]: stage["seconds"] for stage in stages}


def quick_rows(repetitions: int) -> list[dict[str, Any]]:
    runs = [quick_stages() for _ in range(repetitions)]
    figures = {"all after join": [sum(run.values()) - run["join"] for run in runs]}
    # Not every run has a recheck.
    names = dict.fromkeys(name for run in runs for name in run)
    figures |= {name: [run.get(name, 0.0) for run in runs] for name in names}
    return [
        {f"{QUICK_RANKS} CPU ranks, --quick": name, _SECONDS: harness.spread(values)}
        for name, values in figures.items()
    ]


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
            f"{RANKS} CPU ranks": name,
            _SECONDS: harness.spread(values),
            "over the least": harness.ratio(values, figures[least]),
        }
        for name, values in figures.items()
    ]
    rows += quick_rows(arguments.repetitions)
    harness.report("selftest_wall_time", rows, arguments.json)


if __name__ == "__main__":
    main()
