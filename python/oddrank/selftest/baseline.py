"""Compares with an earlier self-test: ranks that are slower than then."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from oddrank.control.stages import RunState
from oddrank.errors import OddrankError
from oddrank.finding import Confidence, Evidence, Finding, Who, ranks_text
from oddrank.peers import LINE
from oddrank.selftest import gpus, metrics
from oddrank.selftest.findings.speed import TOLD, than
from oddrank.selftest.metrics import SPEED, Measured, Metric
from oddrank.selftest.nodes import node_or_rank

_ADVICE = "--baseline takes what `oddrank selftest --json FILE` has written"

# (host, local rank) -> metric -> its class and median in the baseline.
Before = dict[tuple[str, int], dict[str, tuple[str, float]]]

# Figures in the sentence about most ranks.
_TOLD_OF_MOST = 2
_FACTS_THEN_AND_NOW = (
    'python3 -c \'import json, sys; a, b = (json.load(open(f))["data"]["environment"]["common"]'
    " for f in sys.argv[1:]); [print(k, a.get(k), b.get(k)) for k in {**a, **b} if a.get(k) !="
    " b.get(k)]' THEN.json NOW.json  (what has changed between the baseline and --json of this run)"
)


@dataclass(frozen=True)
class Slower:
    """A figure of a rank that is slower than in the baseline."""

    rank: int
    metric: Metric
    value: float
    before: float

    @property
    def below(self) -> float:
        return abs(self.value / self.before - 1)


def load(path: str) -> Before:
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
    except OSError as error:
        raise OddrankError(f"can't read {path}: {error.strerror}; {_ADVICE}") from error
    except (ValueError, RecursionError) as error:
        raise OddrankError(f"{path} is no JSON; {_ADVICE}") from error
    try:
        if (report["schema"], report["tool"]) != ("oddrank.report/1", "selftest"):
            raise OddrankError(f"{path} is no report of oddrank selftest; {_ADVICE}")
        before = {
            (str(row["host"]), int(row["local_rank"])): _of_rank(row["metrics"][SPEED])
            for row in report["data"]["ranks"]
            if SPEED in row["metrics"]
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise OddrankError(f"{path} has no figures of stage {SPEED}; {_ADVICE}") from error
    if not before:
        raise OddrankError(f"{path} has no figures of stage {SPEED}; {_ADVICE}")
    return before


def compared(run: RunState, before: Before) -> int:
    """Returns how many ranks of this run the baseline has, by host and local rank."""
    return sum((state.host, state.local_rank) in before for state in run.states.values())


def sizes(run: RunState, before: Before) -> tuple[Counter[str], Counter[str]]:
    """Returns host -> number of its ranks, in the baseline and in this run."""
    return Counter(host for host, _ in before), Counter(s.host for s in run.states.values())


def slower(run: RunState, before: Before) -> list[Slower]:
    """Returns figures slower than in the baseline by more than peers may differ, worst first.

    Compares the same hardware only.
    """
    found = []
    rows = {metric.name: metric for metric in metrics.of_stage(SPEED)}
    shared = gpus.others(run)
    for rank, figures in _figures(run).items() if before else ():
        state = run.states[rank]
        then = before.get((state.host, state.local_rank), {})
        for name, (kind, value) in figures.items():
            if rank in shared and rows[name].scope == "gpu":
                continue
            was_kind, was = then.get(name, ("", 0.0))
            longer = was / value if rows[name].better == "high" else value / max(was, 1e-300)
            if was > 0 and kind == was_kind and longer - 1 > LINE * rows[name].smallest:
                found.append(Slower(rank, rows[name], value, was))
    return sorted(found, key=lambda one: -one.below)


def _figures(run: RunState) -> dict[int, dict[str, tuple[str, float]]]:
    """Returns rank -> metric -> class and median."""
    return {rank: _of_rank(result) for rank, result in metrics.results(run).items()}


def _of_rank(result: Measured) -> dict[str, tuple[str, float]]:
    return {
        metric.name: (str(result["classes"].get(metric.scope, "")), float(median(values)))
        for metric in metrics.of_stage(SPEED)
        if (values := metrics.figures_of(result, metric)) and math.isfinite(sum(values))
    }


def slower_than_before(run: RunState, before: Before) -> list[Finding]:
    """Finds ranks that are slower than in the report of --baseline.

    If most of the compared ranks are slower in the same figure, that is one finding: something that
    they share has changed.
    """
    held = compared(run, before)
    by_rank: dict[int, list[Slower]] = defaultdict(list)
    by_metric: dict[Metric, list[Slower]] = defaultdict(list)
    for one in slower(run, before):
        by_rank[one.rank].append(one)
        by_metric[one.metric].append(one)
    of_most = [row for row, rows in by_metric.items() if 2 * len(rows) > held]
    if len(by_rank) > 1 and of_most:
        return [_most(run, before, by_metric, of_most, held)]
    return [_one_slower(run, before, rank, slower) for rank, slower in by_rank.items()]


def _one_slower(run: RunState, before: Before, rank: int, found: Sequence[Slower]) -> Finding:
    who = run.who([rank])
    told = ", ".join(than(one.metric, one.below, " the baseline") for one in found[:TOLD])
    return _finding(
        run,
        before,
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
        why="measured at another time",
    )


def _most(
    run: RunState,
    before: Before,
    by_metric: Mapping[Metric, Sequence[Slower]],
    of_most: Iterable[Metric],
    compared: int,
) -> Finding:
    """Makes one finding of all. Its sentence has only the figures in which most are slower."""
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
        run,
        before,
        node_or_rank(run, sorted({one.rank for found in by_metric.values() for one in found})),
        f"{many} ranks are slower than in the baseline: {', '.join(figures)}; most of all rank"
        f" {worst.rank}",
        [_of_metric(row, middles[row], by_metric[row]) for row in rows],
        why="measured at another time; what nearly all share is likelier than a fault of each",
    )


def _of_metric(row: Metric, middle: float, found: Sequence[Slower]) -> Evidence:
    worst = max(found, key=lambda one: one.below)
    several = ranks_text(one.rank for one in found)
    of_several = " in the median" if len(found) > 1 else ""
    return Evidence(
        f"{several}: {than(row, middle, f' the baseline{of_several}')}; rank"
        f" {worst.rank} {_figure(worst.value, row)} now, {_figure(worst.before, row)} then",
        row.name,
    )


def _finding(
    run: RunState, before: Before, who: Who, what: str, evidence: Iterable[Evidence], *, why: str
) -> Finding:
    then, now = sizes(run, before)
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
