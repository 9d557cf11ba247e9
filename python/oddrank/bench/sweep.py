"""What `bench run` does on the ranks: connect, then one stage a size: verify it, time it."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from oddrank.bench import c10d, findings, place
from oddrank.bench.case import Case
from oddrank.bench.memory import free_host_memory
from oddrank.bench.row import Row, summarise
from oddrank.control.stages import Context, Rounds, Stage
from oddrank.finding import Finding

if TYPE_CHECKING:
    from oddrank.launch import Launch

_SECONDS_PER_SIZE = 2.0
_FEWEST = 5
_WARMUP = 3
# A buffer, its copy to compare with, and what the backend takes.
_BUFFERS = 4


def stages(cases: Sequence[Case], iterations: int, seconds: float) -> list[Stage]:
    """The table of a sweep; a stage is named after its case."""
    return [
        Stage("devices", seconds, measure=_see_devices),
        Stage("connect", seconds, measure=_connect, plan=_plan_backend),
        *(_stage(case, iterations, seconds) for case in cases),
    ]


def row_of(stage: str, case: Case, rounds: Rounds) -> Row:
    """The row of one case, from the results of all ranks."""
    return summarise(case, rounds.of(stage), rounds.world)


def _see_devices(context: Context) -> dict[str, Any]:
    context.step("import torch")
    return place.facts(context.launch)


def _plan_backend(rounds: Rounds) -> str:
    return place.BACKENDS[place.choose(rounds.of("devices").values())]


def _connect(context: Context) -> dict[str, Any]:
    group = c10d.connect(context, context.parameters)
    return {"backend": group.backend, "limit": -group.largest(-_free_bytes(group, context.launch))}


def _stage(case: Case, iterations: int, seconds: float) -> Stage:
    def measure(context: Context) -> dict[str, Any]:
        return _measure(context, case, iterations)

    def judge(rounds: Rounds) -> list[Finding]:
        seen = [r["mismatch"] for r in rounds.of(str(case)).values() if r["mismatch"]]
        return [findings.wrong_values(rounds, str(case), seen)] if seen else []

    def plan(rounds: Rounds) -> dict[str, Any]:
        connected = rounds.of("connect")[0]
        return {"backend": connected["backend"], "limit": connected["limit"]}

    return Stage(str(case), seconds, measure, judge, plan)


def _measure(context: Context, case: Case, iterations: int) -> dict[str, Any]:
    """Times in microseconds, one an iteration: [] where the memory does not suffice."""
    group = c10d.connect(context, context.parameters["backend"])
    backend = f"c10d:{group.backend}"
    if case.bytes * _BUFFERS > context.parameters["limit"]:
        return {"backend": backend, "mismatch": None, "times": []}
    mismatch = group.verify(case)
    tensor = group.contribution(case)
    warmup = max(_run_once(group, case, tensor) for _ in range(_WARMUP))
    # All ranks must do the same number, and the slowest decides how many fit.
    fitting = int(_SECONDS_PER_SIZE / max(group.largest(warmup), 1e-9))
    number = min(iterations, max(_FEWEST, fitting))
    tensor.zero_()  # sums of sums would overflow
    group.barrier()
    times = [_run_once(group, case, tensor) * 1e6 for _ in range(number)]
    return {"backend": backend, "mismatch": c10d.as_payload(mismatch), "times": times}


def _run_once(group: c10d.Group, case: Case, tensor: Any) -> float:
    """Seconds from the call to the completed result, as this rank's clock saw it."""
    began = time.perf_counter()
    group.run(case, tensor)
    return time.perf_counter() - began


def _free_bytes(group: c10d.Group, launch: "Launch") -> float:
    """Bytes that this rank may take: of its own GPU, or its part of what the host has left."""
    if group.backend == "nccl":
        import torch

        return float(torch.cuda.mem_get_info(group.device)[0]) * 0.8
    return free_host_memory() * 0.5 / launch.local_world
