"""Writes the verdict and all figures as Prometheus's textfile collector reads them. Pure."""

import math
import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from oddrank import exposition
from oddrank.control.stages import RunState
from oddrank.exposition import Family, Sample
from oddrank.report import Report
from oddrank.selftest.metrics import TABLE
from oddrank.selftest.stages import connect

_PREFIX = "oddrank_selftest_"
# Unit -> the family of its figures, and the factor to the base unit that the family's name ends
# with: figures in several units could not be summed, nor shown on one axis.
_FAMILIES = {
    "GB/s": ("measured_bytes_per_second", 1e9),
    "GFLOP/s": ("measured_flop_per_second", 1e9),
    "TFLOP/s": ("measured_flop_per_second", 1e12),
    "s": ("measured_seconds", 1.0),
}
# Lists of repeats -> their unit. Other lists are no measurements.
_UNITS = {metric.name: metric.unit for metric in TABLE} | {"step_s": "s", "own_s": "s"}


def text(report: Report, run: RunState, now: float) -> str:
    """Returns all families. now: seconds since 1970; the collector takes no timestamps."""
    families: list[Family] = [
        ("time_seconds", "When the self-test ended, since 1970.", [({}, now)]),
        ("ranks", "Ranks of the job.", [({}, float(run.world))]),
        *exposition.of_report(report, lambda rank: str(_who(run, rank)["host"])),
        ("stage_seconds", "How long a stage took.", _stages(report)),
        *((name, "Median of what a rank measured.", of) for name, of in _metrics(run)),
    ]
    return exposition.text(_PREFIX, families)


def _stages(report: Report) -> Iterator[Sample]:
    for stage in report.data["stages"]:
        yield {"stage": stage["name"]}, stage["seconds"]


def _metrics(run: RunState) -> list[tuple[str, list[Sample]]]:
    """Returns family -> medians: compared figures, steps of training, seconds of connect."""
    who = {rank: _who(run, rank) for rank in run.states}
    samples: dict[str, list[Sample]] = {family: [] for family, _ in _FAMILIES.values()}
    for stage, results in run.results.items():
        for rank, result in results.items():
            for name, unit, repeats in _figures(stage, result):
                family, factor = _FAMILIES[unit]
                value = statistics.median(repeats) * factor
                if math.isfinite(value):  # in base units it may be too large
                    labels = who[rank] | {"stage": stage, "metric": name}
                    samples[family].append((labels, value))
    return list(samples.items())


def _figures(stage: str, result: Any) -> Iterator[tuple[str, str, list[float]]]:
    """Yields (name, unit, values) of a result. Lists of ranks are no figures."""
    if not isinstance(result, Mapping):
        return
    for name, value in result.items():
        if name in _UNITS and _are_figures(value):
            yield name, _UNITS[name], value
    if stage == connect.NAME and _are_figures([result.get("seconds")]):
        yield "seconds", "s", [result["seconds"]]


def _are_figures(values: Any) -> bool:
    if not isinstance(values, list) or not values:
        return False
    return set(map(type, values)) <= {int, float} and all(map(math.isfinite, values))


def _who(run: RunState, rank: int) -> dict[str, object]:
    state = run.states.get(rank)
    return {"rank": rank, "host": state.host if state else ""}
