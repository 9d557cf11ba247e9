"""Measures the judge of `oddrank run` with 10,000 guards, which one other process simulates.

watching: share of one core while nothing happens, hub and judge together (goal: 10 %). snapshot:
from the question to the answers of all ranks, each answer as large as a real training rank's (goal:
2 s). memory: resident, before and after it.
"""

import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "control"))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from simulate_root import build

import harness
from oddrank import _native
from oddrank.control.address import listen_on
from oddrank.run.judge import Judge
from oddrank.run.options import Options
from oddrank.run.snapshot import Taker
from oddrank.run.start import Settings
from oddrank.run.watch import Watch
from run.watched import watched

_TRAINS = """
def trains():
    import torch, torch.distributed as dist
    dist.init_process_group("gloo", init_method="file://{0}/store", rank=0, world_size=1)
    for step in range(10 ** 9):
        oddrank.step(step)
        dist.all_reduce(torch.ones(8))
        time.sleep(0.001)
"""
_WATCHED_SECONDS = 20.0


def real_answer(folder: Path) -> bytes:
    """Returns the answer of a training rank's guard."""
    with watched(folder) as (worker, root, _):
        worker.does("oddrank.arm()")
        worker.does(f"exec({_TRAINS.format(folder)!r})")
        worker.begins("trains()")
        root.asks_until(stage="moving")
        time.sleep(3.0)
        root.begin("snapshot", "200")
        return root.result()


def run_once(swarm: Path, answer: Path, world: int, folder: Path) -> dict[str, Any]:
    core = _native.core()
    listener, port = listen_on(0)
    hub = core.Hub(listener, world, "secret", "localhost", 3600.0, 10_000, 30_000)
    hub.begin(0, "join", "", 3600.0)
    guards = subprocess.Popen(
        [swarm, str(port), "secret", str(world), str(answer)], stdin=subprocess.PIPE
    )
    assert guards.stdin is not None
    guards.stdin.write(b"go\n")
    guards.stdin.flush()
    while sum(state["contact"] == "ok" for state in hub.snapshot()) < world:
        time.sleep(0.1)
    settings = Settings(
        pid=1, started=0, world={"size": world}, host="localhost", folders=[str(folder / "job")],
        file="", options=vars(Options(3600.0)), restart=0, publish=False, cwd="/",
    )  # fmt: skip
    taker = Taker(hub, "localhost", [])
    judge = Judge(settings, hub, taker, Watch(time.monotonic(), 3600.0))
    threading.Thread(target=judge.run, daemon=True).start()
    time.sleep(2.0)
    before, cpu = time.monotonic(), time.process_time()
    time.sleep(_WATCHED_SECONDS)
    share = (time.process_time() - cpu) / (time.monotonic() - before)
    memory = harness.resident_mb()
    before = time.monotonic()
    taken = taker.take(30.0, look=0.2, ended={})
    seconds = time.monotonic() - before
    assert len(taken.records) == world, len(taken.records)
    most = harness.resident_mb()
    guards.kill()
    guards.wait()
    return {
        "ranks": world,
        "answer_bytes": answer.stat().st_size,
        "watching_percent": round(100 * share, 1),
        "snapshot_s": round(seconds, 2),
        "memory_mb": round(memory),
        "memory_after_mb": round(most),
    }


def main() -> None:
    parser = harness.parser(__doc__ or "", default_repetitions=1)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1000, 10_000])
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        swarm, answer = build(folder), folder / "answer"
        answer.write_bytes(real_answer(folder))
        for world in arguments.ranks:
            rows.append(run_once(swarm, answer, world, folder / str(world)))
    harness.report("run/root", rows, arguments.json)


if __name__ == "__main__":
    main()
