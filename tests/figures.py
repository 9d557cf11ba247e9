"""Made-up measurements for the judges of the self-test, without a job."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from made_up import states_of
from oddrank.control.stages import RunState
from oddrank.finding import Finding
from oddrank.selftest import Options, speed_judge
from oddrank.selftest.speed_judge import SPEED
from oddrank.selftest.stages import speed

# Slowdowns as shares: metric -> rank -> share.
Slow = Mapping[str, Mapping[int, float]]


def run_of(nodes: Sequence[int]) -> RunState:
    """Returns a run after stage `environment`. nodes: the number of ranks on each node."""
    states = states_of(nodes)
    environment = {rank: {"gpus": 0, "local_world": 1, "cuda_part": ""} for rank in states}
    return RunState(len(states), states, {"environment": environment})


def measured(
    run: RunState,
    random: Random,
    *,
    noise: float,
    slow: Slow | None = None,
    classes: Mapping[int, str] | None = None,
    repeats: Mapping[str, int] | None = None,
) -> dict[int, dict[str, Any]]:
    """Returns results of stage speed, all around 100; a GPU figure only if a rank is slow in it."""
    slow_scopes = {row.scope for row in speed_judge.TABLE if row.name in (slow or {})}
    table = [row for row in speed_judge.TABLE if row.scope in {"host", *slow_scopes}]
    rows = [row for row in table if repeats is None or row.name in repeats]
    return {
        rank: {
            "classes": {
                "host": (classes or {}).get(rank, "a CPU"),
                "gpu": (classes or {}).get(rank, "a GPU"),
            },
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
        for rank in run.states
    }


def verdict(
    nodes: Sequence[int],
    *,
    slow: Slow | None = None,
    only_at_first: Slow | None = None,
    noise: float = 0.01,
    classes: Mapping[int, str] | None = None,
    seed: int = 0,
) -> list[Finding]:
    """Returns the findings after the recheck."""
    run, random = run_of(nodes), Random(seed)
    first = {
        name: {**(slow or {}).get(name, {}), **more} for name, more in (only_at_first or {}).items()
    }
    run.results[SPEED] = measured(
        run, random, noise=noise, slow={**(slow or {}), **first}, classes=classes
    )
    found = speed.stage(Options()).conclude(run)
    if not any(finding.stage == SPEED for finding in found):
        return found
    second = speed.recheck(Options())
    plan = second.plan(run)
    results = measured(run, random, noise=noise, slow=slow, repeats=plan["repeats"])
    for name, ranks in plan["ranks"].items():
        for rank in set(results) - set(ranks):
            del results[rank][name]
    run.results[second.name] = results
    return [f for f in found if f.stage != SPEED] + second.conclude(run)
