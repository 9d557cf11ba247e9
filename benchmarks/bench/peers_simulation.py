"""How often oddrank.peers names a healthy rank, and how often it finds a slow one: simulated.

python benchmarks/bench/peers_simulation.py --json benchmarks/results/peers_simulation.json

N ranks, 12 metrics, repeats with a heavy tail (one in 20 takes 1.5 times as long on average), the
healthy ranks themselves differing by a spread. First repeats as the noise asks for; each suspect is
then measured again together with 3 controls, up to 1,600 times. The smallest effect looked for is
3 %, so that the line is at 2 %.
"""

import statistics
import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import numpy as np

import harness
from oddrank import peers

METRICS = 12
MOST_REPEATS = 1600
FIRST = {0.01: 5, 0.02: 9, 0.05: 25}  # noise of one repeat -> repeats of the first round
SIZES = {2: 150, 4: 150, 8: 150, 16: 120, 64: 40, 128: 20}  # ranks -> runs
SPREADS = (0.0, 0.002, 0.004, 0.007)
EFFECTS = (0.05, 0.03)


def repeats(random: np.random.Generator, level: np.ndarray, count: int, noise: float) -> np.ndarray:
    """Times of `count` repeats for each level: normal, with a tail to the right."""
    times = 1 + noise * random.standard_normal((len(level), count))
    tail = random.random(times.shape) < 0.05
    times[tail] *= 1 + random.exponential(0.5, int(tail.sum()))
    return level[:, None] * np.maximum(times, 0.1)


def run(
    random: np.random.Generator, ranks: int, noise: float, spread: float, effect: float
) -> set[int]:
    """Whom one run names, over all its metrics; rank 0 is slower by `effect` in the first one."""
    named: set[int] = set()
    comparisons = ranks * METRICS
    for metric in range(METRICS):
        level = 1 + spread * random.standard_normal(ranks)
        if metric == 0:
            level[0] *= 1 + effect
        first = repeats(random, level, FIRST[noise], noise)
        found = compare(dict(enumerate(first.tolist())), comparisons, None)
        named |= {peer.name for peer in found.slow}
        good = [peer.name for peer in reversed(found.peers) if peer.effect <= found.line]
        for suspect in found.suspects:
            if is_slow(random, suspect.name, good, level, noise, comparisons, found.spread):
                named.add(suspect.name)
    return named


def is_slow(  # noqa: PLR0917
    random: np.random.Generator,
    suspect: int,
    good: list[int],
    level: np.ndarray,
    noise: float,
    comparisons: int,
    spread: float,
) -> bool:
    """Measures the suspect again with known-good ones until it is sure or the budget ends."""
    middle = len(good) // 2  # neither the fastest nor the slowest of the good
    controls = good[max(0, middle - 1) :][:3]
    if not controls:
        return False
    panel = [suspect, *controls]
    taken = np.empty((len(panel), 0))
    count = FIRST[noise]
    while taken.shape[1] < MOST_REPEATS:
        taken = np.hstack([taken, repeats(random, level[panel], count, noise)])
        found = compare(dict(zip(panel, taken.tolist(), strict=True)), comparisons, spread)
        if any(peer.name == suspect for peer in found.slow):
            return True
        mine = next(peer for peer in found.peers if peer.name == suspect)
        if mine.effect + (mine.effect - mine.lower) < found.line:
            return False
        count = taken.shape[1]
    return False


def compare(
    measured: Mapping[int, list[float]], comparisons: int, spread: float | None
) -> peers.Comparison[int]:
    return peers.compare(
        measured, smallest=0.03, better="low", comparisons=comparisons, spread=spread
    )


def cell(noise: float, spread: float, ranks: int, runs: int) -> dict[str, float]:
    random = np.random.default_rng([int(noise * 1000), int(spread * 10000), ranks])
    healthy = [run(random, ranks, noise, spread, 0.0) for _ in range(runs)]
    row: dict[str, float] = {
        "noise": noise,
        "spread": spread,
        "ranks": ranks,
        "runs": runs,
        "false_alarms": statistics.mean(bool(named) for named in healthy),
    }
    for effect in EFFECTS:
        slow = [run(random, ranks, noise, spread, effect) for _ in range(runs)]
        row[f"found_{effect:.0%}"] = statistics.mean(0 in named for named in slow)
        row[f"wrong_{effect:.0%}"] = statistics.mean(bool(named - {0}) for named in slow)
    return row


def main() -> None:
    parser = harness.parser(__doc__.partition("\n")[0], 1)
    parser.add_argument("--ranks", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--share", type=float, default=1.0, help="of the runs")
    arguments = parser.parse_args()
    rows = []
    for noise in FIRST:
        for spread in SPREADS:
            for ranks in arguments.ranks:
                runs = max(10, round(SIZES.get(ranks, 60) * arguments.share))
                rows.append(cell(noise, spread, ranks, runs))
    harness.report("peers_simulation", rows, arguments.json)


if __name__ == "__main__":
    main()
