"""How often the self-test names a healthy rank, and how often it finds a slow one: simulated.

python benchmarks/selftest/simulated_clusters.py --json benchmarks/results/simulated_clusters.json

Clusters of 2 to 4,096 ranks in nodes of up to 8, 20 figures looked at for effects of 3 %. Every
repeat has noise: normal, and one in 20 takes longer by an exponential tail. The ranks of a node
share a part of their healthy spread, and a noise that lasts over some repeats; all drift together
while they are measured. Both looks are simulated: whoever may be slow measures again beside good
ones, as often as the plan says. One rank is slow in one figure; false: in how many runs a rank or
node was named that is healthy.
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
from oddrank.control.root import RankState
from oddrank.control.stages import Rounds
from oddrank.selftest import judge, metrics, second
from oddrank.selftest.metrics import SPEED, Metric

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
    Metric(f"m{i}", SPEED, f"figure {i}", "GB/s", "high", 0.03, "gpu", FIRST, MOST)
    for i in range(FIGURES)
)


@dataclass(frozen=True)
class Cluster:
    """levels: what each rank takes for each figure in truth, (figure, rank)."""

    random: np.random.Generator
    levels: np.ndarray
    noise: float

    @staticmethod
    def of(
        random: np.random.Generator, ranks: int, noise: float, spread: float, effect: float
    ) -> "Cluster":
        """Half of the spread's variance is the nodes'. Rank 0 is slow in the first figure."""
        nodes = np.arange(ranks) // NODE
        part = spread / np.sqrt(2)
        own = part * random.standard_normal((FIGURES, ranks))
        shared = part * random.standard_normal((FIGURES, nodes[-1] + 1))
        levels = 1 + own + shared[:, nodes]
        levels[0, 0] *= 1 + effect
        return Cluster(random, levels, noise)

    def rates(self, figure: int, ranks: np.ndarray, count: int) -> np.ndarray:
        """(rank, repeat): the inverse of the times."""
        random, nodes = self.random, ranks // NODE
        times = 1 + self.noise * random.standard_normal((len(ranks), count))
        tail = random.random(times.shape) < 0.05
        times[tail] *= 1 + random.exponential(5 * self.noise, int(tail.sum()))
        # A node's own weather, new every 5 repeats, and a drift of all.
        weather = random.standard_normal((nodes.max() + 1, count // 5 + 1)).repeat(5, axis=1)
        drift = np.linspace(0, 0.02 * random.standard_normal(), count)
        common = 1 + 0.2 * self.noise * weather[nodes][:, :count] + drift
        return 100 / (self.levels[figure, ranks, None] * np.maximum(times, 0.1) * common)

    def measured(
        self, ranks: Mapping[str, Sequence[int]], repeats: Mapping[str, int]
    ) -> dict[int, dict[str, Any]]:
        """What stage speed gives."""
        results: dict[int, dict[str, Any]] = {
            rank: {"classes": {"gpu": "a GPU"}, "facts": {}}
            for some in ranks.values()
            for rank in some
        }
        for name, some in ranks.items():
            rates = self.rates(int(name[1:]), np.array(some), repeats[name]).tolist()
            for rank, values in zip(some, rates, strict=True):
                results[rank][name] = second.to_send(values)
        return results


def rounds_of(ranks: int) -> Rounds:
    states = {
        rank: RankState(
            rank, host=f"n{rank // NODE}", node=rank // NODE, local_rank=rank % NODE, contact="ok"
        )
        for rank in range(ranks)
    }
    return Rounds(ranks, states)


def run(cluster: Cluster, rounds: Rounds) -> tuple[set[tuple[int, ...]], bool]:
    """Who is named in the end, and whether somebody only seems slow."""
    first_repeats = {one.name: FIRST for one in TABLE}
    everybody = dict.fromkeys(first_repeats, range(rounds.world))
    rounds.results[SPEED] = cluster.measured(everybody, first_repeats)
    first = judge.look(rounds, SPEED)
    planned = second.plan(rounds, first)
    rounds.results["again"] = cluster.measured(planned.ranks(), planned.repeats)
    again = judge.look(rounds, "again", first, planned.good)
    slow = planned.of_doubted(again.slow())
    seem = planned.of_doubted(again.seem_slow())
    return {one.ranks for one in slow}, bool(seem) and not slow


def cell(world: str, ranks: int, effect: float, seconds: float, most: int) -> dict[str, object]:
    """As many runs as there is time for."""
    noise, spread = WORLDS[world]
    random = np.random.default_rng(
        [SIZES.index(ranks), list(WORLDS).index(world), int(effect * 100)]
    )
    rounds = rounds_of(ranks)
    runs = found = false = unknown = 0
    end = time.monotonic() + seconds
    while runs < most and (runs < 3 or time.monotonic() < end):
        named, unsure = run(Cluster.of(random, ranks, noise, spread, effect), rounds)
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
    with mock.patch.object(metrics, "TABLE", TABLE):
        rows = [
            cell(world, ranks, effect, arguments.seconds, arguments.runs)
            for world in arguments.worlds
            for ranks in arguments.ranks
            for effect in EFFECTS
        ]
    harness.report("simulated_clusters", rows, arguments.json)


if __name__ == "__main__":
    main()
