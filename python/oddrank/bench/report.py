"""Makes a sweep's report from the judge's outcome."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from oddrank.bench import arrivals, split, sweep
from oddrank.bench.data import Row, connected_of, devices_of
from oddrank.bench.plan import Pass
from oddrank.bench.sampling import ENOUGH
from oddrank.control.stages import RunState
from oddrank.control.walk import Outcome
from oddrank.errors import OddrankError
from oddrank.finding import counted, duration
from oddrank.launch import Launch
from oddrank.report import Report

_OTHERS = "give other --dtypes or --ops"


def of_sweep(
    passes: Sequence[Pass], launch: Launch, outcome: Outcome, measured: Mapping[int, Row]
) -> Report:
    """Returns the report: rows, late or wrong ranks, and the cases that were not measured.

    measured: by the case's index. OddrankError if nothing could be measured.
    """
    run = outcome.run
    firsts = [one_pass for one_pass in passes if one_pass.number == 1]
    rows = [measured[first.index] for first in firsts if first.index in measured]
    if outcome.error and not rows:
        raise outcome.error
    if outcome.complete and not outcome.findings and all(row.median_us is None for row in rows):
        known = (sweep.ADVICE[row.reason] for row in rows if row.reason in sweep.ADVICE)
        raise OddrankError(
            f"none of {len(rows)} cases could be measured: {_reasons(rows)}; {next(known, _OTHERS)}"
        )
    with_data = [row for row in rows if row.bytes]
    # Only barriers ran, which show no value and no bandwidth.
    unseen = bool(with_data) and all(row.median_us is None for row in with_data)
    why = outcome.why
    if unseen and not why:
        cases = "the 1 case" if len(with_data) == 1 else f"all {len(with_data)} cases"
        why = f"skipped {cases} with data, measured only barrier: {_reasons(with_data)}"
    outcome.findings += split.slow_group(run, rows)
    well = not outcome.findings and not unseen
    arrived, ranks = arrivals.of(run), devices_of(run).values()
    idle = any(rank["transport"] == "gloo" for rank in connected_of(run).values())
    return Report.of(
        "bench",
        launch.as_world(),
        {
            "rows": [asdict(row) for row in rows],
            "not_measured": [first.name for first in firsts if first.index not in measured],
            "seconds": sum(outcome.seconds.get(one_pass.name, 0.0) for one_pass in passes),
            "arrival": _arrival_data(arrived),
            # Over gloo all use the CPU, even if they have GPUs.
            "devices": dict(Counter("CPU" if idle else one["gpu"] or "CPU" for one in ranks)),
            "setup": _setup(run),
        },
        outcome.findings,
        complete=outcome.complete and not unseen,
        why=why or _measured(rows, arrived, launch, well=well),
        raised=run.raised(),
    )


def _reasons(rows: Sequence[Row]) -> str:
    return "; ".join(sorted({row.reason or "no reason known" for row in rows}))[:300]


def _measured(rows: Sequence[Row], arrived: dict[int, Any], launch: Launch, *, well: bool) -> str:
    """Says what was measured and, if nothing was found, the smallest delay it could detect."""
    measured = [row for row in rows if row.median_us is not None]
    if not measured:
        return ""
    skipped = len(rows) - len(measured)
    n = measured[0].n
    ranks = counted(n, "rank")
    if measured[0].groups:
        ranks = f"{len(measured[0].groups)} groups of {ranks}, all at once"
    text = f"{counted(len(measured), 'case')} measured on {ranks}{launch.note}"
    if skipped:
        text += f", {skipped} skipped"
    if not well:
        return text
    text += ", all values right"
    effect = arrivals.smallest_effect(arrived)
    if effect is None and n > 1:
        text += "; arrivals not judged"
        if arrived:
            text += f": {ENOUGH} are needed, give a longer --budget"
    if effect is not None:
        text += f"; no rank arrives {duration(effect / 1e6)} or more after the others"
    return text


def _arrival_data(arrived: dict[int, Any]) -> dict[str, Any] | None:
    if not arrived:
        return None
    first = arrived[min(arrived)]
    return {
        "iterations": first.n,
        "median_us": [round(arrived[rank].median, 2) for rank in sorted(arrived)],
        "spread_us": round(first.spread, 2),
        "clock_error_us": round(max(a.error for a in arrived.values()), 2),
        "smallest_effect_us": arrivals.smallest_effect(arrived),
    }


def links_text(rank: Mapping[str, Any] | None) -> str | None:
    if rank is None or "unknown" in rank:
        return None if rank is None else f"unknown: {rank['unknown']}"
    words = [f"{rank['nvlinks']} NVLinks"]
    if rank["nvlinks"] and rank["nvlink_MBps"]:
        words[0] += f" of {rank['nvlink_MBps'] / 1e3:.1f} GB/s"
    if rank["pcie"]:
        words.append(f"PCIe {rank['pcie']} x{rank['pcie_width']}")
    return ", ".join(words)


def _setup(run: RunState) -> dict[str, Any]:
    """Returns the whole job's setup: a value if all ranks have the same, else value -> how many.

    hosts: in the order of ranks. links: of each GPU. settings: those that any rank has.
    """
    ranks = devices_of(run).values()
    connected = [rank for _, rank in sorted(connected_of(run).items())]
    names = sorted({name for rank in ranks for name in rank["settings"]})
    states = (run.states[rank] for rank in sorted(run.states))
    return {
        "hosts": list(dict.fromkeys(state.host for state in states if state.host)),
        "torch": _agreed(rank["torch"] for rank in ranks),
        "cuda": _agreed(rank["cuda"] for rank in ranks),
        "driver": _agreed(rank["driver"] for rank in ranks),
        "nccl": _agreed(rank["nccl"] for rank in connected),
        "gloo_interface": _agreed(rank["gloo_interface"] for rank in connected),
        "links": _agreed(links_text(rank["links"]) for rank in connected),
        "settings": {
            name: _agreed(rank["settings"].get(name, "not set") for rank in ranks) for name in names
        },
    }


def _agreed(values: Iterable[Any]) -> str | Mapping[str, int] | None:
    found = Counter(values)
    if len(found) < 2:
        return next(iter(found), None)
    return {str(value): count for value, count in found.items()}
