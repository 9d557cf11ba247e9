"""Measures the recorder's cost within its budget, on this Python: armed over unarmed CPU time.

Each row is a workload. A process runs it without the recorder, then armed: for two seconds, in
which the recorder finds its levels, and then for the figure. `without_a_budget`: overhead=None.
`empty_hook`, up to Python 3.11: a profile function in C that does nothing, the least cost of a hook
there. Needs a C compiler.
"""

import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from event_cost import build_empty_hook

import harness

NEW = sys.version_info >= (3, 12)
HERE = Path(__file__).parent
WORKLOADS = ("fib", "richards", "nbody", "lines", "exceptions", "generators", "json", "callbacks")


def measure(workload: str, how: str, folder: str) -> tuple[float, int]:
    """Returns armed over unarmed, and the number of functions that are recorded less closely."""
    done = subprocess.run(
        [sys.executable, str(HERE / "budget_workloads.py"), workload, how],
        env={**os.environ, "ODDRANK_DIR": folder, "EMPTY_HOOK": folder},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    found = json.loads(done.stdout)
    return found["armed"] / found["unarmed"], found["lowered"]


def row_of(workload: str, repetitions: int, folder: str) -> dict[str, object]:
    lowered: list[int] = []

    def armed(how: str) -> float:
        ratio, count = measure(workload, how, folder)
        lowered.append(count)
        return ratio

    hows = ("without_a_budget", "armed") if NEW else ("without_a_budget", "empty_hook", "armed")
    figures = harness.paired({how: partial(armed, how) for how in hows}, repetitions)
    spreads = {how: harness.spread(figures[how]) for how in hows}
    return {"workload": workload, **spreads, "lowered": max(lowered)}


def main() -> None:
    parser = harness.parser(__doc__ or "", default_repetitions=3)
    parser.add_argument("--only", choices=WORKLOADS, action="append")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        if not NEW:
            build_empty_hook(folder)
        rows = [
            row_of(workload, arguments.repetitions, folder)
            for workload in arguments.only or WORKLOADS
        ]
    harness.report("budget", rows, arguments.json)


if __name__ == "__main__":
    main()
