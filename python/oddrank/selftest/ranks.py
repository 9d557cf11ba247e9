"""What a report says of every rank: who it is, and all that it measured, raw."""

from collections.abc import Mapping
from typing import Any

from oddrank.control.nodes import nodes_of
from oddrank.control.stages import Rounds
from oddrank.control.walk import Outcome
from oddrank.finding import fold
from oddrank.selftest.facts.compare import group, not_readable

_FACTS = "environment"
# A fact with more values than this stands with each rank.
_MOST_VALUES = 64


def facts(rounds: Rounds) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """The facts of all ranks, each once; and those of single ranks: rank -> name -> value.

    common: what all ranks have. differing: each value with the ranks that have it.
    """
    said = rounds.of(_FACTS)
    common: dict[str, Any] = {}
    differing: dict[str, list[dict[str, Any]]] = {}
    own: dict[int, dict[str, Any]] = {rank: {} for rank in said}
    for name in dict.fromkeys(name for one in said.values() for name in one):
        groups = group({rank: one.get(name) for rank, one in said.items()})
        if len(groups) == 1:
            common[name] = groups[0][0]
        elif len(groups) <= _MOST_VALUES:
            differing[name] = [{"ranks": fold(who), "value": value} for value, who in groups]
        else:
            for value, who in groups:
                for rank in who:
                    own[rank][name] = value
    unread = {name: fold(who) for name, who in not_readable(said).items()}
    return {"common": common, "differing": differing, "not_readable": unread}, own


def nodes(outcome: Outcome) -> list[dict[str, Any]]:
    """By their lowest rank. joined_s: when the last rank of it came, from the first moment on."""
    found = []
    for node in nodes_of(outcome.rounds):
        came = [outcome.joined[rank] for rank in node if rank in outcome.joined]
        found.append(
            {
                "host": outcome.rounds.states[node[0]].host or None,
                "ranks": fold(node),
                "joined_s": round(max(came), 3) if len(came) == len(node) else None,
            }
        )
    return found


def ranks(outcome: Outcome, own: Mapping[int, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """In order. metrics: by stage, what the rank published there; own: facts of it alone."""
    rounds = outcome.rounds
    number = {rank: n for n, node in enumerate(nodes_of(rounds)) for rank in node}
    found = []
    for rank, state in sorted(rounds.states.items()):
        came = state.contact != "never"
        local = state.local_rank if came else None
        metrics = {
            stage: results[rank]
            for stage, results in rounds.results.items()
            if stage != _FACTS and rank in results and results[rank] is not None
        }
        if own.get(rank):
            metrics[_FACTS] = own[rank]
        found.append(
            {
                "rank": rank,
                "host": state.host or None,
                "node": number[rank] if came else None,
                "local_rank": local,
                "device": f"GPU {local}" if rounds.device == "GPU" else rounds.device or None,
                "metrics": metrics,
            }
        )
    return found
