"""After wrong values: whose were wrong? All ranks' own ones are gathered around the place."""

from typing import Any

from oddrank.bench import findings, verify
from oddrank.bench.c10d import C10d
from oddrank.control.nodes import nodes_of
from oddrank.control.stages import Context, Rounds, Stage
from oddrank.finding import Finding
from oddrank.selftest.choice import Options
from oddrank.selftest.groups import made_by, teams_of
from oddrank.selftest.stages import collectives

NAME = "localise"


def _plan(rounds: Rounds) -> dict[str, Any]:
    """The case and the place of the first wrong value, and the kind of group that saw it."""
    first = collectives.seen_in(rounds)[0]
    return {key: first[key] for key in ("asked", "element", "turn", "among")}


def _measure(context: Context) -> dict[str, Any]:
    told = context.parameters
    group = made_by(context).of[told["among"]]
    case = collectives.case_of(tuple(told["asked"]), group.world)
    return {"wrong": verify.gathered_wrong(group, C10d(group), case, told["element"], told["turn"])}


def _judge(rounds: Rounds) -> list[Finding]:
    """Named is only who is wrong in the eyes of all of its group: who receives badly sees everybody
    wrong. A group without wrong values has none to explain."""
    seen = collectives.seen_in(rounds)
    among = seen[0]["among"]
    observers = {m["observer"] for m in seen if m["among"] == among}
    views = {rank: set(result["wrong"]) for rank, result in rounds.of(NAME).items()}
    agreed: set[int] = set()
    for team in teams_of(nodes_of(rounds))[among]:
        if observers.intersection(team):
            agreed |= set.intersection(*(views[rank] for rank in team))
    # Not where nearly everybody is wrong in all eyes: then what they are held against is.
    if len(agreed) == 1 or 0 < 2 * len(agreed) < rounds.world:
        return [findings.wrong_contribution(rounds, collectives.NAME, sorted(agreed), seen)]
    return [findings.not_localised(rounds, collectives.NAME, seen)]


def stage(options: Options) -> Stage:
    return Stage(NAME, 60, _measure, _judge, _plan, confirms=collectives.NAME)
