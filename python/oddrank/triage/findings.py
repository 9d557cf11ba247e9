"""Makes a suspect's finding: its ranks, certainty, evidence, and the next steps."""

from collections.abc import Sequence

from oddrank.finding import Confidence, Evidence, Finding, Kind, Level, Who
from oddrank.triage import causes
from oddrank.triage.suspects import HIGH, Point, Suspect
from oddrank.triage.words import call_text, who

_LEVELS: tuple[Level, Level, Level] = ("low", "medium", "high")
_MOST_POINTS = 12
_KINDS: dict[str, Kind] = {"ib-flap": "link", "link-flap": "link"}


def finding(suspect: Suspect, next_: Sequence[str] = (), folder: str = "") -> Finding:
    """Returns the finding of a suspect. next_: commands to type; folder: left out of sources."""
    cause, trouble = suspect.cause, suspect.trouble[0] if suspect.trouble else None
    assert cause.says is not None, f"{cause.name} is no finding"
    condition, text = cause.says(suspect)
    is_unknown = condition == "unknown"
    named = suspect.who or who(suspect.processes or (suspect.waiting if is_unknown else ()))
    if trouble and not (suspect.processes or is_unknown) and cause.about == "device":
        # Nothing ties the fault to a rank.
        device = trouble.device or ""
        kind = "gpu" if device.startswith("GPU ") else _KINDS.get(trouble.kind, "node")
        named = Who(kind, (), trouble.host, device.removeprefix("GPU ") or None)
    rule = causes.RULES.get(suspect.rule, suspect.rule)
    doubt = suspect.against[:1] if suspect.certainty < HIGH else ()
    others = suspect.against[len(doubt) :]
    against = (Point(f"against it: {p.text}", p.source) for p in others)
    return Finding(
        condition=condition,
        who=named,
        cause=cause.name,
        what=f"{text}; {suspect.raised}" if suspect.raised else text,
        stage=call_text(suspect.at) or None,
        evidence=tuple(
            Evidence(p.text, str(p.source).removeprefix(folder) if p.source else "triage")
            for p in [*suspect.support, *against][:_MOST_POINTS]
        ),
        confidence=Confidence(
            _LEVELS[max(0, min(suspect.certainty, HIGH))], doubt[0].text if doubt else rule
        ),
        next=tuple(next_),
        drains_node=cause.drains_node(suspect),
    )
