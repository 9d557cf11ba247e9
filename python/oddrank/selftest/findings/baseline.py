"""The cause that holding the ranks against an earlier report has: see --baseline."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from oddrank.control.stages import Rounds
from oddrank.finding import Confidence, Evidence, Finding, Who, fold
from oddrank.selftest import baseline
from oddrank.selftest.baseline import Slower
from oddrank.selftest.findings.names import node_or_rank
from oddrank.selftest.findings.speed import TOLD, than
from oddrank.selftest.metrics import Metric

# Of figures so many are in the sentence about most ranks.
_TOLD_OF_MOST = 2
_FACTS_THEN_AND_NOW = (
    'python3 -c \'import json, sys; a, b = (json.load(open(f))["data"]["environment"]["common"]'
    " for f in sys.argv[1:]); [print(k, a.get(k), b.get(k)) for k in {**a, **b} if a.get(k) !="
    " b.get(k)]' THEN.json NOW.json  (what has changed between the baseline and --json of this run)"
)


def slower_than_before(rounds: Rounds, found: Iterable[Slower], compared: int) -> list[Finding]:
    """Than in the report that --baseline names. compared: how many ranks were held against it.

    Where most of them are slower in the same figure, that is one finding: what they share has
    changed.
    """
    by_rank: dict[int, list[Slower]] = defaultdict(list)
    by_metric: dict[Metric, list[Slower]] = defaultdict(list)
    for one in found:
        by_rank[one.rank].append(one)
        by_metric[one.metric].append(one)
    of_most = [row for row, rows in by_metric.items() if 2 * len(rows) > compared]
    if len(by_rank) > 1 and of_most:
        return [_most(rounds, by_metric, of_most, compared)]
    return [_one(rounds, rank, slower) for rank, slower in by_rank.items()]


def _one(rounds: Rounds, rank: int, found: Sequence[Slower]) -> Finding:
    who = rounds.who([rank])
    told = ", ".join(than(one.metric, one.below, " the baseline") for one in found[:TOLD])
    return _finding(
        rounds,
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


def _most(
    rounds: Rounds,
    by_metric: Mapping[Metric, Sequence[Slower]],
    of_most: Iterable[Metric],
    compared: int,
) -> Finding:
    """The sentence has only figures in which most are slower: of the others a rank may be alone."""
    middles = {row: median(one.below for one in found) for row, found in by_metric.items()}
    told, *others = sorted(of_most, key=lambda row: -middles[row])
    slow = by_metric[told]
    many = f"all {compared}" if len(slow) == compared else f"{len(slow)} of {compared}"
    figures = [f"{told.label} by {middles[told]:.0%} in the median"]
    figures += [f"{row.label} by {middles[row]:.0%}" for row in others[: _TOLD_OF_MOST - 1]]
    more = len(by_metric) - len(figures)
    figures += [f"{more} more figure{'s' * (more > 1)}"] if more else []
    worst = max(slow, key=lambda one: one.below)
    rows = [told, *others]
    rows += sorted(by_metric.keys() - rows, key=lambda row: -middles[row])
    return _finding(
        rounds,
        node_or_rank(rounds, sorted({one.rank for found in by_metric.values() for one in found})),
        f"{many} ranks are slower than in the baseline: {', '.join(figures)}; most of all rank"
        f" {worst.rank}",
        [_of_metric(row, middles[row], by_metric[row]) for row in rows],
        "measured at another time; what nearly all share is likelier than a fault of each",
    )


def _of_metric(row: Metric, middle: float, found: Sequence[Slower]) -> Evidence:
    worst = max(found, key=lambda one: one.below)
    ranks = fold(one.rank for one in found)
    several = f"ranks {ranks}" if len(found) > 1 else f"rank {ranks}"
    of_several = " in the median" if len(found) > 1 else ""
    return Evidence(
        f"{several}: {than(row, middle, f' the baseline{of_several}')}; rank"
        f" {worst.rank} {_figure(worst.value, row)} now, {_figure(worst.before, row)} then",
        row.name,
    )


def _finding(
    rounds: Rounds, who: Who, what: str, evidence: Iterable[Evidence], why: str
) -> Finding:
    then, now = baseline.sizes(rounds)
    sure = Confidence("medium", why)
    resized = next((host for host in now if host in then and then[host] != now[host]), None)
    if resized:
        what += f"; {resized} had {_ranks(then[resized])} then and has {now[resized]} now"
        sure = Confidence("low", "with other ranks beside it a rank has another share of a host")
    elif then.total() != now.total():
        what += f"; the baseline is of {_ranks(then.total())}, this run of {now.total()}"
    return Finding(
        condition="suspicious",
        who=who,
        cause="slower-than-baseline",
        what=what,
        stage="baseline",
        evidence=tuple(evidence),
        confidence=sure,
        next=(_FACTS_THEN_AND_NOW,),
    )


def _ranks(count: int) -> str:
    return f"{count} rank{'s' * (count != 1)}"


def _figure(value: float, metric: Metric) -> str:
    return f"{value:.3g} {metric.unit}".rstrip()
