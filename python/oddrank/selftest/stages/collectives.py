"""Runs collectives over all ranks, in each node and across nodes, and checks every value.

The values are exact in float32 and bfloat16.
"""

from itertools import product
from typing import Any

from oddrank.bench import findings, verify
from oddrank.bench.backend import needed
from oddrank.bench.c10d import C10d
from oddrank.bench.case import Case
from oddrank.bench.collectives import COLLECTIVES
from oddrank.control.evidence import nodes_of
from oddrank.control.stages import Context, RunState, Skip, Stage
from oddrank.finding import Finding
from oddrank.selftest.choice import Level, Options
from oddrank.selftest.stages import connect, device
from oddrank.selftest.stages.connect import WORLD, made_by, teams_of

NAME = "collectives"
_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
_DTYPES = ("float32", "bfloat16")
_SIZES: dict[Level, tuple[int, ...]] = {
    "quick": (8, 1 << 20),
    "normal": (8, 4 << 10, 1 << 20, 64 << 20),
    "full": (8, 512, 4 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20),
}
# Memory of a case, in sizes: a buffer to send and one to receive, and as much again for torch.
_BUFFERS = 4
# Larger groups skip all_to_all: nccl keeps a connection and its buffers for each pair.
_MOST_ALL_TO_ALL = 256
# A rank reports at most this many cases with wrong values.
_MOST_TOLD = 4

LOCALISE = "localise"


def case_of(asked: tuple[str, str, int], world: int) -> Case:
    """Makes a case. asked: collective, dtype, size. world: size of the group that runs it."""
    name, dtype, size = asked
    row = COLLECTIVES[name]
    return row.case(dtype, size, "sum", row.in_place, world)


def seen_in(run: RunState) -> list[dict[str, Any]]:
    """Returns the wrong values that the ranks saw."""
    return [m for result in run.of(NAME).values() for m in result["mismatches"]]


def _measure(context: Context) -> dict[str, Any]:
    groups = made_by(context)
    asked = list(product(_COLLECTIVES, _DTYPES, context.parameters["sizes"]))
    memory = C10d(groups.world)
    most = max(case_of(one, groups.largest[WORLD]).bytes for one in asked)
    memory.reserve(needed(most, in_place=False))
    seen_here: list[dict[str, Any]] = []
    for one, (name, largest) in product(asked, groups.largest.items()):
        if one[0] == "all_to_all" and largest > _MOST_ALL_TO_ALL:
            continue
        # As many turns in all groups of a name: a stuck rank shows by fewer steps.
        turns = verify.turns_of(case_of(one, largest), largest)
        group = groups.of[name]
        backend, case = memory.among(group), case_of(one, group.world)
        seen = verify.verify(group, backend, case, backend.prepare(case), turns)
        if seen is not None and len(seen_here) < _MOST_TOLD:
            seen_here.append({**(verify.as_payload(seen) or {}), "asked": one})
    return {"cases": len(asked), "mismatches": seen_here}


def _judge(run: RunState) -> list[Finding]:
    seen = seen_in(run)
    return [findings.wrong_values(run, NAME, seen)] if seen else []


def _plan_localise(run: RunState) -> dict[str, Any]:
    """Returns case and place of the first wrong value, and the name of the group that saw it."""
    first = seen_in(run)[0]
    return {key: first[key] for key in ("asked", "element", "turn", "among")}


def _measure_own(context: Context) -> dict[str, Any]:
    params = context.parameters
    group = made_by(context).of[params["among"]]
    case = case_of(tuple(params["asked"]), group.world)
    return {
        "wrong": verify.gathered_wrong(group, C10d(group), case, params["element"], params["turn"])
    }


def _judge_own(run: RunState) -> list[Finding]:
    """Names a rank only if all of its group saw it wrong: a rank that receives badly sees all ranks
    wrong. Groups without wrong values don't count."""
    seen = seen_in(run)
    among = seen[0]["among"]
    observers = {m["observer"] for m in seen if m["among"] == among}
    views = {rank: set(result["wrong"]) for rank, result in run.of(LOCALISE).items()}
    agreed: set[int] = set()
    for team in teams_of(nodes_of(run))[among]:
        if observers.intersection(team):
            agreed |= set.intersection(*(views[rank] for rank in team))
    if verify.can_be_named(agreed, run.world):
        return [findings.wrong_contribution(run, NAME, sorted(agreed), seen)]
    return [findings.not_localised(run, NAME, seen, sorted(agreed))]


def stage(options: Options) -> Stage:
    def plan(run: RunState) -> dict[str, Any] | Skip:
        tested = device.plan(run)
        if isinstance(tested, Skip):
            return tested
        smallest, *larger = _SIZES[options.level]
        fitting = [size for size in larger if _BUFFERS * size <= connect.free(run)]
        return {"sizes": [smallest, *fitting]}

    return Stage(NAME, 180, _measure, _judge, plan)


def localise(options: Options) -> Stage:
    return Stage(LOCALISE, 60, _measure_own, _judge_own, _plan_localise, confirms=NAME)
