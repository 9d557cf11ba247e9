"""The causes of `oddrank metrics`, and the only sentences about them."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from oddrank.finding import (
    Condition,
    Evidence,
    Finding,
    Level,
    Row,
    Who,
    counted,
    duration,
    number_text,
    ranks_text,
)

Suspect = Mapping[str, Any]

# A drop in throughput that is over after fewer rows was no level.
_LASTING = 10
_MOST_RESTARTS = 6

_SPEED_NEXT = (
    "torchrun ... -m oddrank selftest  (on the same nodes: names the slow GPU or node)",
    "torchrun ... -m oddrank run --report-every 60 train.py  (names the rank that others wait for)",
)
_NAN_NEXT = (
    "oddrank.replicas.watch_nonfinite(model, optimizer)  (names the first rank and tensor)",
)


def findings(suspects: Sequence[Suspect], logs: Sequence[str], unit: str) -> list[Finding]:
    """Returns a finding for each suspect that is one; all restarts make one together."""
    spikes = [each for each in suspects if each["kind"] == "loss-spike"]
    made = [
        finding
        for each in suspects
        if each["kind"] != "restart" and not _precedes(each, spikes)
        if (finding := one(each, logs, unit, suspects)) is not None
    ]
    lossy = [each for each in suspects if each["kind"] == "restart" and each["count"] > 0]
    return made + ([_restarts(lossy, logs)] if lossy else [])


def one(
    suspect: Suspect, logs: Sequence[str], unit: str, every: Sequence[Suspect] = ()
) -> Finding | None:
    """Returns the finding of one suspect; None if it is none: a drop that was soon over."""
    if suspect["kind"] == "restart":
        return _restarts([suspect], logs) if suspect["count"] > 0 else None
    if suspect["kind"] == "slower" and suspect["until"] and suspect["count"] < _LASTING:
        return None
    row, told = _TABLE[suspect["kind"]], _told(suspect, unit)
    warned = [
        each for each in every if suspect["kind"] == "loss-spike" and _precedes(each, [suspect])
    ]
    evidence = [Evidence(text.format_map(told), source(suspect, logs)) for text in row.shown]
    evidence += [
        Evidence(f"the grad norm grew from iteration {_whole(each['first'])} on",
                 source(each, logs))
        for each in warned
    ]  # fmt: skip
    sure = row.sure(suspect), row.why
    made = Row(suspect["kind"], row.condition, row.what, sure, row.next)
    if suspect["kind"] == "stall" and suspect["until"] is None:
        made = replace(made, condition="stuck", next=("oddrank trace where", *row.next))
    return made.found(_who(suspect, logs), *evidence, **told)


def is_over(suspect: Suspect) -> str:
    """Returns the sentence of --follow that a spike or a drop is over; "" if it is not."""
    row = _TABLE.get(suspect["kind"])  # a restart has none
    if suspect["until"] is None or row is None or not row.over:
        return ""
    return f"{row.over} since iteration {_whole(suspect['until'])}"


def _sure(rows: int, known: int) -> Callable[[Suspect], Level]:
    """Returns a judge of confidence: high with so many rows that show it, and before it."""
    return lambda s: "high" if s["count"] >= rows and s["known"] >= known else "medium"


class _Row(NamedTuple):
    """A row of the table of causes, of texts that `_told` fills in.

    shown: the evidence. end: of the sentence, if it is over, and if it lasts. over: what --follow
    says then.
    """

    condition: Condition
    what: str
    why: str
    sure: Callable[[Suspect], Level]
    next: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    end: tuple[str, str] = ("was back", "has not come back")
    over: str = ""


def _change(subject: str) -> str:
    return subject + " {rose} at iteration {first} from {level} to {value}{unit}, and {end}"


_SINCE = "{rows} since then, compared with {known} before"
_BEGAN = ("began at iteration {first}; detected at {fired}",)
_MEDIUM = _sure(sys.maxsize, 0)
_SAYS = "the log says so"
_NUMBER_AGAIN = ("was a number again", "did not become a number again")
_TABLE = {
    "loss-spike": _Row("suspicious", _change("the loss"), _SINCE, _sure(3, 32), (), _BEGAN,
                       over="the loss is back at its level"),
    "loss-rise": _Row("suspicious", _change("the loss"), _SINCE, _sure(32, 100), (), _BEGAN,
                      over="the loss is back at its level"),
    "grad-growth": _Row("suspicious", _change("the grad norm"), _SINCE, _MEDIUM, (), _BEGAN,
                        over="the grad norm is back at its level"),
    "slower": _Row("slow", _change("throughput"), _SINCE, _sure(_LASTING, 100), _SPEED_NEXT, _BEGAN,
                   over="throughput is back at its level"),
    "stall": _Row(
        "late", "{came} for {seconds} after iteration {first}; one usually takes {usual}",
        "the longest pause of {known} by far; none of that kind came before", _sure(0, 100),
        ("oddrank triage LOG...",)),
    "nan-loss": _Row(
        "broken", "the loss is NaN or infinite from iteration {first} on ({iterations}), and {end}",
        _SAYS, _sure(0, 0), _NAN_NEXT, end=_NUMBER_AGAIN, over="the loss is a number again"),
    "nan-grad": _Row(
        "broken", "the grad norm is NaN or infinite in all {rows} from iteration {first} to {at},"
        " and {end}", "a loss scale that adapts makes fewer", _sure(0, 0),
        _NAN_NEXT, end=_NUMBER_AGAIN, over="the grad norm is a number again"),
    "zero-loss": _Row(
        "broken", "the loss is exactly 0 from iteration {first} on ({rows}), after {level}, and"
        " {end}", _SAYS + ", and no row before had a loss of 0", _sure(0, 0), _NAN_NEXT,
        ("HF Trainer prints 0 where the loss is NaN, unless logging_nan_inf_filter is off",),
        ("was above 0 again", "has not come back"), "the loss is above 0 again"),
    "skipped": _Row(
        "broken", "iterations {first}-{at} were skipped ({count:.0f} in a row), and {end}", _SAYS,
        _sure(0, 0), _NAN_NEXT,
        ("a loss scale that adapts skips one now and then, and more only at the start{scale}",),
        ("the next was done", "none after them was done"), "no iteration is skipped any more"),
    "disagree": _Row(
        "different", "{ranks} loss {exact} at iteration {first}, the others {exact_before}",
        "all agreed to the last digit before", lambda s: "high" if s["ranks"] else "medium",
        ("oddrank.replicas.check(model, optimizer)  (names rank, tensor and element)",),
        ("{iterations} with different losses, of {writers:.0f} writers",)),
    "straggler": _Row(
        "slow", "{ranks} has {share:.1%} less throughput than the fastest rank",
        "stages of a pipeline may differ by design", _MEDIUM, _SPEED_NEXT,
        ("the slowest in {count:.0f} of the last {writers:.0f} lines of the detector",)),
}  # fmt: skip


def _told(s: Suspect, unit: str) -> dict[str, Any]:
    """Returns what the texts of the table name."""
    slowly = " slowly" if s["shape"] == "drift" else ""
    over, lasts = _TABLE[s["kind"]].end
    ranks = ranks_text(s["ranks"]) if s["ranks"] else "one of the ranks"
    if s["kind"] == "disagree":
        ranks += " print" if len(s["ranks"]) > 1 else " prints"
    return {
        **{name: _whole(s[name]) for name in ("first", "at", "fired")},
        **{name: _number(s[name]) for name in ("level", "value")},
        "exact": _number(s["value"], 8), "exact_before": _number(s["level"], 8),
        "rows": counted(s["count"], "row"), "known": counted(s["known"], "row"),
        "writers": s["known"],
        "iterations": counted(s["count"], "iteration"), "count": s["count"], "share": s["share"],
        "rose": f"fell{slowly} by {s['share']:.1%}" if s["kind"] == "slower" else f"rose{slowly}",
        "unit": f" {unit}" if s["kind"] == "slower" else "",
        "came": "no iteration has come" if s["until"] is None else "nothing came",
        "seconds": duration(s["seconds"] or 0.0), "usual": duration(s["level"] or 0.0),
        "end": lasts if s["until"] is None else f"{over} at iteration {_whole(s['until'])}",
        "scale": "" if s["value"] is None else f"; the loss scale was {_number(s['value'])}",
        "ranks": ranks,
    }  # fmt: skip


RESTART = Row(
    "restart", "dead", "{what} cost {lost}{cost}", ("high", "the iterations of the log go back"),
    ("oddrank triage LOG...  (why it ended)",),
)  # fmt: skip


def _restarts(restarts: Sequence[Suspect], logs: Sequence[str]) -> Finding:
    lost = sum(each["count"] for each in restarts)
    seconds = sum(each["seconds"] for each in restarts)
    last = restarts[-1]
    cost = f" and {duration(seconds)}, downtime included" if seconds else ""
    many = f"{len(restarts)} restarts"
    return RESTART.found(
        _who(last, logs),
        *(
            Evidence(
                f"after iteration {_whole(each['first'])} comes {_whole(each['at'])}",
                source(each, logs),
            )
            for each in restarts[-_MOST_RESTARTS:]
        ),
        what=many if restarts[1:] else f"a restart after iteration {_whole(last['first'])}",
        lost=counted(lost, "iteration"), cost=cost,
    )  # fmt: skip


def _precedes(suspect: Suspect, spikes: Sequence[Suspect]) -> bool:
    """Returns whether a warning of the grad norm is part of one of the spikes."""
    if suspect["kind"] != "grad-growth":
        return False
    end = suspect["until"] or float("inf")
    return any(suspect["first"] <= spike["at"] <= end for spike in spikes)


def _who(suspect: Suspect, logs: Sequence[str]) -> Who:
    if suspect["ranks"]:
        return Who("rank", tuple(suspect["ranks"]))
    return Who("line", device=source(suspect, logs))


def source(suspect: Suspect, logs: Sequence[str]) -> str:
    """Returns the line of the log that shows it: file:line."""
    return f"{logs[suspect['file']]}:{suspect['line']}"


def _whole(iteration: float | None) -> str:
    return "?" if iteration is None else f"{iteration:.0f}"


def _number(value: float | None, digits: int = 4) -> str:
    return "?" if value is None else number_text(value, digits)
