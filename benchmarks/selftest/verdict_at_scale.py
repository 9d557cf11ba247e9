"""Measures the judge's time for 10,000 ranks with 20 figures: speed, fingerprint, speed_recheck.

python benchmarks/selftest/verdict_at_scale.py --json benchmarks/results/verdict_at_scale.json

CPU seconds of one core, including reading the JSON of all ranks and writing the findings.
"""

import json
import statistics
import sys
import time
from pathlib import Path
from random import Random
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
import figures
import harness
from oddrank.report import Report
from oddrank.selftest import Options, probes, speed_judge
from oddrank.selftest.speed_judge import SPEED, Metric
from oddrank.selftest.stages import fingerprint, speed

TABLE = tuple(Metric(f"m{i}", f"figure {i}", "GB/s", 0.03, "gpu", 25, 1600) for i in range(20))
GOLDEN = {"fp32": 1, "fp64": 2, "integer": 3}


def once(ranks: int) -> dict[str, float]:
    random = Random(1)
    state = figures.run_of([8] * (ranks // 8))
    slow = {"m0": {13: 0.05}, "m1": {13: 0.1}, "m2": dict.fromkeys(range(80, 88), 0.06)}
    measured = figures.measured(state, random, noise=0.005, slow=slow)
    for result in measured.values():  # as they are sent
        for one in TABLE:
            result[one.name] = [float(f"{value:.5g}") for value in result[one.name]]
    sent = {rank: json.dumps(result) for rank, result in measured.items()}
    seen = [("core 0", repeat, GOLDEN) for repeat in range(100)]
    printed = json.dumps({"host": probes.summary("x86_64", GOLDEN, seen)})
    del measured

    times = {"ranks": float(ranks)}
    begin = time.process_time()
    state.results[SPEED] = {rank: json.loads(text) for rank, text in sent.items()}
    state.results["fingerprint"] = {rank: json.loads(printed) for rank in sent}
    times["read"] = time.process_time() - begin
    begin = time.process_time()
    found = speed.stage(Options()).conclude(state)
    times["speed"] = time.process_time() - begin
    begin = time.process_time()
    found = fingerprint.stage(Options()).conclude(state)
    times["fingerprint"] = time.process_time() - begin
    second = speed.recheck(Options())
    begin = time.process_time()
    plan = second.plan(state)
    times["plan"] = time.process_time() - begin
    taking_part = {rank for some in plan["ranks"].values() for rank in some}
    state.results[second.name] = figures.measured(
        state, random, noise=0.005, slow=slow, repeats=dict.fromkeys(plan["repeats"], 100)
    )
    for rank, result in state.results[second.name].items():
        for name, some in plan["ranks"].items():
            if rank not in some:
                del result[name]
    begin = time.process_time()
    found += second.conclude(state)
    summary = Report.of("selftest", {}, {}, found, complete=True).summary
    times["speed_recheck"] = time.process_time() - begin
    times["all"] = sum(
        times[name] for name in ("read", "speed", "fingerprint", "plan", "speed_recheck")
    )
    times["measured_again"] = len(taking_part)
    assert len(found) == 2, summary
    return times


def main() -> None:
    parser = harness.parser(__doc__.partition("\n")[0], 3)
    parser.add_argument("--ranks", type=int, nargs="*", default=[1000, 10_000])
    arguments = parser.parse_args()
    with mock.patch.object(speed_judge, "TABLE", TABLE):
        rows = []
        for ranks in arguments.ranks:
            runs = [once(ranks) for _ in range(arguments.repetitions)]
            rows.append({key: statistics.median(run[key] for run in runs) for key in runs[0]})
    harness.report("verdict_at_scale", rows, arguments.json)


if __name__ == "__main__":
    main()
