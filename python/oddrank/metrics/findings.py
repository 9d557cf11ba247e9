"""The causes of `oddrank metrics`, and the only sentences about them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oddrank.finding import (
    Condition,
    Confidence,
    Evidence,
    Finding,
    Level,
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
    made = _TABLE[suspect["kind"]](suspect, unit)
    warned = [
        each for each in every if suspect["kind"] == "loss-spike" and _precedes(each, [suspect])
    ]
    evidence = [Evidence(text, source(suspect, logs)) for text in made.evidence]
    evidence += [
        Evidence(
            f"the grad norm grew from iteration {_whole(each['first'])} on, and said so at"
            f" {_whole(each['fired'])}",
            source(each, logs),
        )
        for each in warned
    ]
    return Finding(
        condition=made.condition,
        who=_who(suspect, logs),
        cause=suspect["kind"],
        what=made.what,
        evidence=tuple(evidence),
        confidence=Confidence(made.level, made.why),
        next=made.next,
    )


def is_over(suspect: Suspect) -> str:
    """Returns the sentence of --follow that a spike or a drop is over; "" if it is not."""
    if suspect["until"] is None or suspect["kind"] not in _OVER:
        return ""
    return f"{_OVER[suspect['kind']]} iteration {_whole(suspect['until'])}"


_OVER = {
    "loss-spike": "the loss is back at its level since",
    "grad-growth": "the grad norm is back at its level since",
    "slower": "throughput is back at its level since",
    "spread": "the ranks take equally long again since",
    "nan-loss": "the loss is a number again since",
    "nan-grad": "the grad norm is a number again since",
    "zero-loss": "the loss is above 0 again since",
    "skipped": "no iteration is skipped any more since",
}


@dataclass(frozen=True)
class _Made:
    condition: Condition
    what: str
    evidence: Sequence[str]
    level: Level
    why: str
    next: tuple[str, ...] = ()


def _loss_spike(s: Suspect, unit: str) -> _Made:
    many = s["count"] >= 3
    return _Made(
        "suspicious",
        f"the loss rose from {_number(s['level'])} to {_number(s['value'])} at iteration"
        f" {_whole(s['at'])}, and {_end(s, 'was back', 'has not come back')}",
        [f"beyond the line from iteration {_whole(s['first'])} on"],
        "high" if many else "medium",
        f"{_rows(s['count'])} beyond the line, after {_rows(s['known'])} of which none was so high",
    )


def _grad_growth(s: Suspect, unit: str) -> _Made:
    return _Made(
        "suspicious",
        f"the grad norm grew from {_number(s['level'])} to {_number(s['value'])} from iteration"
        f" {_whole(s['first'])} on, and"
        f" {_end(s, 'was back', 'has not come back: a loss spike may follow')}",
        [f"could be said at iteration {_whole(s['fired'])}"],
        "medium",
        f"{_rows(s['count'])} beyond the line; no loss spike came with it",
    )


def _slower(s: Suspect, unit: str) -> _Made:
    sure = s["count"] >= _LASTING and s["known"] >= 100
    return _Made(
        "slow",
        f"throughput fell by {s['share']:.1%} at iteration {_whole(s['first'])}, from"
        f" {_number(s['level'])} to {_number(s['value'])} {unit}, and"
        f" {_end(s, 'was back', 'stayed there')}",
        [f"could be said at iteration {_whole(s['fired'])}"],
        "high" if sure else "medium",
        f"{_rows(s['count'])} at the new level, compared with {_rows(s['known'])}",
        _SPEED_NEXT,
    )


def _stall(s: Suspect, unit: str) -> _Made:
    now = s["until"] is None
    return _Made(
        "stuck" if now else "late",
        f"{'no iteration has come' if now else 'nothing came'} for {duration(s['seconds'])} after"
        f" iteration {_whole(s['first'])}; one usually takes {duration(s['level'])}",
        [],
        "medium" if s["known"] < 100 else "high",
        f"the longest pause of {_rows(s['known'])} by far; none of that kind came before",
        ("oddrank trace where", "oddrank triage LOG...") if now else ("oddrank triage LOG...",),
    )


def _nan_loss(s: Suspect, unit: str) -> _Made:
    return _Made(
        "broken",
        f"the loss is NaN or infinite from iteration {_whole(s['first'])} on"
        f" ({_times(s['count'], 'iteration')}), and"
        f" {_end(s, 'was a number again', 'did not become a number again')}",
        [],
        "high",
        "the log says so",
        _NAN_NEXT,
    )


def _nan_grad(s: Suspect, unit: str) -> _Made:
    return _Made(
        "broken",
        f"the grad norm is NaN or infinite in {_rows(s['count'])} one after another, from iteration"
        f" {_whole(s['first'])} to {_whole(s['at'])}, and"
        f" {_end(s, 'was a number again', 'did not become a number again')}",
        [],
        "high",
        "a loss scale that adapts makes fewer",
        _NAN_NEXT,
    )


def _zero_loss(s: Suspect, unit: str) -> _Made:
    return _Made(
        "broken",
        f"the loss is exactly 0 from iteration {_whole(s['first'])} on ({_rows(s['count'])}), after"
        f" {_number(s['level'])}, and {_end(s, 'was above 0 again', 'has not come back')}",
        ["HF Trainer prints 0 where the loss is NaN, unless logging_nan_inf_filter is off"],
        "high",
        "the log says so, and no row before had a loss of 0",
        _NAN_NEXT,
    )


def _skipped(s: Suspect, unit: str) -> _Made:
    scale = f"; the loss scale was {_number(s['value'])}" if s["value"] is not None else ""
    return _Made(
        "broken",
        f"{_times(s['count'], 'iteration')} one after another were skipped, said at iteration"
        f" {_whole(s['fired'])}; {_skips_end(s)}",
        [f"a loss scale that adapts skips one now and then, and more only at the start{scale}"],
        "high",
        "the log says so",
        _NAN_NEXT,
    )


def _skips_end(s: Suspect) -> str:
    if s["until"] is None:
        return "none after them was done"
    return f"iteration {_whole(s['until'])} was not skipped"


def _disagree(s: Suspect, unit: str) -> _Made:
    who = ranks_text(s["ranks"]) if s["ranks"] else "one of the ranks"
    verb = "print" if len(s["ranks"]) > 1 else "prints"
    return _Made(
        "different",
        f"{who} {verb} loss {_number(s['value'], 8)} at iteration {_whole(s['first'])}, the others"
        f" {_number(s['level'], 8)}",
        [f"{_times(s['count'], 'iteration')} with different losses, of {s['known']:.0f} writers"],
        "high" if s["ranks"] else "medium",
        "all agreed to the last digit before",
        ("oddrank.replicas.check(model, optimizer)  (names rank, tensor and element)",),
    )


def _straggler(s: Suspect, unit: str) -> _Made:
    return _Made(
        "slow",
        f"{ranks_text(s['ranks'])} has {s['share']:.1%} less throughput than the fastest rank",
        [f"the slowest in {s['count']:.0f} of the last {s['known']:.0f} lines of the detector"],
        "medium",
        "stages of a pipeline may differ by design",
        _SPEED_NEXT,
    )


def _spread(s: Suspect, unit: str) -> _Made:
    return _Made(
        "slow",
        f"a rank has become slow: since iteration {_whole(s['first'])} the slowest one takes"
        f" {s['value']:.2f} times as long as the fastest, before {s['level']:.2f} times",
        [f"{_rows(s['count'])} at the new level; the lines do not name the rank"],
        "high" if s["known"] >= 100 else "medium",
        f"compared with {_rows(s['known'])}",
        _SPEED_NEXT,
    )


_TABLE: dict[str, Callable[[Suspect, str], _Made]] = {
    "loss-spike": _loss_spike,
    "grad-growth": _grad_growth,
    "slower": _slower,
    "stall": _stall,
    "nan-loss": _nan_loss,
    "nan-grad": _nan_grad,
    "zero-loss": _zero_loss,
    "skipped": _skipped,
    "disagree": _disagree,
    "straggler": _straggler,
    "spread": _spread,
}


def _restarts(restarts: Sequence[Suspect], logs: Sequence[str]) -> Finding:
    lost = sum(each["count"] for each in restarts)
    seconds = sum(each["seconds"] for each in restarts)
    last = restarts[-1]
    cost = f"; that took {duration(seconds)}, the time without the job included" if seconds else ""
    if len(restarts) == 1:
        what = (
            f"the training was started again after iteration {_whole(last['first'])} and did"
            f" {_times(lost, 'iteration')} again{cost}"
        )
    else:
        what = (
            f"the training was started again {len(restarts)} times and did"
            f" {_times(lost, 'iteration')} again{cost}"
        )
    return Finding(
        condition="dead",
        who=_who(last, logs),
        cause="restart",
        what=what,
        evidence=tuple(
            Evidence(
                f"after iteration {_whole(each['first'])} comes {_whole(each['at'])}",
                source(each, logs),
            )
            for each in restarts[-_MOST_RESTARTS:]
        ),
        confidence=Confidence("high", "the iterations of the log go back"),
        next=("oddrank triage LOG...  (why it ended)",),
    )


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
