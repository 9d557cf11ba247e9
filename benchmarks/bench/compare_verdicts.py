"""Simulates how often `bench compare`'s interval contains the truth, and its verdict is wrong.

python benchmarks/bench/compare_verdicts.py --json benchmarks/results/compare_verdicts.json

Times are log-normal with 5 % noise; each keeps the share `memory` of the disturbance before it; one
in 20 has a long tail. The truth is known: B takes `effect` more than A. Verdicts are for
--within 5%.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import numpy as np

import harness
from oddrank import _native
from oddrank.bench.comparison import CONFIDENCE

TRIALS = 500
NOISE = 0.05
WITHIN = 0.05
REPLICATES = 4000  # as in comparison.py


def times(random: np.random.Generator, count: int, memory: float, level: float) -> list[float]:
    steps = random.standard_normal(count + 200)
    state = np.empty_like(steps)
    last = 0.0
    for i, step in enumerate(steps):
        last = state[i] = memory * last + (1 - memory**2) ** 0.5 * step
    made = level * np.exp(NOISE * state[200:])
    tail = random.random(count) < 0.05
    made[tail] *= 1 + random.exponential(1.0, int(tail.sum()))
    return [float(value) for value in made]


def cell(count: int, memory: float, effect: float) -> dict[str, float]:
    random = np.random.default_rng([count, int(memory * 100), int(effect * 1000)])
    held = slower = same = 0
    widths = []
    spent = 0.0
    for _ in range(TRIALS):
        a = times(random, count, memory, 100.0)
        b = times(random, count, memory, 100.0 * (1 + effect))
        began = time.perf_counter()
        _, low, high, *_ = _native.core().ratio_of_medians(b, a, CONFIDENCE, REPLICATES, 1)
        spent += time.perf_counter() - began
        held += low <= 1 + effect <= high
        slower += low > 1 + WITHIN
        same += low >= 1 / (1 + WITHIN) and high <= 1 + WITHIN
        widths.append(high - low)
    return {
        "iterations": count,
        "memory": memory,
        "effect": effect,
        "holds_the_truth": held / TRIALS,
        "SLOWER": slower / TRIALS,
        "SAME": same / TRIALS,
        "width": float(np.median(widths)),
        "ms_a_row": spent / TRIALS * 1e3,
    }


def main() -> None:
    arguments = harness.parser((__doc__ or "").partition("\n")[0], 1).parse_args()
    rows = [
        cell(count, memory, effect)
        for count in (10, 50, 200, 512)
        for memory in (0.0, 0.5, 0.9)
        for effect in (0.0, 0.05, 0.15)
    ]
    harness.report("compare_verdicts", rows, arguments.json, trials=TRIALS)


if __name__ == "__main__":
    main()
