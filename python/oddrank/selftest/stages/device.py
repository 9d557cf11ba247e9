"""Allocate memory on every rank's device, write a pattern, read it back."""

from functools import partial
from typing import Any

from oddrank.bench.place import GPU
from oddrank.control.stages import Context, Rounds, Stage
from oddrank.finding import Finding
from oddrank.selftest import device
from oddrank.selftest.choice import Level, Options
from oddrank.selftest.findings.device import bad_memory


def _plan(rounds: Rounds) -> str:
    return device.plan(rounds)


def _measure(context: Context, level: Level) -> dict[str, Any]:
    """A GPU goes through all patterns in milliseconds; for a host that is too long, unless full."""
    here, full = context.parameters, level == "full"
    size = device.memory_to_verify(here, context.launch, full=full)
    context.step(f"verify {size >> 20} MiB of {here} memory")
    thorough = full or (here == GPU and level != "quick")
    wrong = device.verify(here, context.launch, size, thorough=thorough)
    context.step("verified")
    return {"device": here, "bytes": size, "wrong": wrong}


def _judge(rounds: Rounds) -> list[Finding]:
    return [
        bad_memory(rounds, rank, result["device"], result["bytes"], result["wrong"])
        for rank, result in rounds.of("device").items()
        if result["wrong"] is not None
    ]


def stage(options: Options) -> Stage:
    seconds = 300 if options.level == "full" else 60
    return Stage("device", seconds, partial(_measure, level=options.level), _judge, _plan)
