"""Simulates how often the self-test names a healthy rank, and how often it finds a slow one.

python benchmarks/selftest/simulated_clusters.py --json benchmarks/results/simulated_clusters.json

Clusters of 2 to 4,096 ranks in nodes of up to 8; 20 figures, each judged for effects of 3 %. Every
repeat has normal noise, and one in 20 an exponential tail. The ranks of a node share a part of
their healthy spread, and noise that lasts over a few repeats; all drift together during the
measurement. The recheck is simulated too: suspects measure again beside good ranks, as often as the
plan says. One rank is slow in one figure. false: share of runs in which a healthy rank or node was
named.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))
import numpy as np

import harness
from oddrank.control.stages import RankState, RunState
from oddrank.selftest import speed_judge
from oddrank.selftest.speed_judge import SPEED, Metric
from oddrank.selftest.stages import speed

FIGURES = 20
SIZES = (2, 3, 4, 8, 16, 64, 512, 4096)
# Condition -> noise of a repeat, healthy spread of the ranks.
WORLDS = {
    "as expected": (0.02, 0.004),
    "calm": (0.02, 0.002),
    "noisy": (0.05, 0.004),
    "uneven": (0.02, 0.007),
}
EFFECTS = (0.0, 0.05, 0.03)
NODE = 8
FIRST, MOST = 25, 1600

TABLE = tuple(
    Metric(f"m{i}", f"figure {i}", "GB/s", 0.03, "gpu", FIRST, MOST) for i in range(FIGURES)
)


@dataclass(frozen=True)
class Cluster:
    """levels: the true time of each rank for each figure, (figure, rank)."""

    random: np.random.Generator
    levels: np.ndarray
    noise: float

    @staticmethod
    def of(
        random: np.random.Generator, ranks: int, noise: float, spread: float, effect: float
    ) -> "Cluster":
        """Makes a cluster: nodes have half of the spread's variance; rank 0 is slow in figure 0."""
        nodes = np.arange(ranks) // NODE
        part = spread / np.sqrt(2)
        own = part * random.standard_normal((FIGURES, ranks))
        shared = part * random.standard_normal((FIGURES, nodes[-1] + 1))
        levels = 1 + own + shared[:, nodes]
        levels[0, 0] *= 1 + effect
        return Cluster(random, levels, noise)

    def rates(self, figure: int, ranks: np.ndarray, count: int) -> np.ndarray:
        """Returns rates, the inverse of times, (rank, repeat)."""
        random, nodes = self.random, ranks // NODE
        times = 1 + self.noise * random.standard_normal((len(ranks), count))
        tail = random.random(times.shape) < 0.05
        times[tail] *= 1 + random.exponential(5 * self.noise, int(tail.sum()))
        # Noise of each node, new every 5 repeats, and a drift of all ranks.
        weather = random.standard_normal((nodes.max() + 1, count // 5 + 1)).repeat(5, axis=1)
        drift = np.linspace(0, 0.02 * random.standard_normal(), count)
        common = 1 + 0.2 * self.noise * weather[nodes][:, :count] + drift
        return 100 / (self.levels[figure, ranks, None] * np.maximum(times, 0.1) * common)

    def measured(
        self, ranks: Mapping[str, Sequence[int]], repeats: Mapping[str, int]
    ) -> dict[int, dict[str, Any]]:
        """Returns the results of stage speed."""
        results: dict[int, dict[str, Any]] = {
            rank: {"classes": {"gpu": "a GPU"}} for some in ranks.values() for rank in some
        }
        for name, some in ranks.items():
            rates = self.rates(int(name[1:]), np.array(some), repeats[name]).tolist()
            for rank, values in zip(some, rates, strict=True):
                results[rank][name] = values
        return results


def rounds_of(ranks: int) -> RunState:
    states = {
        rank: RankState(
            rank, host=f"n{rank // NODE}", node=rank // NODE, local_rank=rank % NODE, contact="ok"
        )
        for rank in range(ranks)
    }
    return RunState(ranks, states)


def run(cluster: Cluster, state: RunState) -> tuple[set[tuple[int, ...]], bool]:
    """Returns the ranks that are named in the end, and whether others only seem slow."""
    first_repeats = {one.name: FIRST for one in TABLE}
    everybody = dict.fromkeys(first_repeats, range(state.world))
    state.results[SPEED] = cluster.measured(everybody, first_repeats)
    first = speed_judge.look(state, state.of(SPEED))
    planned = speed.plan_recheck(state, first)
    state.results["speed_recheck"] = cluster.measured(planned.ranks(), planned.repeats)
    again = speed_judge.look(state, state.of("speed_recheck"), first, planned.good)
    slow = planned.of_doubted(again.slow())
    seem = planned.of_doubted(again.seem_slow())
    return {one.ranks for one in slow}, bool(seem) and not slow


def cell(world: str, ranks: int, effect: float, seconds: float, most: int) -> dict[str, object]:
    """Makes as many runs as `seconds` allow, at least 3 and at most `most`."""
    noise, spread = WORLDS[world]
    random = np.random.default_rng(
        [SIZES.index(ranks), list(WORLDS).index(world), int(effect * 100)]
    )
    state = rounds_of(ranks)
    runs = found = false = unknown = 0
    end = time.monotonic() + seconds
    while runs < most and (runs < 3 or time.monotonic() < end):
        named, unsure = run(Cluster.of(random, ranks, noise, spread, effect), state)
        right = {(0,)} if effect else set()
        runs += 1
        found += bool(effect) and (0,) in named
        false += bool(named - right)
        unknown += unsure
    return {
        "world": world,
        "noise": noise,
        "spread": spread,
        "ranks": ranks,
        "effect": effect,
        "runs": runs,
        "found": found / runs if effect else None,
        "false": false / runs,
        "unknown": unknown / runs,
    }


def main() -> None:
    parser = harness.parser(__doc__.partition("\n")[0], 1)
    parser.add_argument("--ranks", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--worlds", nargs="*", default=list(WORLDS))
    parser.add_argument("--seconds", type=float, default=8.0, help="a cell, and at most --runs")
    parser.add_argument("--runs", type=int, default=1000)
    arguments = parser.parse_args()
    with mock.patch.object(speed_judge, "TABLE", TABLE):
        rows = [
            cell(world, ranks, effect, arguments.seconds, arguments.runs)
            for world in arguments.worlds
            for ranks in arguments.ranks
            for effect in EFFECTS
        ]
    harness.report("simulated_clusters", rows, arguments.json)


if __name__ == "__main__":
    main()
