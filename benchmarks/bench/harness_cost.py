"""Measures the cost that our timing adds to an operation of torch.distributed.

Two loops take turns in one job: a bare loop of dist.all_reduce over the same memory, timed as a
whole, and our block (two stamps around each call). Figure: time per operation, ours over bare.
Starts its own torchrun; rank 0 prints.
"""

import sys
import time
from itertools import cycle, islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness

RANKS = 2
ROUNDS = {8: 2000, 1 << 20: 200}


def measure(context: Any) -> dict[str, Any]:
    """Runs on every rank: returns the slowest rank's seconds per operation, loop by loop."""
    from oddrank.bench.c10d import C10d
    from oddrank.bench.case import Case
    from oddrank.process_group import connect

    group = connect(context, "gloo")
    found: dict[str, Any] = {}
    backend = C10d(group)
    backend.reserve(2 << 20)
    for size, count in ROUNDS.items():
        operation = backend.prepare(Case("all_reduce", "float32", size))
        operation.ready()
        calls = cycle(operation.calls)

        def bare(calls: Any = calls, count: int = count) -> float:
            group.barrier()
            began = time.perf_counter()
            for call in islice(calls, count):
                call()
            return (time.perf_counter() - began) / count

        def ours(operation: Any = operation, count: int = count) -> float:
            group.barrier()
            began = time.perf_counter()
            operation.block(count)
            return (time.perf_counter() - began) / count

        sides = {"bare": bare, "ours": ours}
        for side in sides.values():
            side()
        figures = harness.paired(sides, context.parameters)
        found[str(size)] = {name: list(group.largest(times)) for name, times in figures.items()}
    return found


def rank() -> None:
    from oddrank import launch
    from oddrank.control import runner
    from oddrank.control.stages import Stage
    from oddrank.control.walk import Outcome

    repetitions = int(sys.argv[2])

    def conclude(outcome: Outcome) -> int:
        said = outcome.run.of("measure")
        if not outcome.complete or not said:
            print(outcome.why, file=sys.stderr)
            return 1
        rows = []
        for size, sides in said[0].items():
            more = [a - b for a, b in zip(sides["ours"], sides["bare"], strict=True)]
            rows.append(
                {
                    "all_reduce, bytes": int(size),
                    "bare us": harness.spread([t * 1e6 for t in sides["bare"]]),
                    "ours over bare": harness.ratio(sides["ours"], sides["bare"]),
                    "ours more, us": harness.spread([t * 1e6 for t in more]),
                }
            )
        harness.report("bench_harness_cost", rows, sys.argv[3] or None, ranks=RANKS)
        return 0

    stage = Stage("measure", 300, measure, plan=lambda run: repetitions)
    runner.run([stage], launch.current(), deadline=300, conclude=conclude)


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] == "rank":
        rank()
    arguments = harness.parser(__doc__ or "", default_repetitions=15).parse_args()
    own = [__file__, "rank", str(arguments.repetitions), arguments.json or ""]
    print(harness.torchrun(RANKS, own, 400), end="")


if __name__ == "__main__":
    main()
