"""Measures the guard of `oddrank run` beside a training: its CPU, memory and delay.

cpu: share of one core over `--seconds` (goal: 0.1 %). private: memory that no other process shares
(goal: 3 MB). death: from SIGKILL to the root's knowledge (goal: 100 ms). snapshot: from the root's
question to the answer, with 200 ms between its two samples; its bytes on the wire, and the record's
bytes in it.
"""

import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
import harness
from run.watched import guards, private_bytes, watched

_TRAINS = """
def trains():
    for step in range(10 ** 9):
        oddrank.step(step)
        with oddrank.section("forward"):
            sum(i for i in range(2000))
        time.sleep(0.001)
"""


def cpu_seconds(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def seconds_until(true: Callable[[], object]) -> float:
    begin = time.perf_counter()
    while not true():
        time.sleep(0.0005)
    return time.perf_counter() - begin


def beside_a_training(seconds: float) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as folder,
        watched(Path(folder)) as (worker, root, mark),
    ):
        worker.does("oddrank.arm()")
        worker.does(f"exec({_TRAINS!r})")
        worker.does("threading.Thread(target=trains, daemon=True).start()")
        root.until(stage="moving")
        (guard,) = guards(mark)
        before = cpu_seconds(guard.pid)
        begin = time.perf_counter()
        time.sleep(seconds)
        share = (cpu_seconds(guard.pid) - before) / (time.perf_counter() - begin)
        private = private_bytes(guard.pid)
        before = cpu_seconds(guard.pid)
        took = seconds_until(root.snapshot)
        return {
            "cpu_percent": 100 * share,
            "private_kib": private >> 10,
            "snapshot_ms": 1000 * took,
            "snapshot_cpu_ms": 1000 * (cpu_seconds(guard.pid) - before),
            "snapshot_bytes": len(root.hub.results()[0]),
            "record_bytes": len(root.snapshot()["record"]),
            "private_after_kib": private_bytes(guard.pid) >> 10,
        }


def death() -> float:
    """Returns milliseconds from a kill to the root's knowledge."""
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as folder,
        watched(Path(folder)) as (worker, root, _),
    ):
        worker.does("oddrank.arm(); oddrank.step(1)")
        root.until(stage="moving")
        os.kill(worker.pid, signal.SIGKILL)
        return 1000 * seconds_until(lambda: root.state()["state"] == "dead")


def main() -> None:
    parser = harness.parser(__doc__ or "", default_repetitions=5)
    parser.add_argument("--seconds", type=float, default=30.0)
    arguments = parser.parse_args()
    row = beside_a_training(arguments.seconds)
    deaths = [death() for _ in range(arguments.repetitions)]
    row["death_ms"] = statistics.median(deaths)
    row["slowest_death_ms"] = max(deaths)
    harness.report("run_guard", [{k: round(v, 3) for k, v in row.items()}], arguments.json)


if __name__ == "__main__":
    main()
