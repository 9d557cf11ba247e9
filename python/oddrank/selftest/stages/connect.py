"""The process group of all ranks, those of each node and those across nodes: made, and met once.

It stands apart because it takes its time: communicators of thousands of ranks are no fault.
"""

import time
from typing import Any

from oddrank.bench.pairs.games import pack_teams, unpack_teams
from oddrank.bench.pairs.stages import free_bytes
from oddrank.control.nodes import nodes_of
from oddrank.control.stages import Context, Rounds, Stage
from oddrank.selftest import device
from oddrank.selftest.choice import Options
from oddrank.selftest.groups import Groups

NAME = "connect"


def _plan(rounds: Rounds) -> dict[str, Any]:
    teams = pack_teams(nodes_of(rounds), rounds.world)
    return {"backend": device.backend(rounds), "nodes": teams}


def _measure(context: Context) -> dict[str, Any]:
    told = context.parameters
    began = time.monotonic()
    group = Groups(context, told["backend"], unpack_teams(told["nodes"])).world
    return {
        "backend": group.backend,
        "free": free_bytes(group, context),
        "seconds": round(time.monotonic() - began, 3),
    }


def backend(rounds: Rounds) -> str:
    """What the ranks have connected over: "nccl" or "gloo"."""
    said: str = next(iter(rounds.of(NAME).values()))["backend"]
    return said


def free(rounds: Rounds) -> float:
    """Bytes that every rank may take for its buffers."""
    return min(float(said["free"]) for said in rounds.of(NAME).values())


def stage(options: Options) -> Stage:
    return Stage(NAME, 120, _measure, plan=_plan, counted=False)
