"""The causes of `oddrank logs` and their sentences; those of first-error are triage's."""

from collections.abc import Sequence

from oddrank.finding import Confidence, Evidence, Finding, Who
from oddrank.logs.first_error import Said, Told
from oddrank.report import Report
from oddrank.triage import findings
from oddrank.triage.next_steps import next_steps

_MOST_EVIDENCE = 8


def first_error(told: Told, data: dict[str, object], lost: str) -> Report:
    """Makes the report of first-error. lost: which logs were not read, for an end of a sentence."""
    found = [
        findings.finding(s, next_steps(s, told.triage.view), told.triage.folder)
        for s in told.triage.suspects
    ]
    plural = "s" if told.files != 1 else ""
    failures = told.failures
    own = [said for said in failures if said.why == "own"]
    if len(own) > 1 and (told.basis == "unknown" or any(said.carried for said in own)):
        found = [_unordered(own)]
    elif failures and not found:
        found = [_only_said(failures[0])]
    why = f"read: {told.files} log{plural}"
    if not failures:
        why = f"no line of {told.files} log{plural} tells of a failure"
    size = told.triage.view.world
    return Report.of("logs first-error", {"size": size} if size else {}, data, found,
                     complete=bool(found) or not lost, why=why + lost)  # fmt: skip


def _unordered(own: Sequence[Said]) -> Finding:
    names = "; ".join(said.who for said in own[:_MOST_EVIDENCE])
    return Finding(
        condition="unknown", who=Who("process", (), None, own[0].who), cause="no-order",
        what=f"{names}: each failed in its own way, and no times tell which was first",
        evidence=tuple(Evidence(s.text, str(s.source)) for s in own[:_MOST_EVIDENCE]),
        confidence=Confidence("low", "lines without times in several logs have no order"),
        next=("give the log of the launcher, or logs whose lines name times",),
    )  # fmt: skip


def _only_said(first: Said) -> Finding:
    return Finding(
        condition="unknown", who=Who("process", (), None, first.who), cause="first-said",
        what=f"{first.who} said first that it failed, and nothing says whose fault that was",
        evidence=(Evidence(first.text, str(first.source)),),
        confidence=Confidence("low", "a log tells who spoke first, not who was at fault"),
        next=("oddrank triage PATH... with stacks or dumps of the ranks",),
    )  # fmt: skip
