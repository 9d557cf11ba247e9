"""Makes the process groups: of all ranks, of each node and across nodes, with a barrier in each.

A stage of its own, with a long deadline: communicators of thousands of ranks take their time.
"""

import time
from collections.abc import Mapping, Sequence
from typing import TypedDict

from oddrank.bench.pairs.schedule import pack_teams, unpack_teams
from oddrank.control.stages import Context, RunState, Stage, nodes_of
from oddrank.finding import Finding
from oddrank.machine.device import usable_bytes
from oddrank.process_group import connect
from oddrank.selftest import Options
from oddrank.selftest.stages import device

NAME = "connect"

WORLD, NODE, ACROSS = "world", "node", "across"
Teams = Sequence[tuple[int, ...]]
_KEPT = "groups"


class Plan(TypedDict):
    """nodes: packed."""

    backend: str
    nodes: str


class Result(TypedDict):
    """free: bytes that the rank may take. seconds: until its groups were made."""

    backend: str
    free: float
    seconds: float


def results(run: RunState) -> Mapping[int, Result]:
    return run.of(NAME)


def _plan(run: RunState) -> Plan:
    teams = pack_teams(nodes_of(run), run.world)
    return {"backend": device.backend(run), "nodes": teams}


def _measure(context: Context[Plan]) -> Result:
    params = context.parameters
    began = time.monotonic()
    group = Groups(context, params["backend"], unpack_teams(params["nodes"])).world
    return {
        "backend": group.backend,
        "free": usable_bytes(group.computes_on, context.launch),
        "seconds": round(time.monotonic() - began, 3),
    }


def backend(run: RunState) -> str:
    """Returns the backend that connects the ranks: "nccl" or "gloo"."""
    return next(iter(results(run).values()))["backend"]


def free(run: RunState) -> float:
    return min(one["free"] for one in results(run).values())


def teams_of(nodes: Teams) -> dict[str, Teams]:
    """Returns name -> its groups of ranks. across: each node's first ranks, its second ranks, ...

    Each rank is in one group of every name, alone if need be: all make the same steps, and a stuck
    rank shows by fewer steps. Leaves out names whose groups are all single ranks or the world.
    """
    world = tuple(sorted(rank for node in nodes for rank in node))
    most = max(map(len, nodes))
    across = [tuple(sorted(n[k] for n in nodes if k < len(n))) for k in range(most)]
    named = {WORLD: [world], NODE: list(nodes), ACROSS: across}
    return {
        name: teams
        for name, teams in named.items()
        if name == WORLD or any(1 < len(team) < len(world) for team in teams)
    }


class Groups:
    """The groups of one rank, by name: at most three, however many nodes there are.

    largest: name -> the size of its largest group.
    """

    def __init__(self, context: Context[object], backend: str, nodes: Teams) -> None:
        world = connect(context, backend)
        world.barrier()  # all ranks are there, and nccl makes its communicator
        self.world, self.of, self.largest = world, {WORLD: world}, {WORLD: world.world}
        for number, (name, teams) in enumerate(teams_of(nodes).items()):
            if name == WORLD:
                continue
            (own,) = (team for team in teams if world.rank in team)
            self.largest[name] = max(map(len, teams))
            self.of[name] = world.part(name, number, own)
            self.of[name].barrier()
        context.scratch[_KEPT] = self


def made_by(context: Context[object]) -> Groups:
    made: Groups = context.scratch[_KEPT]
    return made


def stage(options: Options) -> Stage[Plan, Result, list[Finding]]:
    return Stage(NAME, 120, _measure, plan=_plan, counted=False)
