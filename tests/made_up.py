"""Made-up ranks and measurements, for tests of judges without a job."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from oddrank.control.stages import RankState, RunState


def states_of(nodes: Sequence[int]) -> dict[int, RankState]:
    """Returns healthy ranks. nodes: the number of ranks on each node."""
    places = [(node, local) for node, ranks in enumerate(nodes) for local in range(ranks)]
    return {
        rank: RankState(rank, f"node{node}", node, local, contact="ok")
        for rank, (node, local) in enumerate(places)
    }


def run_by_rank(results: dict[str, dict[int, Any]], *, ranks: int, on_node: int = 2) -> RunState:
    """Returns a run with these results: stage -> rank -> result."""
    whole, rest = divmod(ranks, on_node)
    return RunState(ranks, states_of([on_node] * whole + [rest] * (rest > 0)), results)


def run_by_node(
    stage: str, measured: Sequence[Any], *, per_node: int = 2, **others: Sequence[Any]
) -> RunState:
    """Returns a run. measured: results of the lowest ranks in `stage`; others: other stages."""
    ranks = len(measured) * per_node
    stages: Mapping[str, Sequence[Any]] = {stage: measured, **others}
    results = {
        name: {
            rank: None if rank % per_node else reports[rank // per_node] for rank in range(ranks)
        }
        for name, reports in stages.items()
    }
    return RunState(ranks, states_of([per_node] * len(measured)), results)


def context(parameters: Any = None, *, launch: Any = None, **more: Any) -> Any:
    """Returns a stage's means to measure. launch: the rank's place, as Launch has it."""
    launch = launch or SimpleNamespace(rank=0, local_rank=0, host="node0")
    return SimpleNamespace(
        parameters=parameters, launch=launch, step=lambda *_, **__: None, scratch={}, **more
    )
