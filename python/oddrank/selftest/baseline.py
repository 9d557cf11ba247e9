"""What an earlier self-test measured, and who is slower than then. Pure but for the reading."""

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from oddrank.control.stages import Rounds
from oddrank.errors import OddrankError
from oddrank.peers import LINE
from oddrank.selftest import gpus, metrics
from oddrank.selftest.metrics import SPEED, Metric

KEPT = "baseline"
_ADVICE = "--baseline takes what `oddrank selftest --json FILE` has written"

# (host, local rank) -> metric -> its class and median then.
Before = dict[tuple[str, int], dict[str, tuple[str, float]]]


@dataclass(frozen=True)
class Slower:
    """A rank that was faster once."""

    rank: int
    metric: Metric
    value: float
    before: float

    @property
    def below(self) -> float:
        return abs(self.value / self.before - 1)


def load_for(rounds: Rounds, path: str) -> None:
    """Keeps it for `slower`. OddrankError where it is no report of a self-test."""
    if path:
        rounds.kept[KEPT] = load(path)


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


def is_of_others(rounds: Rounds) -> bool:
    """Whether one was given and none of these ranks, by host and local rank, is in it."""
    return KEPT in rounds.kept and not compared(rounds)


def compared(rounds: Rounds) -> int:
    """How many of these ranks are in it, by host and local rank."""
    before: Before = rounds.kept.get(KEPT, {})
    return sum((state.host, state.local_rank) in before for state in rounds.states.values())


def sizes(rounds: Rounds) -> tuple[Counter[str], Counter[str]]:
    """Host -> how many ranks it had then, and has now."""
    before: Before = rounds.kept.get(KEPT, {})
    return Counter(host for host, _ in before), Counter(s.host for s in rounds.states.values())


def slower(rounds: Rounds) -> list[Slower]:
    """By more than the line of peers; only the same hardware is compared."""
    before: Before = rounds.kept.get(KEPT, {})
    found = []
    rows = {metric.name: metric for metric in metrics.of_stage(SPEED)}
    shared = gpus.others(rounds)
    for rank, figures in _figures(rounds).items() if before else ():
        state = rounds.states[rank]
        then = before.get((state.host, state.local_rank), {})
        for name, (kind, value) in figures.items():
            if rank in shared and rows[name].scope == "gpu":
                continue
            was_kind, was = then.get(name, ("", 0.0))
            longer = was / value if rows[name].better == "high" else value / max(was, 1e-300)
            if was > 0 and kind == was_kind and longer - 1 > LINE * rows[name].smallest:
                found.append(Slower(rank, rows[name], value, was))
    return sorted(found, key=lambda one: -one.below)


def _figures(rounds: Rounds) -> dict[int, dict[str, tuple[str, float]]]:
    """Rank -> metric -> class and median."""
    return {rank: _of_rank(result) for rank, result in rounds.of(SPEED).items()}


def _of_rank(result: Mapping[str, Any]) -> dict[str, tuple[str, float]]:
    return {
        metric.name: (str(result["classes"].get(metric.scope, "")), float(median(values)))
        for metric in metrics.of_stage(SPEED)
        if (values := result.get(metric.name)) and math.isfinite(sum(values))
    }
