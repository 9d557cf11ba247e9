"""A small network is trained on all ranks for a few steps: are they still the same, bit by bit?"""

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from oddrank.bench.group import connect as group_of
from oddrank.control.stages import Context, Rounds, Stage
from oddrank.finding import Finding
from oddrank.selftest.choice import Level, Options
from oddrank.selftest.findings import train as findings
from oddrank.selftest.stages import connect
from oddrank.selftest.training import Training, kind_of_device

NAME = "train"
# The first one is a warm-up: its time is not told.
_STEPS: dict[Level, int] = {"quick": 4, "normal": 8, "full": 20}
# Back end -> width of the layers and size of the batch.
_SHAPES = {"nccl": (2048, 1024), "gloo": (256, 64)}
_SMALL = (64, 16)
# Weights, gradients, and one flat copy of these; four bytes each, and four layers.
_COPIES = 3 * 4 * 4
# So many of one kind, and no more, may differ from all others to be named: with more of them it
# is two kinds of device that we take for one.
_FEWEST_OTHERS = 2
_MOST_ODD = 1 / 8


def _measure(context: Context) -> dict[str, Any]:
    told = context.parameters
    group = group_of(context, "")
    context.step("make the network")
    training = Training(group, *told["shape"])
    for number in range(told["steps"]):
        training.step(number)
    return {
        "kind": kind_of_device(group),
        "step_s": [round(seconds, 6) for seconds in training.step_s[1:]],
        "own_s": [round(seconds, 6) for seconds in training.own_s[1:]],
        **asdict(training.bits),
    }


@dataclass(frozen=True)
class Vote:
    """Who has something else than most, and whether most are enough to say that those are odd."""

    odd: tuple[int, ...]
    sure: bool


def vote(values: Mapping[int, Hashable]) -> Vote:
    """Of ranks that should all have the same."""
    common, times = Counter(values.values()).most_common(1)[0]
    odd = tuple(sorted(rank for rank, value in values.items() if value != common))
    most = max(1, int(_MOST_ODD * len(values)))
    return Vote(odd, times >= _FEWEST_OTHERS and len(odd) <= most)


def _judge(rounds: Rounds) -> list[Finding]:
    """The first thing that goes wrong: what comes after it are its consequences."""
    said = rounds.of(NAME)
    kinds: dict[str, list[int]] = {}
    for rank, result in said.items():
        kinds.setdefault(result["kind"], []).append(rank)
    steps = min(len(result["loss"]) for result in said.values())
    found = _replicas(rounds, kinds, 0)
    for step in range(steps):
        found = found or _unsound(rounds, step) or _own(rounds, kinds, step)
        found = found or _replicas(rounds, kinds, step + 1)
    return found


def _unsound(rounds: Rounds, step: int) -> list[Finding]:
    """Loss or gradients that are not finite, of a rank's own."""
    said = rounds.of(NAME)
    ranks = [rank for rank, result in said.items() if not result["sound"][step]]
    if not ranks:
        return []
    losses = {rank: said[rank]["loss"][step] for rank in ranks}
    if 2 * len(ranks) > len(said):
        return [findings.all_unsound(rounds, ranks, step, losses)]
    return [findings.unsound(rounds, ranks, step, losses)]


def _own(rounds: Rounds, kinds: Mapping[str, list[int]], step: int) -> list[Finding]:
    """What each rank computed by itself, from the same data and the same parameters."""
    said = rounds.of(NAME)
    found = []
    for kind, ranks in kinds.items():
        own = vote({r: (said[r]["loss"][step], said[r]["gradients"][step]) for r in ranks})
        if own.odd and not own.sure:
            found.append(findings.own_differ(rounds, ranks, step, kind))
            continue
        others = len(ranks) - len(own.odd)
        found += [findings.other_gradients(rounds, rank, step, others, kind) for rank in own.odd]
    return found


def _replicas(rounds: Rounds, kinds: Mapping[str, list[int]], step: int) -> list[Finding]:
    """The parameters after so many steps, where everything that went into them was the same."""
    said = rounds.of(NAME)
    found = []
    for kind, ranks in kinds.items():
        replicas = vote({rank: said[rank]["parameters"][step] for rank in ranks})
        if replicas.odd and not replicas.sure:
            found.append(findings.replicas_differ(rounds, ranks, step, kind))
            continue
        others = len(ranks) - len(replicas.odd)
        found += [findings.other_parameters(rounds, rank, step, others) for rank in replicas.odd]
    return found


def stage(options: Options) -> Stage:
    def plan(rounds: Rounds) -> dict[str, Any]:
        shape = _SHAPES[connect.backend(rounds)]
        if _COPIES * shape[0] ** 2 > connect.free(rounds):
            shape = _SMALL
        return {"steps": _STEPS[options.level], "shape": shape}

    return Stage(NAME, 120, _measure, _judge, plan)
