"""Pairs of nodes, and of GPUs inside a node, move data between each other: is a link slow?

Ranks on the CPU have no links inside a node: they share its memory, and whoever uses its cores.
"""

from typing import Any

from oddrank.bench.pairs import stages as pairs
from oddrank.bench.pairs.judge import Judge, settle
from oddrank.bench.pairs.panels import games_again, games_of_all
from oddrank.control.nodes import nodes_of
from oddrank.control.stages import Rounds, Skip, Stage
from oddrank.finding import Finding
from oddrank.selftest.choice import Level, Options
from oddrank.selftest.findings.links import as_links
from oddrank.selftest.stages import connect

NAME, AGAIN = "links", "links_again"
_SECONDS: dict[Level, float] = {"quick": 10, "normal": 40, "full": 300}
# The smallest slowdown looked for: the shorter the look, the larger.
_EFFECTS: dict[Level, float] = {"quick": 0.5, "normal": 0.3, "full": 0.2}
# Bytes of a message: many times what a small one takes, on links as fast as these.
_SIZES: dict[str, dict[Level, int]] = {
    "nccl": {"quick": 16 << 20, "normal": 16 << 20, "full": 64 << 20},
    "gloo": {"quick": 1 << 20, "normal": 4 << 20, "full": 16 << 20},
}


def _options(options: Options, rounds: Rounds) -> pairs.Options:
    level, sizes = options.level, _SIZES[connect.backend(rounds)]
    # A quarter of what every rank may take: it never keeps the other stages from running.
    size = min(sizes[level], max(1, int(connect.free(rounds) / 16)))
    return pairs.Options(size, _EFFECTS[level], _SECONDS[level])


def _judge_of(options: Options, rounds: Rounds) -> Judge:
    """One for both stages, which looks at each once."""
    judge: Judge = rounds.kept.setdefault(NAME, Judge(_EFFECTS[options.level], NAME, AGAIN))
    return judge


def stage(options: Options) -> Stage:
    """Suspects: nobody is named before they were measured again."""

    def plan(rounds: Rounds) -> Any:
        if rounds.world == 1:
            return Skip("one rank")
        games = games_of_all(nodes_of(rounds), inside=connect.backend(rounds) == "nccl")
        if not games:
            return Skip("the ranks are on the CPU of one host: between them there is no link")
        return pairs.plan_of(rounds, _options(options, rounds), games)

    def judge(rounds: Rounds) -> list[Finding]:
        return [as_links(found) for found in _judge_of(options, rounds).suspects(rounds)]

    return Stage(NAME, 2 * _SECONDS[options.level] + 60, pairs.measure, judge, plan)


def stage_again(options: Options) -> Stage:
    """What passed by is no finding, nor that links differ too much to tell: so do healthy ones on
    hosts that others use."""

    def plan(rounds: Rounds) -> Any:
        games = games_again(_judge_of(options, rounds), rounds)
        return pairs.plan_of(rounds, _options(options, rounds), games, again=True)

    def judge(rounds: Rounds) -> list[Finding]:
        found, _ = settle(_judge_of(options, rounds).confirmed(rounds))
        return [as_links(one) for one in found]

    seconds = 2 * _SECONDS[options.level] + 60
    return Stage(AGAIN, seconds, pairs.measure, judge, plan, confirms=NAME)
