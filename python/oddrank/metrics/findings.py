"""The causes of `oddrank metrics`, and the only sentences about them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oddrank.finding import (
    Condition,
    Confidence,
    Evidence,
    Finding,
    Level,
    Row,
    Who,
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
    if suspect["kind"] in ("slower", "spread") and suspect["until"] and suspect["count"] < _LASTING:
        return None
    condition, words, level, steps = _TABLE[suspect["kind"]]
    what, said, why = words(suspect, unit)
    warned = [
        each for each in every if suspect["kind"] == "loss-spike" and _precedes(each, [suspect])
    ]
    evidence = [Evidence(text, source(suspect, logs)) for text in said]
    evidence += [
        Evidence(f"the grad norm grew from iteration {_whole(each['first'])} on",
                 source(each, logs))
        for each in warned
    ]  # fmt: skip
    now = suspect["kind"] == "stall" and suspect["until"] is None
    return Finding(
        condition="stuck" if now else condition,
        who=_who(suspect, logs),
        cause=suspect["kind"],
        what=what,
        evidence=tuple(evidence),
        confidence=Confidence(level(suspect), why),
        next=("oddrank trace where", *steps) if now else steps,
    )


def is_over(suspect: Suspect) -> str:
    """Returns the sentence of --follow that a spike or a drop is over; "" if it is not."""
    if suspect["until"] is None or suspect["kind"] not in _OVER:
        return ""
    return f"{_OVER[suspect['kind']]} iteration {_whole(suspect['until'])}"


_OVER = {
    "loss-spike": "the loss is back at its level since",
    "loss-rise": "the loss is back at its level since",
    "grad-growth": "the grad norm is back at its level since",
    "slower": "throughput is back at its level since",
    "spread": "the ranks take equally long again since",
    "nan-loss": "the loss is a number again since",
    "nan-grad": "the grad norm is a number again since",
    "zero-loss": "the loss is above 0 again since",
    "skipped": "no iteration is skipped any more since",
}


# A sentence; what shows it; why it is believed.
_Words = tuple[str, Sequence[str], str]


def _change(s: Suspect, subject: str, unit: str = "") -> _Words:
    """Words a change of a level: its rows, the level before and after, and where it began."""
    slowly = "slowly " if s["shape"] == "drift" else ""
    fell = s["kind"] == "slower"
    rose = f"fell {slowly}by {s['share']:.1%}" if fell else f"rose {slowly}".rstrip()
    is_peak = s["shape"] == "spike" and s["kind"] == "loss-spike" and s["until"] is not None
    when = (
        f"at iteration {_whole(s['at'])}" if is_peak else f"from iteration {_whole(s['first'])} on"
    )
    what = (
        f"{subject} {rose} from {_number(s['level'])} to {_number(s['value'])}{unit}"
        f" {when}, and {_end(s, 'was back', 'has not come back')}"
    )
    evidence = [f"began at iteration {_whole(s['first'])}; detected at {_whole(s['fired'])}"]
    return (
        what,
        evidence,
        f"{_rows(s['count'])} since then, compared with {_rows(s['known'])} before",
    )


def _stall(s: Suspect, unit: str) -> _Words:
    now = s["until"] is None
    return (
        f"{'no iteration has come' if now else 'nothing came'} for {duration(s['seconds'])} after"
        f" iteration {_whole(s['first'])}; one usually takes {duration(s['level'])}",
        [],
        f"the longest pause of {_rows(s['known'])} by far; none of that kind came before",
    )


def _nan_loss(s: Suspect, unit: str) -> _Words:
    return (
        f"the loss is NaN or infinite from iteration {_whole(s['first'])} on"
        f" ({_times(s['count'], 'iteration')}), and"
        f" {_end(s, 'was a number again', 'did not become a number again')}",
        [],
        "the log says so",
    )


def _nan_grad(s: Suspect, unit: str) -> _Words:
    return (
        f"the grad norm is NaN or infinite in {_rows(s['count'])} one after another, from iteration"
        f" {_whole(s['first'])} to {_whole(s['at'])}, and"
        f" {_end(s, 'was a number again', 'did not become a number again')}",
        [],
        "a loss scale that adapts makes fewer",
    )


def _zero_loss(s: Suspect, unit: str) -> _Words:
    return (
        f"the loss is exactly 0 from iteration {_whole(s['first'])} on ({_rows(s['count'])}), after"
        f" {_number(s['level'])}, and {_end(s, 'was above 0 again', 'has not come back')}",
        ["HF Trainer prints 0 where the loss is NaN, unless logging_nan_inf_filter is off"],
        "the log says so, and no row before had a loss of 0",
    )


def _skipped(s: Suspect, unit: str) -> _Words:
    scale = f"; the loss scale was {_number(s['value'])}" if s["value"] is not None else ""
    return (
        f"iterations {_whole(s['first'])}-{_whole(s['at'])} were skipped ({s['count']:.0f} in a"
        f" row), and {_end(s, 'the next was done', 'none after them was done')}",
        [f"a loss scale that adapts skips one now and then, and more only at the start{scale}"],
        "the log says so",
    )


def _disagree(s: Suspect, unit: str) -> _Words:
    who = ranks_text(s["ranks"]) if s["ranks"] else "one of the ranks"
    verb = "print" if len(s["ranks"]) > 1 else "prints"
    return (
        f"{who} {verb} loss {_number(s['value'], 8)} at iteration {_whole(s['first'])}, the others"
        f" {_number(s['level'], 8)}",
        [f"{_times(s['count'], 'iteration')} with different losses, of {s['known']:.0f} writers"],
        "all agreed to the last digit before",
    )


def _straggler(s: Suspect, unit: str) -> _Words:
    return (
        f"{ranks_text(s['ranks'])} has {s['share']:.1%} less throughput than the fastest rank",
        [f"the slowest in {s['count']:.0f} of the last {s['known']:.0f} lines of the detector"],
        "stages of a pipeline may differ by design",
    )


def _spread(s: Suspect, unit: str) -> _Words:
    _, evidence, why = _change(s, "")
    return (
        f"a rank has become slow: since iteration {_whole(s['first'])} the slowest one takes"
        f" {s['value']:.2f} times as long as the fastest, before {s['level']:.2f} times",
        [*evidence, "the lines do not name the rank"],
        why,
    )


def _sure(rows: int, known: int) -> Callable[[Suspect], Level]:
    """Returns a judge of confidence: high with so many rows that show it, and before it."""
    return lambda s: "high" if s["count"] >= rows and s["known"] >= known else "medium"


_Row = tuple[Condition, Callable[[Suspect, str], _Words], Callable[[Suspect], Level],
             tuple[str, ...]]  # fmt: skip
_TABLE: dict[str, _Row] = {
    "loss-spike": ("suspicious", lambda s, _: _change(s, "the loss"), _sure(3, 32), ()),
    "loss-rise": ("suspicious", lambda s, _: _change(s, "the loss"), _sure(32, 100), ()),
    "grad-growth": ("suspicious", lambda s, _: _change(s, "the grad norm"), lambda s: "medium", ()),
    "slower": ("slow", lambda s, unit: _change(s, "throughput", f" {unit}"),
               _sure(_LASTING, 100), _SPEED_NEXT),
    "spread": ("slow", _spread, _sure(_LASTING, 100), _SPEED_NEXT),
    "stall": ("late", _stall, _sure(0, 100), ("oddrank triage LOG...",)),
    "nan-loss": ("broken", _nan_loss, _sure(0, 0), _NAN_NEXT),
    "nan-grad": ("broken", _nan_grad, _sure(0, 0), _NAN_NEXT),
    "zero-loss": ("broken", _zero_loss, _sure(0, 0), _NAN_NEXT),
    "skipped": ("broken", _skipped, _sure(0, 0), _NAN_NEXT),
    "disagree": ("different", _disagree, lambda s: "high" if s["ranks"] else "medium",
                 ("oddrank.replicas.check(model, optimizer)  (names rank, tensor and element)",)),
    "straggler": ("slow", _straggler, lambda s: "medium", _SPEED_NEXT),
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
        lost=_times(lost, "iteration"), cost=cost,
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


def _end(suspect: Suspect, over: str, lasts: str) -> str:
    return lasts if suspect["until"] is None else f"{over} at iteration {_whole(suspect['until'])}"


def _whole(iteration: float | None) -> str:
    return "?" if iteration is None else f"{iteration:.0f}"


def _number(value: float | None, digits: int = 4) -> str:
    return "?" if value is None else number_text(value, digits)


def _rows(count: float) -> str:
    return _times(count, "row")


def _times(count: float, what: str) -> str:
    return f"{count:.0f} {what}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Returns a time as people say it: 0.85 s, 105 s, 42 min, 9.3 h, 12 d."""
    for unit, size, most in (("s", 1, 180), ("min", 60, 120), ("h", 3600, 72)):
        if seconds < size * most:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 86400:.3g} d"
