"""Collectives over all ranks, within each node and across nodes, every value checked: exact in
float32 and bfloat16, from 8 bytes on."""

from itertools import product
from typing import Any

from oddrank.bench import findings, verify
from oddrank.bench.c10d import C10d
from oddrank.bench.case import Case
from oddrank.bench.collectives import COLLECTIVES
from oddrank.bench.windows import needed
from oddrank.control.stages import Context, Rounds, Stage
from oddrank.finding import Finding
from oddrank.selftest.choice import Level, Options
from oddrank.selftest.groups import WORLD, made_by
from oddrank.selftest.stages import connect

NAME = "collectives"
_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
_DTYPES = ("float32", "bfloat16")
_SIZES: dict[Level, tuple[int, ...]] = {
    "quick": (8, 1 << 20),
    "normal": (8, 4 << 10, 1 << 20, 64 << 20),
    "full": (8, 512, 4 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20),
}
# A buffer to send from and one to receive in, and as much again that torch takes.
_BUFFERS = 4
# In larger groups nobody sends to everybody: nccl keeps a connection and its buffers for each pair.
_MOST_ALL_TO_ALL = 256
# Of each rank's wrong values so many cases are told.
_MOST_TOLD = 4


def case_of(asked: tuple[str, str, int], world: int) -> Case:
    """asked: a collective, a dtype and a size; world: of the group that runs it."""
    name, dtype, size = asked
    row = COLLECTIVES[name]
    return row.case(dtype, size, "sum", row.in_place, world)


def seen_in(rounds: Rounds) -> list[dict[str, Any]]:
    """What the ranks saw of wrong values."""
    return [m for result in rounds.of(NAME).values() for m in result["mismatches"]]


def _measure(context: Context) -> dict[str, Any]:
    groups = made_by(context)
    asked = list(product(_COLLECTIVES, _DTYPES, context.parameters["sizes"]))
    memory = C10d(groups.world)
    most = max(case_of(one, groups.largest[WORLD]).bytes for one in asked)
    memory.reserve(needed(most, in_place=False))
    told: list[dict[str, Any]] = []
    for one, (name, largest) in product(asked, groups.largest.items()):
        if one[0] == "all_to_all" and largest > _MOST_ALL_TO_ALL:
            continue
        # As often in all groups of a name: who is stuck is told by making fewer steps than others.
        turns = verify.turns_of(case_of(one, largest), largest)
        group = groups.of[name]
        backend, case = memory.among(group), case_of(one, group.world)
        seen = verify.verify(group, backend, case, backend.prepare(case), turns)
        if seen is not None and len(told) < _MOST_TOLD:
            told.append({**(verify.as_payload(seen) or {}), "asked": one})
    return {"cases": len(asked), "mismatches": told}


def _judge(rounds: Rounds) -> list[Finding]:
    seen = seen_in(rounds)
    return [findings.wrong_values(rounds, NAME, seen)] if seen else []


def stage(options: Options) -> Stage:
    def plan(rounds: Rounds) -> dict[str, Any]:
        smallest, *larger = _SIZES[options.level]
        fitting = [size for size in larger if _BUFFERS * size <= connect.free(rounds)]
        return {"sizes": [smallest, *fitting]}

    return Stage(NAME, 180, _measure, _judge, plan)
