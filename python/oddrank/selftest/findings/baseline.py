"""The cause that holding the ranks against an earlier report has: see --baseline."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from oddrank.control.stages import Rounds
from oddrank.finding import Confidence, Evidence, Finding, Who
from oddrank.selftest.baseline import Slower
from oddrank.selftest.findings.names import node_or_rank
from oddrank.selftest.findings.speed import TOLD, than
from oddrank.selftest.metrics import Metric


def slower_than_before(rounds: Rounds, found: Iterable[Slower], compared: int) -> list[Finding]:
    """Than in the report that --baseline names. compared: how many ranks were held against it.

    Where it is most of them, that is one finding: what they share has changed.
    """
    by_rank: dict[int, list[Slower]] = defaultdict(list)
    for one in found:
        by_rank[one.rank].append(one)
    if len(by_rank) > 1 and 2 * len(by_rank) > compared:
        return [_most(rounds, by_rank, compared)]
    return [_one(rounds, rank, slower) for rank, slower in by_rank.items()]


def _one(rounds: Rounds, rank: int, found: Sequence[Slower]) -> Finding:
    who = rounds.who([rank])
    told = ", ".join(than(one.metric, one.below, " the baseline") for one in found[:TOLD])
    return _finding(
        who,
        f"{who} is slower than it was: {told}",
        [
            Evidence(
                f"{one.metric.label} {_figure(one.value, one.metric)} now,"
                f" {_figure(one.before, one.metric)} in the baseline",
                one.metric.name,
            )
            for one in found
        ],
        "measured at another time",
    )


def _most(rounds: Rounds, by_rank: Mapping[int, Sequence[Slower]], compared: int) -> Finding:
    by_metric: dict[Metric, list[Slower]] = defaultdict(list)
    for found in by_rank.values():
        for one in found:
            by_metric[one.metric].append(one)
    middles = {row: median(one.below for one in found) for row, found in by_metric.items()}
    rows = sorted(middles, key=lambda row: -middles[row])
    told = ", ".join(than(row, middles[row], " the baseline") for row in rows[:TOLD])
    worst = max((one for found in by_rank.values() for one in found), key=lambda one: one.below)
    many = f"all {compared}" if len(by_rank) == compared else f"{len(by_rank)} of {compared}"
    return _finding(
        node_or_rank(rounds, by_rank),
        f"{many} ranks are slower than they were: in the median {told}; most of all"
        f" {rounds.who([worst.rank])}: {than(worst.metric, worst.below)}",
        [_of_metric(row, middles[row], by_metric[row]) for row in rows],
        "measured at another time; what nearly all share is likelier than a fault of each",
    )


def _of_metric(row: Metric, middle: float, found: Sequence[Slower]) -> Evidence:
    worst = max(found, key=lambda one: one.below)
    return Evidence(
        f"{len(found)} ranks: {than(row, middle, ' the baseline in the median')}; rank"
        f" {worst.rank} {_figure(worst.value, row)} now, {_figure(worst.before, row)} then",
        row.name,
    )


def _finding(who: Who, what: str, evidence: Iterable[Evidence], why: str) -> Finding:
    return Finding(
        condition="suspicious",
        who=who,
        cause="slower-than-baseline",
        what=what,
        stage="baseline",
        evidence=tuple(evidence),
        confidence=Confidence("medium", why),
        next=("compare data.environment of both reports",),
    )


def _figure(value: float, metric: Metric) -> str:
    return f"{value:.3g} {metric.unit}".rstrip()
