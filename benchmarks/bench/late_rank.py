"""Measures how often a late rank is named, and how often a rank that is not late.

Jobs of 2, 4 and 8 ranks over gloo on this machine. Each job first measures the healthy spread, then
many rounds in random order: no late rank; a random rank late in every iteration by 3, 10 or 30
times the spread; a random rank with jitter (30 % of iterations, by 20 times the spread). Each round
is measured and judged as in `bench run`: twice; a rank is named if it was late both times.
"""

import random
import statistics
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
import harness

KINDS = {"healthy": 0, "late 3x": 3, "late 10x": 10, "late 30x": 30, "jitter": 20}
SEED = 20261121
ROUND_SECONDS = 20.0  # enough for any injected lateness
_SHARE = 0.3


class Hurt:
    """A Context with the timestamps of a rank with a fault."""

    def __init__(self, context: Any, faults: str) -> None:
        from inject import Injector, parse

        self._context = context
        own = tuple(f for f in parse(faults) if f.rank == context.launch.rank)
        self._injector = Injector(own)
        self._injector.enter("round")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def timestamps(self, capacity: int) -> Any:
        return self._injector.timestamps(self._context.timestamps(capacity))


def measure(context: Any) -> dict[str, Any]:
    """Runs on every rank: measures the arrivals of every round twice."""
    from oddrank.bench import arrivals
    from oddrank.process_group import connect

    group = connect(context, "gloo")
    world, clock = group.world, arrivals.clock(context)
    quiet = [arrivals.measured(group, clock, ROUND_SECONDS) for _ in range(5)]
    spread = statistics.median(one.spread for one in quiet if one)
    dice = random.Random(SEED + world)
    rounds = [kind for kind in KINDS for _ in range(context.parameters)]
    dice.shuffle(rounds)
    found = []
    for kind in rounds:
        rank, seconds = dice.randrange(world), KINDS[kind] * spread / 1e6
        fault = {"healthy": "", "jitter": f"jitter:share={_SHARE},"}.get(kind, "late:")
        text = f"{fault}rank={rank},stage=round,seconds={seconds:.9f}" if fault else ""
        group.context = Hurt(context, text)
        both = [arrivals.measured(group, clock, ROUND_SECONDS) for _ in range(2)]
        found.append([kind, rank, [one and asdict(one) for one in both]])
    return {"spread": spread, "rounds": found}


def judged(results: dict[int, Any]) -> list[dict[str, Any]]:
    """Returns a row for each kind: rounds that named the right rank, none, or a wrong one."""
    from oddrank.bench.arrivals import of_payload
    from oddrank.peers import both_times

    counts = {kind: {"rounds": 0, "right": 0, "nobody": 0, "wrong": 0} for kind in KINDS}
    for number, (kind, rank, _) in enumerate(results[0]["rounds"]):
        first, again = (
            {r: of_payload(said["rounds"][number][2][i]) for r, said in results.items()}
            for i in (0, 1)
        )
        named = {late.rank for late in both_times(first, again)}
        due = {rank} if kind.startswith("late") else set()
        row = counts[kind]
        row["rounds"] += 1
        row["right" if named == due else "nobody" if not named else "wrong"] += 1
    return [
        {"ranks": len(results), "fault": kind, **row,
         "healthy spread us": round(results[0]["spread"], 1)}
        for kind, row in counts.items()
    ]  # fmt: skip


def rank_program(repeats: int, file: str) -> None:
    from oddrank import launch
    from oddrank.control import runner
    from oddrank.control.stages import Stage
    from oddrank.control.walk import Outcome

    def conclude(outcome: Outcome) -> int:
        results = outcome.run.of("measure")
        if not outcome.complete or not results:
            print(outcome.why, file=sys.stderr)
            return 1
        harness.report("bench_late_rank", judged(results), file)
        return 0

    stage = Stage("measure", 3000, measure, plan=lambda run: repeats)
    runner.run([stage], launch.current(), deadline=3000, conclude=conclude)


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] == "rank":
        rank_program(int(sys.argv[2]), sys.argv[3])
    parser = harness.parser(__doc__ or "", default_repetitions=200)
    parser.add_argument("--ranks", default="2,4,8")
    arguments = parser.parse_args()
    rows: list[Any] = []
    for ranks in arguments.ranks.split(","):
        own = [__file__, "rank", str(arguments.repetitions), "-"]
        rows += harness.rows_of(harness.torchrun(int(ranks), own, 3100))
    harness.report("bench_late_rank", rows, arguments.json)


if __name__ == "__main__":
    main()
