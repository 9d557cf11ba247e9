"""Runs collectives over all ranks, in each node and across nodes, and checks every value.

The values are exact in float32 and bfloat16.
"""

from collections.abc import Mapping
from itertools import product
from typing import TypeAlias, TypedDict

from oddrank.bench import verify
from oddrank.bench.backend import needed
from oddrank.bench.c10d import C10d
from oddrank.bench.case import COLLECTIVES, Case
from oddrank.bench.data import Mismatch
from oddrank.control.stages import Context, RunState, Skip, Stage, nodes_of
from oddrank.finding import Finding
from oddrank.selftest import Depth, Options
from oddrank.selftest.stages import connect, device
from oddrank.selftest.stages.connect import WORLD, made_by, teams_of

NAME = "collectives"
_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
_DTYPES = ("float32", "bfloat16")
_SIZES: dict[Depth, tuple[int, ...]] = {
    "quick": (8, 1 << 20),
    "normal": (8, 4 << 10, 1 << 20, 64 << 20),
    "full": (8, 512, 4 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20),
}
# Memory of a case, in sizes: a buffer to send and one to receive, and as much again for torch.
_BUFFERS = 4
# Larger groups skip all_to_all: nccl keeps a connection and its buffers for each pair.
_MOST_ALL_TO_ALL = 256
_MOST_TOLD = 4  # a rank reports at most this many cases with wrong values

LOCALISE = "localise"

Asked: TypeAlias = "tuple[str, str, int]"  # collective, dtype, size


class WrongValue(Mismatch):
    asked: Asked


class Result(TypedDict):
    """cases: how many cases ran. mismatches: the first ones with wrong values."""

    cases: int
    mismatches: list[WrongValue]


def case_of(asked: Asked, world: int) -> Case:
    """Makes a case. world: size of the group that runs it."""
    name, dtype, size = asked
    return COLLECTIVES[name].case(dtype, size, "sum", world)


def seen_in(run: RunState) -> list[WrongValue]:
    results: Mapping[int, Result] = run.of(NAME)
    return [m for result in results.values() for m in result["mismatches"]]


def _measure(context: Context[list[int]]) -> Result:
    groups = made_by(context)
    asked = list(product(_COLLECTIVES, _DTYPES, context.parameters))
    memory = C10d(groups.world)
    most = max(case_of(one, groups.largest[WORLD]).bytes for one in asked)
    memory.reserve(needed(most, in_place=False))
    seen_here: list[WrongValue] = []
    for one, (name, largest) in product(asked, groups.largest.items()):
        if one[0] == "all_to_all" and largest > _MOST_ALL_TO_ALL:
            continue
        # As many turns in all groups of a name: a stuck rank shows by fewer steps.
        turns = verify.turns_of(case_of(one, largest), largest)
        group = groups.of[name]
        backend, case = memory.among(group), case_of(one, group.world)
        seen = verify.verify(group, backend, case, backend.prepare(case), turns)
        if seen is not None and len(seen_here) < _MOST_TOLD:
            seen_here.append({**seen, "asked": one})
    return {"cases": len(asked), "mismatches": seen_here}


def _judge(run: RunState, results: Mapping[int, Result]) -> list[Finding]:
    seen = seen_in(run)
    return [verify.wrong_values(NAME, seen)] if seen else []


def _measure_own(context: Context[WrongValue]) -> list[int]:
    params = context.parameters
    group = made_by(context).of[params["among"]]
    case = case_of(params["asked"], group.world)
    return verify.gathered_wrong(group, C10d(group), case, params["element"], params["turn"])


def _judge_own(run: RunState, results: Mapping[int, list[int]]) -> list[Finding]:
    seen = seen_in(run)
    among = seen[0]["among"]
    observers = {m["observer"] for m in seen if m["among"] == among}
    teams = [team for team in teams_of(nodes_of(run))[among] if observers.intersection(team)]
    return [verify.origin_of(run, NAME, seen, results, teams)]


def stage(options: Options) -> Stage[list[int], Result, list[Finding]]:
    def make_plan(run: RunState) -> list[int] | Skip:
        tested = device.make_plan(run)
        if isinstance(tested, Skip):
            return tested
        smallest, *larger = _SIZES[options.depth]
        fitting = [size for size in larger if _BUFFERS * size <= connect.free(run)]
        return [smallest, *fitting]

    return Stage(NAME, 180, _measure, _judge, make_plan)


def localise(options: Options) -> Stage[WrongValue, list[int], list[Finding]]:
    return Stage(LOCALISE, 60, _measure_own, _judge_own, lambda run: seen_in(run)[0], confirms=NAME)
