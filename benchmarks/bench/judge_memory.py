"""Measures the judge's memory for each case of a sweep over 10,000 ranks.

The judge's walk is real. The ranks are simulated, with the results that real ranks send.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from oddrank.bench import sweep
from oddrank.bench.case import Case
from oddrank.bench.plan import in_turn
from oddrank.control.stages import RankState, RunState, Stage, StageRound
from oddrank.control.walk import Outcome, Walk

ITERATIONS = 2000
WANTED_MB = 2.0  # for a case: the size of its row


class Ranks:
    """Replaces a Root: all ranks join, and answer every stage at once."""

    reached_at = "10.0.0.1"

    def __init__(self, world: int) -> None:
        self.world = world
        self.states = {
            rank: RankState(rank, f"node{rank // 8}", rank // 8, rank % 8, contact="ok")
            for rank in range(world)
        }

    def go(self, stage: str, seconds: float, parameters: str = "") -> None:
        self.stage = stage

    def collect(self, stage: str, on_progress: Any, every: float) -> StageRound:
        said = {rank: json.dumps(answer(stage, rank)).encode() for rank in range(self.world)}
        return StageRound(stage, said, self.states, "complete")

    def end(self, code: int) -> None:
        pass


def answer(stage: str, rank: int) -> Any:
    """Returns a rank's result of a stage."""
    if stage == "devices":
        return {"gpus": 0, "gpu": None, "local_world": 8, "gpu_id": None, "cuda_part": "",
                "obstacle": ""}  # fmt: skip
    if stage == "connect":
        return {"transport": "gloo", "nccl": None, "links": None}
    if stage == "arrival":
        return None
    times = [[100.0 + i / 3 for i in range(ITERATIONS)]] if rank == 0 else []
    found = {"skipped": None, "mismatch": None, "wrong_ranks": [], "times": times,
             "mean": 100.0 + ITERATIONS / 6, "iterations": ITERATIONS}  # fmt: skip
    return {"backend": "c10d:gloo", **found, "over": True}


def main() -> int:
    parser = harness.parser(__doc__)
    parser.add_argument("--ranks", type=int, default=10_000)
    parser.add_argument("--cases", type=int, default=30)
    given = parser.parse_args()
    todo = [Case("all_reduce", "float32", 8 * (i + 1)) for i in range(given.cases)]
    passes = in_turn(todo, 1)
    by_stage = {one_pass.name: one_pass for one_pass in passes}
    rows, memory = [], []

    def on_stage(stage: Stage, run: RunState) -> None:
        if stage.name in by_stage:
            rows.append(sweep.row_of(by_stage[stage.name], run))
            memory.append(harness.resident_mb())

    def conclude(outcome: Outcome) -> int:
        assert outcome.complete, outcome.why
        return 0

    stages = sweep.stages(passes, sweep.SweepOptions(0.01, 60, 3600))
    ranks: Any = Ranks(given.ranks)
    began = time.monotonic()
    Walk(ranks, stages, began + 3600, on_stage).judge(conclude)
    # Leaves out the first cases: allocator and interpreter reuse the memory they take there.
    first = given.cases // 3
    a_case = (memory[-1] - memory[first]) / (given.cases - 1 - first)
    row = {
        "ranks": given.ranks,
        "cases": given.cases,
        "mb_a_case": round(a_case, 2),
        "resident_mb": round(memory[-1], 1),
        "seconds_a_case": round((time.monotonic() - began) / given.cases, 2),
    }
    harness.report("bench/judge_memory", [row], given.json)
    return 0 if a_case <= WANTED_MB else 1


if __name__ == "__main__":
    raise SystemExit(main())
