"""How often does oddrank metrics cry wolf, and how large must a fault be? On simulated logs.

python benchmarks/metrics/detection.py --healthy 1000 --faulty 100 --series 1000 --json FILE

Whole trainings of eight formats (simulated_training.py), and series of losses and throughputs of
ten shapes with steps, drifts and spikes (simulated_series.py).
"""

import random
import statistics
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import simulated_series
from simulated_training import Fault, Training

import harness
from oddrank import _native
from oddrank.metrics import findings

# Fault -> the kinds of suspects that name it, its sizes, and the meaning of a size.
FAULTS = {
    "spike": ({"loss-spike"}, (1.1, 1.2, 1.5, 2.0), "times the loss"),
    "drop": ({"slower"}, (0.05, 0.1, 0.2), "of the throughput"),
    "stall": ({"stall"}, (2, 10, 30, 60), "minutes"),
    "nan": ({"nan-loss"}, (1, 10), "rows"),
}
# Formats whose lines name the time: in others a pause is seen only if an iteration includes it.
TIMED = ("megatron", "torchtitan", "trainer", "ezpz")
WARNS = {"grad-growth"}


def judged(training: Training | simulated_series.Series) -> Any:
    """Returns a _core.Metrics that has read the log, in pieces as a growing file has them."""
    job = _native.core().Metrics([0])
    text = training.text().encode()
    chance = random.Random(len(text))
    at = 0
    while at < len(text):
        piece = chance.randint(1, 1 << 18)
        job.feed(0, text[at : at + piece])
        at += piece
    job.end(0)
    job.flush()
    return job


def healthy(count: int) -> list[dict[str, Any]]:
    """Counts logs with a finding at their end, and those in which --follow would have said one."""
    at_end: Counter[str] = Counter()
    on_the_way: Counter[str] = Counter()
    rows, wrong = 0, set()
    for seed in range(count):
        job = judged(Training(seed))
        rows += job.figures()["rows"]
        suspects = job.suspects()
        for finding in findings.findings(suspects, ["log"], ""):
            at_end[finding.cause] += 1
            wrong.add(seed)
        for suspect in suspects:
            if suspect["kind"] != "restart" or suspect["count"] > 0:
                on_the_way[suspect["kind"]] += 1
    if wrong:
        print("seeds with findings:", sorted(wrong)[:50])
    return [
        {
            "fault": "none",
            "logs": count,
            "rows": rows,
            "named at the end": sum(at_end.values()),
            "said by --follow": sum(on_the_way.values()),
            "kinds": " ".join(f"{kind}:{n}" for kind, n in on_the_way.items()) or "none",
        }
    ]


def faulty(count: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for kind, (names, sizes, unit) in FAULTS.items():
        for size in sizes:
            found, warned, delays = 0, 0, []
            for seed in range(10_000, 10_000 + count):
                training = Training(seed, Fault(kind, size), rows=1200)
                if kind == "stall" and training.form not in TIMED:
                    training.form = TIMED[seed % len(TIMED)]
                suspects = judged(training).suspects()
                at = 0.7 * training.rows * training.interval
                near = [
                    each
                    for each in suspects
                    if abs(each["fired"] - at) < 0.25 * training.rows * training.interval
                ]
                hits = [each for each in near if each["kind"] in names]
                warned += any(each["kind"] in WARNS for each in near)
                found += bool(hits)
                if hits:
                    delays.append((hits[0]["fired"] - at) / training.interval)
            row = {
                "fault": kind,
                "size": size,
                "unit": unit,
                "logs": count,
                "found": found / count,
                "rows later (median)": statistics.median(delays) if delays else None,
            }
            rows.append(row | ({"warned by grad norm": warned / count} if kind == "spike" else {}))
    return rows


def of_series(count: int) -> list[dict[str, Any]]:
    """Counts healthy series with a finding, and of each fault how often it is found, and where."""
    alarms = 0
    for seed in range(count):
        is_loss = seed % 20 < 10 or simulated_series.SHAPES[seed % 10] in ("rl", "epochs")
        suspects = judged(simulated_series.healthy(seed, is_loss=is_loss)).suspects()
        alarms += bool(findings.findings(suspects, ["log"], ""))
    rows: list[dict[str, Any]] = [{"series": "healthy", "count": count, "with a finding": alarms}]
    off: dict[str, list[float]] = {}
    every: Counter[str] = Counter()
    for seed in range(count):
        sick = simulated_series.sick(seed)
        name = f"{sick.fault} of {'a loss' if sick.is_loss else 'throughput'}"
        every[name] += 1
        found = [one for one in judged(sick).suspects() if one["fired"] > sick.at]
        off.setdefault(name, []).extend(abs(one["first"] - sick.at - 1) for one in found[:1])
    for name, number in every.items():
        rows.append(
            {
                "series": name,
                "count": number,
                "found": len(off[name]) / number,
                "rows between the fault and its place (median)": statistics.median(off[name]),
                "the same, of 95 %": sorted(off[name])[int(0.95 * len(off[name]))],
            }
        )
    return rows


def main() -> None:
    arguments = harness.parser(str(__doc__).partition("\n")[0])
    arguments.add_argument("--healthy", type=int, default=1000)
    arguments.add_argument("--faulty", type=int, default=100)
    arguments.add_argument("--series", type=int, default=1000)
    options = arguments.parse_args()
    rows = of_series(options.series)
    rows += healthy(options.healthy) + faulty(options.faulty)
    harness.report("metrics_detection", rows, options.json)


if __name__ == "__main__":
    main()
