"""Measures the seconds, bytes and memory of the root of `bench pairs` with 10,000 ranks.

python benchmarks/bench/pairs_at_scale.py --json benchmarks/results/pairs_at_scale.json

Each row runs in its own process. The ranks' results of both measurements are simulated. The
command's own code does the rest: the plan for the ranks, one rank's part, the judgement, the
report. One node or one rank sends 30 % more slowly; the noise of a repeat is 3 %.
"""

import json
import math
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from oddrank.bench.pairs.judge import PAIRS, RECHECK, Judge, settle
from oddrank.bench.pairs.report import data_of, squares_of, tables_of
from oddrank.bench.pairs.schedule import (
    Game,
    pack,
    passes_of,
    unpack,
)
from oddrank.bench.pairs.stages import games_of_all, games_of_recheck
from oddrank.control.stages import RankState, RunState, nodes_of

NOISE, SLOWER, REPEATS = 0.03, 0.3, 4


@dataclass
class Took:
    """Seconds of each step of the root, by name."""

    seconds: dict[str, float] = field(default_factory=dict)

    def time(self, name: str, work: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        done = work()
        self.seconds[name] = round(time.perf_counter() - began, 3)
        return done


def states_of(nodes: int, per_node: int, order: str) -> dict[int, RankState]:
    world = nodes * per_node
    places = list(range(world))
    if order == "cyclic":
        places = [rank % nodes * per_node + rank // nodes for rank in range(world)]
    elif order == "random":
        Random(1).shuffle(places)
    return {
        rank: RankState(rank, f"node{p // per_node}", p // per_node, p % per_node, contact="ok")
        for rank, p in enumerate(places)
    }


def measured(games: list[Game], world: int, slow: set[int], random: Random) -> dict[int, Any]:
    """Returns all ranks' results of the stage."""
    met: dict[int, Any] = {rank: {game.where: [] for game in games} for rank in range(world)}
    passes = passes_of(sum(game.turns() for game in games))
    for game in games:
        for rank in {rank for team in game.teams for rank in team}:
            for one_pass in range(passes):
                for meeting in game.meetings(rank, one_pass):
                    if meeting.peer is not None:
                        slower = meeting.peer in slow and game.where != "inside"
                        rates = repeats(10 * (1 - SLOWER * slower), random)
                        latency = repeats(5, random) if meeting.first else []
                        met[rank][game.where].append((meeting.peer, rates, latency))
    return met


def repeats(value: float, random: Random) -> list[float]:
    return [value * math.exp(random.gauss(0, NOISE)) for _ in range(REPEATS)]


def run(nodes: int, per_node: int, order: str, fault: str) -> dict[str, Any]:
    state = RunState(nodes * per_node, states_of(nodes, per_node, order))
    odd = nodes_of(state)[nodes // 3]
    slow = {"healthy": set(), "node": {*odd}, "rank": {odd[0]}}[fault]
    took, judge, random = Took(), Judge(0.2), Random(2)
    games = took.time("plan", lambda: games_of_all(nodes_of(state)))
    told = took.time("pack", lambda: json.dumps(pack(games, state.world)))
    own = took.time(
        "a rank's own part", lambda: [g.meetings(1, 0) for g in unpack(json.loads(told))]
    )
    state.results[PAIRS] = measured(games, state.world, slow, random)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = took.time("judge", lambda: judge.suspects(state))
    if found:
        again = took.time("plan again", lambda: games_of_recheck(judge, state))
        state.results[RECHECK] = measured(again, state.world, slow, random)
        found = took.time("judge again", lambda: settle(judge.confirmed(state))[0])
    summary = took.time("sentence", lambda: judge.all_well(state, ""))
    squares = took.time("matrices", lambda: squares_of(state, judge.measurement(state)))
    took.time("tables", lambda: tables_of(squares))
    data = took.time("report", lambda: json.dumps(data_of(squares)))
    named = sorted({rank for finding in found for rank in finding.who.ranks})
    assert own
    assert summary
    return {
        "nodes": nodes,
        "ranks": state.world,
        "order": order,
        "fault": fault,
        "right": named == sorted(slow),
        "plan_bytes": len(told),
        "report_MB": round(len(data) / 1e6, 2),
        "results_MiB": before >> 10,
        "judge_MiB": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10,
        "seconds": took.seconds,
        "total_seconds": round(sum(took.seconds.values()), 2),
    }


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--ranks", type=int, default=10_000)
    given = parser.parse_args()
    rows = []
    cases = [(8, "by node", "healthy"), (8, "cyclic", "node"), (8, "random", "rank")]
    for per_node, order, fault in [*cases, (1, "by node", "healthy"), (1, "random", "node")]:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            rows.append(pool.apply(run, (given.ranks // per_node, per_node, order, fault)))
        print(json.dumps(rows[-1]), flush=True)
    if given.json:
        harness.write("pairs_at_scale", rows, given.json)


if __name__ == "__main__":
    main()
