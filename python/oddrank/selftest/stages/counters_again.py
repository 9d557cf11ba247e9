"""Error counters after all other stages: what has grown meanwhile, and whose it is."""

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from oddrank.control.nodes import Node, node_of
from oddrank.control.stages import Context, Rounds, Skip, Stage
from oddrank.finding import Finding
from oddrank.selftest import counters
from oddrank.selftest.choice import Options
from oddrank.selftest.findings import counters as findings
from oddrank.selftest.stages.counters import KEPT, plan, read

# GPUs of a node that count the same error: fewer may be chance.
_FEW = 3


def _plan(rounds: Rounds) -> str | Skip:
    looked = rounds.of("counters").values()
    if not any(result["counters"] for result in looked):
        return Skip("no counter of a link or device is readable here")
    return plan(rounds)


def _measure(context: Context) -> dict[str, Any]:
    began, before = context.kept[KEPT]
    after, why = read(context)
    return {
        "seconds": time.monotonic() - began,
        "grown": counters.growth(before, after),
        "not_readable": why,
    }


def _too_much(key: str, by: int, seconds: float) -> bool:
    """Beyond what healthy hardware may count in that time; a minute's worth is always allowed."""
    counter = counters.BY_NAME.get(counters.split(key)[1])
    if counter is None or counter.a_minute is None:
        return False
    return by > counter.a_minute * max(1.0, seconds / 60)


def _judge(rounds: Rounds) -> list[Finding]:
    """Own errors need no peers; but what most nodes count is usual on such machines."""
    results = rounds.of("counters_again")
    grown: dict[str, dict[int, dict[str, int]]] = {}
    for rank, result in results.items():
        for key, by in result["grown"].items():
            if _too_much(key, by, result["seconds"]):
                place, name = counters.split(key)
                grown.setdefault(name, {}).setdefault(rank, {})[place] = by
    found = []
    nodes = _nodes(rounds, results)
    for name, ranks in grown.items():
        counter = counters.BY_NAME[name]
        if len(nodes) > 2 and 2 * len(_nodes(rounds, ranks)) > len(nodes):
            found.append(findings.usual_here(counter, ranks))
            continue
        shared = _most_gpus(rounds, counter, ranks)
        found += [findings.on_most_gpus(rounds, group, counter) for group in shared]
        told = {rank for group in shared for rank in group}
        found += [
            findings.grew(rounds, rank, counter, places, results[rank]["seconds"])
            for rank, places in ranks.items()
            if rank not in told
        ]
    return found


def _most_gpus(
    rounds: Rounds, counter: counters.Counter, ranks: Mapping[int, Mapping[str, int]]
) -> list[list[int]]:
    """Of each node most of whose GPUs count it, and a few at least: their ranks."""
    gpus: dict[Node, list[int]] = {}
    for rank, places in ranks.items():
        if findings.is_gpus(counter, places):
            gpus.setdefault(node_of(rounds.states[rank]), []).append(rank)
    sizes = Counter(map(node_of, rounds.states.values())) if gpus else Counter()
    return [
        group for node, group in gpus.items() if len(group) >= _FEW and 2 * len(group) > sizes[node]
    ]


def _nodes(rounds: Rounds, ranks: Any) -> set[Node]:
    return {node_of(rounds.states[rank]) for rank in ranks}


def stage(options: Options) -> Stage:
    return Stage("counters_again", 60, _measure, _judge, _plan, closes=True)
