"""From a suspect to its finding: who, how sure, from what, and what to do next."""

from collections.abc import Sequence

from oddrank.finding import Condition, Confidence, Evidence, Finding, Kind, Level, Who
from oddrank.triage import causes
from oddrank.triage.facts import Trouble
from oddrank.triage.rules import RULES
from oddrank.triage.suspects import Point, Suspect
from oddrank.triage.words import call_text, who

_LEVELS: tuple[Level, Level, Level] = ("low", "medium", "high")
_MOST_POINTS = 12


def finding(suspect: Suspect, next_: Sequence[str] = (), folder: str = "") -> Finding:
    """Returns the finding of a suspect. next_: commands to type; folder: left out of sources."""
    says = suspect.cause.says
    assert says is not None, f"{suspect.cause.name} is no finding"
    condition, text = says(suspect)
    if suspect.raised:
        text = f"{text}; {suspect.raised}"
    return Finding(
        condition=condition,
        who=_who(suspect, condition),
        cause=suspect.cause.name,
        what=text,
        stage=call_text(suspect.at) or None,
        evidence=tuple(_evidence(point, folder) for point in _points(suspect))[:_MOST_POINTS],
        confidence=_confidence(suspect),
        next=tuple(next_),
        drains_node=_is_fault_of_node(suspect),
    )


def _is_fault_of_node(suspect: Suspect) -> bool:
    """Returns whether another node would do better: a device's fault, a GPU or a kernel that stands
    still, a node that nobody reaches. What a program or its user did goes on elsewhere."""
    if suspect.cause is causes.DEVICE:
        return any(t.fatal and t.whose == "hardware" for t in suspect.trouble)
    return suspect.cause in (causes.GPU_STOPPED, causes.UNREACHABLE) or (
        suspect.cause is causes.HOST_STUCK and suspect.rule == "held"
    )


def _who(suspect: Suspect, condition: Condition) -> Who:
    if condition == "unknown":
        return who(suspect.processes or suspect.waiting)
    if suspect.trouble and not suspect.processes and suspect.cause.about == "device":
        return _device_who(suspect.trouble[0])
    return suspect.who or who(suspect.processes)


def _device_who(trouble: Trouble) -> Who:
    """Returns the subject of a fault that nothing ties to a rank."""
    device = (trouble.device or "").removeprefix("GPU ") or None
    kinds: dict[str, Kind] = {"xid": "gpu", "gpu": "gpu", "ib-flap": "link", "link-flap": "link"}
    return Who(kinds.get(trouble.kind, "node"), (), trouble.host, device)


def _confidence(suspect: Suspect) -> Confidence:
    level = _LEVELS[max(0, min(suspect.certainty, 2))]
    if suspect.against:
        return Confidence(level, suspect.against[0].text)
    return Confidence(level, RULES.get(suspect.rule, suspect.rule))


def _points(suspect: Suspect) -> Sequence[Point]:
    """Returns what speaks for it and against it, but for what _confidence() says."""
    against = [Point(f"against it: {p.text}", p.source) for p in suspect.against[1:]]
    return (*suspect.support, *against)


def _evidence(point: Point, folder: str) -> Evidence:
    source = str(point.source) if point.source else "triage"
    return Evidence(point.text, source.removeprefix(folder))
