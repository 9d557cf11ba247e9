"""What every rank runs on, compared across ranks: versions, limits, network, settings."""

from collections.abc import Iterator
from typing import Any

from oddrank.bench import place
from oddrank.control.nodes import nodes_of
from oddrank.control.stages import Context, Rounds, Stage
from oddrank.finding import Finding
from oddrank.selftest.choice import Options
from oddrank.selftest.facts import STEPS, TABLE, rules
from oddrank.selftest.facts.compare import Difference, Group, compare
from oddrank.selftest.facts.fact import Here
from oddrank.selftest.findings import environment as findings
from oddrank.selftest.findings.names import Places


def _measure(context: Context) -> dict[str, Any]:
    context.step("import torch")
    import torch

    context.step("ask CUDA for GPUs")
    found: dict[str, Any] = place.facts(context.launch)
    here = Here(context.launch, torch, context.master, dict(found))
    for step, facts in STEPS.items():
        context.step(step)
        found |= {fact.name: fact.value(here) for fact in facts}
    return found


def _judge(rounds: Rounds) -> list[Finding]:
    return [*_differences(rounds), *_odd_alone(rounds)]


def _differences(rounds: Rounds) -> Iterator[Finding]:
    """One finding for all facts in which the same ranks differ: another image changes many."""
    deviants: dict[tuple[int, ...], list[tuple[Difference, Group]]] = {}
    parted: dict[frozenset[tuple[int, ...]], list[Difference]] = {}
    for difference in compare(TABLE, rounds.of("environment"), nodes_of(rounds)):
        if difference.common is None:
            parts = frozenset(ranks for _, ranks in difference.groups)
            parted.setdefault(parts, []).append(difference)
            continue
        for group in difference.groups[1:]:
            deviants.setdefault(group[1], []).append((difference, group))
    places = Places(rounds)
    for found in deviants.values():
        yield findings.deviates(rounds, places, found)
    for differences in parted.values():
        yield findings.no_majority(places, differences)


def _odd_alone(rounds: Rounds) -> Iterator[Finding]:
    facts, nodes = rounds.of("environment"), nodes_of(rounds)
    for gpu, ranks in rules.shared_gpus(facts, nodes):
        yield findings.same_gpu(rounds, gpu, ranks)
    if far := rules.far_from_gpu(facts):
        yield findings.far_from_gpu(rounds, far)
    if full := rules.without_shm(facts, nodes):
        yield findings.without_shm(rounds, full)
    if soft := rules.few_files(facts, rounds.world):
        yield findings.few_files(rounds, soft)
    if cut_off := rules.without_interface(facts):
        yield findings.without_interface(rounds, cut_off)


def stage(options: Options) -> Stage:
    # Long: many ranks import torch from one busy file system.
    return Stage("environment", 300, _measure, _judge, counted=False)
