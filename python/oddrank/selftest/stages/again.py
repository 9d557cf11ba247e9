"""Whoever may be slow measures again, beside ranks that surely are not: only then is one named."""

from collections.abc import Collection
from typing import Any

from oddrank.control.stages import Rounds, Stage
from oddrank.finding import Finding
from oddrank.selftest import judge, second
from oddrank.selftest.choice import Options
from oddrank.selftest.classes import Look, Slow
from oddrank.selftest.findings import speed as findings
from oddrank.selftest.metrics import SPEED
from oddrank.selftest.stages import speed

NAME = "again"


def _plan(rounds: Rounds) -> dict[str, Any]:
    planned = rounds.kept[NAME] = second.plan(rounds, rounds.kept[SPEED])
    return speed.parameters(rounds, planned.repeats, planned.ranks())


def _judge(rounds: Rounds) -> list[Finding]:
    planned: second.Second = rounds.kept[NAME]
    again = judge.look(rounds, NAME, rounds.kept[SPEED], planned.good)
    held = speed.held_back(rounds)
    slow = [
        one
        for one in again.slow()
        if one.metric.scope != "host" or (_was_slow(rounds, one) and not _by_quota(one, held))
    ]
    found = findings.of_slow(rounds, planned.of_doubted(slow))
    if not found:
        # Whatever else runs on a host makes its figures vary: the summary says what could be seen.
        seem = planned.of_doubted(again.seem_slow())
        found = findings.unsure(rounds, [one for one in seem if one.metric.scope != "host"])
    found += findings.held_back(rounds, held)  # no second look is needed for it
    return found + ([findings.not_measured_again(rounds, planned.left)] if planned.left else [])


def _was_slow(rounds: Rounds, slow: Slow) -> bool:
    """On a host that others use too, one look can be bad luck."""
    first: Look = rounds.kept[SPEED]
    return any((one.metric, one.ranks) == (slow.metric, slow.ranks) for one in first.slow())


def _by_quota(slow: Slow, held: Collection[int]) -> bool:
    """It slows a node too, whose figures are those of its middle ranks."""
    return 2 * sum(rank in held for rank in slow.ranks) > len(slow.ranks)


def stage(options: Options) -> Stage:
    return Stage(NAME, 90, speed.measure, _judge, _plan, confirms=SPEED)
