"""Measures the cost of a switch for a training step: poll(), and the threads behind it.

python benchmarks/switches/poll_cost.py --json benchmarks/results/switches_poll.json

Two gloo ranks under torchrun, at torch's own store. Each repetition runs a loop that does nothing
but poll() for two seconds, while the threads read file and store as often as ever, and the same
loop with an empty method. Figures are CPU time of the training thread: other programs don't change
it. Its further loss to the threads, as they hold the GIL, is at most their own CPU time, taken
while the loop sleeps.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness

RANKS = 2
SECONDS = 2.0
_BATCH = 10_000


class Empty:
    """A method that does nothing, at the cost of a call."""

    def poll(self) -> str:
        return ""


def ns_a_step(poll: Callable[[], str]) -> float:
    steps, end, used = 0, time.perf_counter() + SECONDS, time.thread_time()
    while time.perf_counter() < end:
        for _ in range(_BATCH):
            poll()
        steps += _BATCH
    return (time.thread_time() - used) / steps * 1e9


def cpu_us_a_second() -> float:
    began, used = time.perf_counter(), time.process_time()
    time.sleep(SECONDS * 2)
    return (time.process_time() - used) / (time.perf_counter() - began) * 1e6


def rank_main(folder: Path, repetitions: int) -> None:
    import torch.distributed as dist

    import oddrank

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    before = [cpu_us_a_second() for _ in range(3)]
    with oddrank.switch(folder / "switch") as switch:
        sides = {"poll": lambda: ns_a_step(switch.poll), "empty": lambda: ns_a_step(Empty().poll)}
        found = harness.paired(sides, repetitions)
        found["cpu"] = [cpu_us_a_second() for _ in range(3)]
        found["cpu before"] = before
        dist.barrier()
    (folder / f"rank{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def main() -> None:
    parser = harness.parser((__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if options.folder is not None:
        rank_main(options.folder, options.repetitions)
        return
    with tempfile.TemporaryDirectory() as name:
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
        more = ["--folder", name, "--repetitions", str(options.repetitions)]
        subprocess.run(
            [sys.executable, *torchrun, __file__, *more],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=True,
            timeout=1800,
        )
        rows = []
        for rank in range(RANKS):
            found = json.loads((Path(name) / f"rank{rank}.json").read_text())
            more_ns = [a - b for a, b in zip(found["poll"], found["empty"], strict=True)]
            rows.append(
                {
                    "rank": rank,
                    "ns a step": harness.spread(found["poll"]),
                    "more than an empty method, ns": harness.spread(more_ns),
                    "CPU us a second, asleep": harness.spread(found["cpu"]),
                    "the same without a switch": harness.spread(found["cpu before"]),
                }
            )
    harness.report("switches/poll_cost", rows, options.json)


if __name__ == "__main__":
    main()
