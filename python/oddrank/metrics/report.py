"""From the numbers of a log to the report and its table."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from oddrank.finding import counted, duration, number_text
from oddrank.inputs import Notes
from oddrank.metrics.findings import Suspect, findings
from oddrank.report import Report

COLUMNS = ("iteration", "of", "loss", "grad norm", "throughput", "an iteration", "left", "restarts")
# With fewer rows nothing can be judged.
_LEAST = 45
_SLOWER = 0.9
_SERIES = ("loss", "grad norm", "throughput")


def made(job: Any, paths: Sequence[str], notes: Notes | None = None) -> Report:
    """Makes the report of what a `_core.Metrics` has read until now.

    notes: on files. Where some were not read, the verdict is incomplete.
    """
    notes = notes or Notes()
    figures, suspects = job.figures(), job.suspects()
    unjudged = [name for name, rows in zip(_SERIES, figures["judged"], strict=True) if not rows]
    gone = {
        name: rows
        for name, rows in zip(_SERIES, figures["gone"], strict=True)
        if rows >= _LEAST and name not in unjudged
    }
    data = _data(job, figures, suspects, paths) | {
        "skipped": list(notes.lines),
        "not_judged": [*unjudged, *gone],
    }
    found = findings(suspects, _names(paths), data["throughput"]["unit"])
    complete = figures["rows"] >= _LEAST and len(unjudged) < len(_SERIES)
    why = _why(figures, paths)
    if unjudged and figures["rows"] >= _LEAST:
        why += f"; not judged, as too few lines have it: {', '.join(unjudged)}"
    why += "".join(f"; no {name} in the last {rows} of them" for name, rows in gone.items())
    return Report.of("metrics", {}, data, found, complete=complete and not (notes.lost or gone),
                     why=why + notes.lost_text)  # fmt: skip


def _data(
    job: Any, figures: Suspect, suspects: Sequence[Suspect], paths: Sequence[str]
) -> dict[str, Any]:
    last = figures["last"]
    left = _left(figures)
    return {
        "logs": list(paths),
        "lines": job.lines(),
        "rows": figures["rows"],
        **{name: last[name] for name in ("iteration", "total", "loss", "grad_norm")},
        "loss_is_nan": figures["loss_is_nan"],
        "grad_norm_is_nan": figures["grad_is_nan"],
        **{name: last[name] for name in ("tokens", "samples")},
        "throughput": {"value": figures["speed"], "unit": figures["speed_unit"]},
        "iteration_s": figures["pace"],
        "left_s": left,
        "first_time": figures["first_time"],
        "last_time": last["time"],
        "restarts": figures["restarts"],
        "lost_iterations": figures["lost_iterations"],
        "lost_s": figures["lost_seconds"],
        "down_s": figures["down_seconds"],
        "goodput": _goodput(figures),
        "suspects": [dict(suspect) for suspect in suspects],
        "suspects_left_out": figures["left_out"],
    }


def _left(figures: Mapping[str, Any]) -> float | None:
    """Returns the seconds until the last iteration at the present pace, with usual pauses."""
    last = figures["last"]
    if None in (last["total"], last["iteration"], figures["pace"]):
        return None
    each = figures["pace"] + figures["pauses"]
    return float(max(0.0, last["total"] - last["iteration"]) * each)


def _goodput(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the share of the time that made progress that was kept, and what took the rest."""
    lost = {name: seconds for name, seconds in figures["spent"].items() if seconds >= 1}
    total = lost.pop("all", 0.0)
    share = max(0.0, 1 - sum(lost.values()) / total) if total else None
    return {"share": share, "total_s": total, "lost_s": lost}


def _why(figures: Mapping[str, Any], paths: Sequence[str]) -> str:
    rows, logs = figures["rows"], counted(len(paths), "log")
    if not rows:
        return (
            f"no line of {logs} has numbers of a training in a known format: give the log of the"
            " rank that prints loss and iteration, or say with --pattern what its lines look like"
        )
    done = f"{counted(rows, 'row')} of {logs}, up to iteration {figures['last']['iteration']:.0f}"
    if rows < _LEAST:
        return f"read: {done}; too few to judge by, which takes {_LEAST}"
    many = f"read: {done}; {counted(figures['restarts'], 'restart')}"
    good = _goodput(figures)
    if good["share"] is not None:
        many += f"; goodput {good['share']:.0%} of {duration(good['total_s'])}"
    if figures["speed_kept"] < _SLOWER:
        many += (
            f"; throughput right after a restart was {figures['speed_kept']:.0%} of that right"
            " before it, which is not judged: the number of GPUs may be another"
        )
    return many


def spent(report: Report) -> list[tuple[str, Sequence[str], Iterable[Sequence[object]]]]:
    """Returns a table of what the time went to, with a bar each; none where all of it was kept."""
    total, lost = report.data["goodput"]["total_s"], report.data["goodput"]["lost_s"]
    every = {"progress": max(0.0, total - sum(lost.values())), **lost}
    shares = [(name, took, took / total) for name, took in every.items() if took >= total / 200 > 0]
    rows = [(name, f"{share:.0%}", duration(took), "#" * round(40 * share))
            for name, took, share in sorted(shares, key=lambda one: -one[2])]  # fmt: skip
    return [("", ("spent on", "share", "time", ""), rows)] if len(rows) > 1 else []


def row(figures: Mapping[str, Any]) -> tuple[object, ...]:
    """Returns the table's one row, of COLUMNS."""
    last, left = figures["last"], _left(figures)
    pace = figures["pace"]
    speed = figures["speed"]
    return (
        None if last["iteration"] is None else f"{last['iteration']:.0f}",
        None if last["total"] is None else f"{last['total']:.0f}",
        _number(last["loss"], figures["loss_is_nan"]),
        _number(last["grad_norm"], figures["grad_is_nan"]),
        None if speed is None else f"{number_text(speed)} {figures['speed_unit']}",
        None if pace is None else duration(pace),
        None if left is None else duration(left),
        figures["restarts"],
    )


def _number(value: float | None, is_nan: bool) -> str | None:
    if is_nan:
        return "nan"
    return None if value is None else number_text(value)


def _names(paths: Sequence[str]) -> list[str]:
    """Returns the logs' file names; their paths where two have one name."""
    names = [os.path.basename(path) for path in paths]
    counts = Counter(names)
    return [path if counts[name] > 1 else name for path, name in zip(paths, names, strict=True)]
