"""The causes of `oddrank logs` and their sentences; those of first-error are triage's."""

from collections.abc import Sequence

from oddrank.finding import Evidence, Finding, Row, Who
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
    if len(own) > 1 and told.basis == "unknown":
        found = [_found(NO_ORDER, own[:_MOST_EVIDENCE])]
    elif failures and not found:
        found = [_found(FIRST_SAID, failures[:1])]
    why = f"read: {told.files} log{plural}"
    if not failures:
        why = f"no line of {told.files} log{plural} tells of a failure"
    size = told.triage.view.world
    return Report.of("logs first-error", {"size": size} if size else {}, data, found,
                     complete=bool(found) or not lost, why=why + lost)  # fmt: skip


# fmt: off
NO_ORDER = Row(
    "no-order", "unknown",
    "{names}: each failed in its own way, and no times tell which was first",
    ("low", "lines without times in several logs have no order"),
    ("give the log of the launcher, or logs whose lines name times",))
FIRST_SAID = Row(
    "first-said", "unknown",
    "{name} said first that it failed, and nothing says whose fault that was",
    ("low", "a log tells who spoke first, not who was at fault"),
    ("oddrank triage PATH... with stacks or dumps of the ranks",))
# fmt: on


def _found(row: Row, said: Sequence[Said]) -> Finding:
    names = "; ".join(one.who for one in said)
    seen = (Evidence(one.text, str(one.source)) for one in said)
    return row.found(Who("process", (), None, said[0].who), *seen, names=names, name=said[0].who)
