"""After wrong sums: whose values were wrong? All ranks' own ones are gathered around the place."""

from typing import Any

from oddrank.bench import findings, verify
from oddrank.bench.c10d import C10d
from oddrank.bench.group import connect
from oddrank.control.stages import Context, Rounds, Stage
from oddrank.finding import Finding
from oddrank.selftest.choice import Options
from oddrank.selftest.stages import all_reduce


def _seen(rounds: Rounds) -> list[dict[str, Any]]:
    return [m for result in rounds.of("all_reduce").values() for m in result["mismatches"]]


def _plan(rounds: Rounds) -> dict[str, Any]:
    """The case and the place of the first wrong value."""
    first = _seen(rounds)[0]
    return {key: first[key] for key in ("case", "element", "turn")}


def _measure(context: Context) -> dict[str, Any]:
    told = context.parameters
    (case,) = (case for case in all_reduce.CASES if str(case) == told["case"])
    group = connect(context, "")
    wrong = verify.gathered_wrong(group, C10d(group), case, told["element"], told["turn"])
    return {"wrong": wrong}


def _judge(rounds: Rounds) -> list[Finding]:
    """Named is only who is wrong in the eyes of all: who receives badly sees everybody wrong."""
    views = [set(result["wrong"]) for result in rounds.of("localise").values()]
    agreed = set.intersection(*views)
    if agreed:
        return [findings.wrong_contribution(rounds, "all_reduce", sorted(agreed), _seen(rounds))]
    return [findings.not_localised(rounds, "all_reduce", _seen(rounds))]


def stage(options: Options) -> Stage:
    return Stage("localise", 60, _measure, _judge, _plan, confirms="all_reduce")
