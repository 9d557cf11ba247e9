"""What ranks would have measured: figures for the judges of the self-test, without a job."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from oddrank.control.root import RankState
from oddrank.control.stages import Rounds
from oddrank.finding import Finding
from oddrank.selftest import metrics
from oddrank.selftest.choice import Options
from oddrank.selftest.metrics import SPEED
from oddrank.selftest.stages import again, speed

# Slower by so much: metric -> rank -> share.
Slow = Mapping[str, Mapping[int, float]]


def rounds_of(nodes: Sequence[int]) -> Rounds:
    """Ranks of so many nodes with that many ranks each."""
    states: dict[int, RankState] = {}
    for node, ranks in enumerate(nodes):
        for local in range(ranks):
            rank = len(states)
            states[rank] = RankState(
                rank, host=f"node{node}", node=node, local_rank=local, contact="ok"
            )
    environment = {rank: {"gpus": 0, "local_world": 1, "cuda_part": ""} for rank in states}
    return Rounds(len(states), states, {"environment": environment})


def measured(
    rounds: Rounds,
    random: Random,
    *,
    noise: float,
    slow: Slow | None = None,
    classes: Mapping[int, str] | None = None,
    repeats: Mapping[str, int] | None = None,
    facts: Mapping[int, Mapping[str, str]] | None = None,
) -> dict[int, dict[str, Any]]:
    """What stage speed gives, each figure around 100; a GPU's only where one of them is slow."""
    slow_scopes = {row.scope for row in metrics.of_stage(SPEED) if row.name in (slow or {})}
    table = [row for row in metrics.of_stage(SPEED) if row.scope in {"host", *slow_scopes}]
    rows = [row for row in table if repeats is None or row.name in repeats]
    return {
        rank: {
            "classes": {
                "host": (classes or {}).get(rank, "a CPU"),
                "gpu": (classes or {}).get(rank, "a GPU"),
            },
            "facts": dict((facts or {}).get(rank, {})),
            **{
                row.name: [
                    100
                    / (1 + (slow or {}).get(row.name, {}).get(rank, 0.0))
                    * random.lognormvariate(0, noise)
                    for _ in range(repeats[row.name] if repeats else row.repeats)
                ]
                for row in rows
            },
        }
        for rank in rounds.states
    }


def verdict(
    nodes: Sequence[int],
    *,
    slow: Slow | None = None,
    only_at_first: Slow | None = None,
    noise: float = 0.01,
    classes: Mapping[int, str] | None = None,
    facts: Mapping[int, Mapping[str, str]] | None = None,
    more: Mapping[int, Mapping[str, Any]] | None = None,
    seed: int = 0,
    baseline: Any = None,
) -> list[Finding]:
    """What both looks find in the end. more: rank -> what else it gives in the first look."""
    rounds, random = rounds_of(nodes), Random(seed)
    if baseline is not None:
        rounds.kept["baseline"] = baseline
    first = {
        name: {**(slow or {}).get(name, {}), **more} for name, more in (only_at_first or {}).items()
    }
    rounds.results[SPEED] = measured(
        rounds, random, noise=noise, slow={**(slow or {}), **first}, classes=classes, facts=facts
    )
    for rank, given in (more or {}).items():
        rounds.results[SPEED][rank] |= given
    found = speed.stage(Options()).judge(rounds)
    if not any(finding.stage == SPEED for finding in found):
        return found
    second = again.stage(Options())
    told = second.plan(rounds)
    results = measured(rounds, random, noise=noise, slow=slow, repeats=told["repeats"])
    for name, ranks in told["ranks"].items():
        for rank in set(results) - set(ranks):
            del results[rank][name]
    rounds.results[second.name] = results
    return [f for f in found if f.stage != SPEED] + second.judge(rounds)
