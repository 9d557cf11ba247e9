"""Judges tables of facts: a row has its verdict beside it, and its words in a golden file."""

import dataclasses
from collections.abc import Callable, Iterable

from golden import Golden
from oddrank.triage.facts import Source
from oddrank.triage.findings import finding
from oddrank.triage.report import on_purpose
from oddrank.triage.suspects import Suspect
from oddrank.triage.verdict import suspects
from oddrank.triage.view import View, view
from oddrank.triage.words import count
from progress import done, inside

Verdict = tuple[str, tuple[int | None, ...], int]
Judge = Callable[[View], list[Suspect]]


def into(seq, *ranks, **more):
    """Returns ranks inside one call."""
    return [inside(rank, seq, **more) for rank in ranks]


def ended(seq, *ranks, **more):
    """Returns ranks that have done all up to one call."""
    return [done(rank, seq, **more) for rank in ranks]


def verdicts(found: Iterable[Suspect]) -> list[Verdict]:
    """Returns cause, ranks and certainty of each suspect."""
    return [(s.cause.name, tuple(p.rank for p in s.processes), s.certainty) for s in found]


def told(found: Iterable[Suspect], place: str = "") -> str:
    """Returns all that a report says of suspects. place: a folder, left out of sources."""
    lines = []
    for suspect in found:
        if suspect.cause.says is None:  # it is no finding
            lines.append(f"  {on_purpose(suspect)}")
            continue
        made = finding(suspect, folder=place)
        waiting = count(suspect.waiting) if suspect.waiting else "nobody"
        lines.append(f"  {made.condition} ({suspect.rule}, {waiting} waiting): {made.what}")
        lines.append(f"    {made.confidence.level}: {made.confidence.why}")
        lines += [f"    - {point.text} [{point.source}]" for point in made.evidence]
    return "".join(f"{line}\n" for line in lines)


def check(golden: Golden, rows: dict[str, tuple], judge: Judge = suspects) -> None:
    """Judges each row: name -> (facts, or a function that judges them; verdict, ...)."""
    said, wrong = [], []
    for name, (facts, *expected) in rows.items():
        found = facts() if callable(facts) else judge(view(facts))
        if (made := verdicts(found)) != expected:
            wrong.append(f"{name}: {made}, not {expected}")
        said.append(f"{name}\n{told(found)}")
    assert not wrong, "\n".join(wrong)
    golden("\n".join(said))


def shown(value: object) -> str:
    """Returns a fact with all that is not as by default. A source is its line."""
    if isinstance(value, Source):
        return f"line {value.line}"
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))})"
    if not dataclasses.is_dataclass(value):
        return repr(value)
    said = []
    for each in dataclasses.fields(value):
        own = getattr(value, each.name)
        if each.repr and own not in (each.default, "", ()):
            said.append(f"{each.name} {shown(own)}")
    return f"{type(value).__name__}({', '.join(said)})"
