"""Sums over all ranks, every value checked: exact in float32 and bfloat16, up to 64 MiB."""

from typing import Any

from oddrank.bench import findings, group, verify
from oddrank.bench.c10d import C10d
from oddrank.bench.case import Case
from oddrank.control.stages import Context, Rounds, Stage
from oddrank.finding import Finding
from oddrank.selftest import device
from oddrank.selftest.choice import Options

CASES = tuple(
    Case("all_reduce", dtype, size)
    for size in (8, 4 << 10, 1 << 20, 64 << 20)
    for dtype in ("float32", "bfloat16")
)


def _plan(rounds: Rounds) -> str:
    return device.backend(rounds)


def _measure(context: Context) -> dict[str, Any]:
    ranks = group.connect(context, context.parameters)
    backend = C10d(ranks)
    backend.reserve(0, max(case.bytes for case in CASES))
    seen = [verify.verify(ranks, backend, case, backend.prepare(case)) for case in CASES]
    return {
        "backend": ranks.backend,
        "mismatches": [verify.as_payload(one) for one in seen if one is not None],
    }


def _judge(rounds: Rounds) -> list[Finding]:
    seen = [m for result in rounds.of("all_reduce").values() for m in result["mismatches"]]
    return [findings.wrong_values(rounds, "all_reduce", seen)] if seen else []


def stage(options: Options) -> Stage:
    return Stage("all_reduce", 120, _measure, _judge, _plan)
