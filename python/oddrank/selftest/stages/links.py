"""Measures links: pairs of nodes, and of GPUs inside a node, move data between each other.

Ranks on the CPU have no links inside a node: they share its memory and cores.
"""

from collections.abc import Mapping
from dataclasses import replace

from oddrank.bench.pairs import stages as pairs
from oddrank.bench.pairs.judge import Judge, settle
from oddrank.bench.pairs.stages import Meetings, Met, games_of_all, games_of_recheck
from oddrank.control.stages import RunState, Skip, Stage, nodes_of
from oddrank.finding import Finding
from oddrank.selftest import Depth, Options
from oddrank.selftest.stages import connect, device

NAME, RECHECK = "links", "links_recheck"
_SECONDS: dict[Depth, float] = {"quick": 10, "normal": 40, "full": 300}
# Smallest slowdown looked for: larger in shorter measurements.
_EFFECTS: dict[Depth, float] = {"quick": 0.5, "normal": 0.3, "full": 0.2}
# Bytes of a message, so large that its time is many times the latency of these links.
_SIZES: dict[str, dict[Depth, int]] = {
    "nccl": {"quick": 64 << 20, "normal": 128 << 20, "full": 256 << 20},
    "gloo": {"quick": 1 << 20, "normal": 4 << 20, "full": 16 << 20},
}

_LONGER = (
    "oddrank bench pairs --json FILE, launched in the same way: measures every link for longer"
)


def _options(options: Options, run: RunState) -> pairs.PairOptions:
    depth, sizes = options.depth, _SIZES[connect.backend(run)]
    # All buffers take a quarter of what every rank may take: other stages need memory, too.
    size = min(sizes[depth], max(1, int(connect.free(run) / 16)))
    return pairs.PairOptions(size, _EFFECTS[depth], _SECONDS[depth])


def as_links(found: Finding) -> Finding:
    """Advises bench pairs if no rank is named: pairs' own advice names options of pairs."""
    return replace(found, next=found.next if found.names_somebody() else (_LONGER,))


def stage(options: Options) -> Stage[Meetings, Met, Judge]:
    """Finds suspects. They are named only after the recheck."""

    def make_plan(run: RunState) -> Meetings | Skip:
        if run.world == 1:
            return Skip("one rank")
        tested = device.make_plan(run)
        if isinstance(tested, Skip):
            return tested
        games = games_of_all(nodes_of(run), inside=connect.backend(run) == "nccl")
        if not games:
            return Skip("the ranks share the CPU of one host: there is no link between them")
        return pairs.plan_of(run, _options(options, run), games)

    def suspects(run: RunState, judge: Judge) -> list[Finding]:
        return [*map(as_links, judge.suspects(run))]

    def judge(run: RunState, met: Mapping[int, Met]) -> Judge:
        return Judge(_EFFECTS[options.depth], NAME, RECHECK)

    seconds = 2 * _SECONDS[options.depth] + 60
    return Stage(NAME, seconds, pairs.measure, judge, make_plan, suspects)


def recheck(options: Options) -> Stage[Meetings, Met, Judge]:
    """Names links that are slow twice: on shared hosts the figures of healthy links vary, too."""

    def make_plan(run: RunState) -> Meetings:
        games = games_of_recheck(run.judged[NAME], run)
        return pairs.plan_of(run, _options(options, run), games, again=True)

    def confirmed(run: RunState, judge: Judge) -> list[Finding]:
        return [*map(as_links, settle(judge.confirmed(run))[0])]

    return Stage(
        RECHECK, 2 * _SECONDS[options.depth] + 60, pairs.measure, lambda run, met: run.judged[NAME],
        make_plan, confirmed, confirms=NAME,
    )  # fmt: skip
