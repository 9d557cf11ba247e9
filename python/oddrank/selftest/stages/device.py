"""Allocate memory on every rank's device, write a pattern, read it back."""

from typing import Any

from oddrank.control.stages import Context, Rounds, Stage
from oddrank.finding import Finding
from oddrank.selftest import device
from oddrank.selftest.choice import Options
from oddrank.selftest.findings.device import bad_memory


def _plan(rounds: Rounds) -> str:
    return device.plan(rounds)


def _measure(context: Context) -> dict[str, Any]:
    size = device.memory_to_verify(context.parameters, context.launch)
    context.step(f"verify {size >> 20} MiB of {context.parameters} memory")
    wrong = device.verify(context.parameters, context.launch, size)
    context.step("verified")
    return {"device": context.parameters, "bytes": size, "wrong": wrong}


def _judge(rounds: Rounds) -> list[Finding]:
    return [
        bad_memory(rounds, rank, result["device"], result["bytes"], result["wrong"])
        for rank, result in rounds.of("device").items()
        if result["wrong"] is not None
    ]


def stage(options: Options) -> Stage:
    return Stage("device", 60, _measure, _judge, _plan)
