"""After wrong sums: whose values were wrong? All ranks' own ones are gathered around the place."""

from typing import Any

from oddrank.bench import c10d, findings
from oddrank.control.stages import Context, Rounds, Stage
from oddrank.finding import Finding
from oddrank.selftest.stages import all_reduce

_WINDOW = 4096


def _seen(rounds: Rounds) -> list[dict[str, Any]]:
    return [m for result in rounds.of("all_reduce").values() for m in result["mismatches"]]


def _plan(rounds: Rounds) -> dict[str, Any]:
    """The case and the place of the first wrong value."""
    first = _seen(rounds)[0]
    return {"case": first["case"], "start": max(0, first["index"] - _WINDOW // 2)}


def _measure(context: Context) -> dict[str, Any]:
    (case,) = (case for case in all_reduce.CASES if str(case) == context.parameters["case"])
    start = context.parameters["start"]
    count = min(_WINDOW, case.count - start)
    group = c10d.connect(context, "")
    return {"wrong": group.wrong_contributors(case, start, count)}


def _judge(rounds: Rounds) -> list[Finding]:
    """Named is only who is wrong in the eyes of all: who receives badly sees everybody wrong."""
    views = [set(result["wrong"]) for result in rounds.of("localise").values()]
    agreed = set.intersection(*views)
    if agreed:
        return [findings.wrong_contribution(rounds, "all_reduce", sorted(agreed), _seen(rounds))]
    return [findings.not_localised(rounds, "all_reduce", _seen(rounds))]


STAGE = Stage("localise", 60, _measure, _judge, _plan, confirms="all_reduce")
