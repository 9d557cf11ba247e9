"""Names slow workers of ByteDance's public traces of trainings, by the rules that oddrank has.

    stragglers.py CLONE [--json FILE]

CLONE: a clone of github.com/ByteDance-Seed/StragglerAnalysis (Apache-2.0), whose data/ has three
traces of pipelines on GPUs: AR, in which one worker was made slow on purpose, SE, in which
sequences have random lengths, and ST, in which the last stage has more to do. So one worker is
odd, in AR. Only this needs pyarrow.

peers: the rule of self-test and bench, on the seconds that a worker computes in each step, among
the workers of its stage. late: the rule of `oddrank run`, on all collectives and messages as gloo's
records would show them, in two reports.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from oddrank import peers
from oddrank.run.late import Clocks, Lateness
from oddrank.trace.collectives import Collective

# Trace -> its slow workers, as (data-parallel rank, stage).
ODD = {"AR": {(0, 0)}, "SE": set(), "ST": set()}
COMPUTE = ("forward-compute", "backward-compute")
OWN = (*COMPUTE, "gc", "optimizer", "optimizer-clip-main-grad")
# Calls of a stage's workers -> c10d's name. All others are shown as messages.
TOGETHER = {
    "grads-reduce-scatter": "_reduce_scatter_base_",
    "params-all-gather": "_allgather_base_",
}
SMALLEST = 0.1  # a worker that is slower by less costs a job little
Worker = tuple[int, int]


def read(file: Path) -> list[dict[str, Any]]:
    from pyarrow import parquet

    columns = parquet.read_table(file).to_pydict()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def slow(rows: Sequence[Mapping[str, Any]]) -> dict[Worker, float]:
    """Returns the workers that compute longer than others of their stage, and how much longer."""
    seconds: dict[Worker, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for row in rows:
        if row["optype"] in COMPUTE:
            seconds[row["dp_rank"], row["stage"]][row["step"]] += row["duration"]
    found = {}
    for stage in sorted({stage for _, stage in seconds}):
        of_stage = {one: [*of.values()] for one, of in seconds.items() if one[1] == stage}
        compared = peers.compare(
            of_stage, smallest=SMALLEST, better="low", comparisons=len(seconds)
        )  # fmt: skip
        found |= {
            peer.name: round(peer.effect, 3)
            for peer in compared.peers
            if peer.lower > compared.line
        }
    return found


def histories(rows: Sequence[Mapping[str, Any]]) -> dict[Worker, list[Collective]]:
    """Returns each worker's calls as a record has them. Their groups are a stage's workers."""
    workers = sorted({(row["dp_rank"], row["stage"]) for row in rows}, key=lambda one: one[::-1])
    groups = {stage: tuple(rank for rank, one in enumerate(workers) if one[1] == stage)
              for _, stage in workers}  # fmt: skip
    found: dict[Worker, list[Collective]] = {worker: [] for worker in workers}
    begins = begins_of_steps(rows)
    for row in sorted(rows, key=lambda row: (row["step"], row["start_ts"])):
        if row["optype"] in OWN:
            continue
        own, stage = found[row["dp_rank"], row["stage"]], row["stage"]
        begin = round((begins[row["step"]] + row["start_ts"]) * 1e9)
        own.append(
            Collective(
                1, f"stage {stage}", len(own), TOGETHER.get(row["optype"], "send"), 4, "ended",
                begin, begin + round(row["duration"] * 1e9), groups[stage], "gloo", "float32",
            )
        )  # fmt: skip
    return found


def begins_of_steps(rows: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """Returns when each step begins: its times count from there."""
    lengths: dict[int, float] = defaultdict(float)
    for row in rows:
        lengths[row["step"]] = max(lengths[row["step"]], row["start_ts"] + row["duration"])
    at, found = 1.0, {}
    for step in sorted(lengths):
        found[step] = at
        at += lengths[step]
    return found


def late(rows: Sequence[Mapping[str, Any]]) -> dict[Worker, float]:
    """Returns the workers that two reports name, with the seconds that they are late."""
    steps = sorted({row["step"] for row in rows})
    judge, told = Lateness(), {}
    for half in (steps[: len(steps) // 2], steps[len(steps) // 2 :]):
        made = histories([row for row in rows if row["step"] in half])
        workers, clocks = [*made], Clocks(dict.fromkeys(range(len(made)), "one"), {})
        found = judge.look(dict(enumerate(made.values())), clocks)
        told |= {workers[one.rank]: round(one.by / 1e6, 3) for _, one in found.named}
    return told


def results(folder: Path) -> Iterator[dict[str, Any]]:
    for name, odd in ODD.items():
        rows = read(folder / "data" / f"trace-{name}.parquet")
        for rule, judge in (("peers", slow), ("late", late)):
            named = judge(rows)
            yield {
                "trace": name,
                "rule": rule,
                "odd": sorted(odd),
                "named": [[*worker, by] for worker, by in sorted(named.items())],
                "right": set(named) == odd,
            }


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("clone", type=Path)
    options = parser.parse_args()
    harness.report("run_stragglers", [*results(options.clone)], options.json)


main()
