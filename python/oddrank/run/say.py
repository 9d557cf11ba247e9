"""Words for the user's terminal: on stderr, between the job's own lines, each write whole."""

import os
from collections.abc import Sequence
from contextlib import suppress

from oddrank import render
from oddrank.finding import ranks_text
from oddrank.report import Report

_MOST_EVIDENCE = 2
_STDERR = 2


def lines(texts: Sequence[str]) -> None:
    """Writes lines, the first one with oddrank's name, in one piece."""
    made = [f"oddrank: {texts[0]}", *(f"  {text}" for text in texts[1:])]
    with suppress(OSError):  # nobody reads it any more
        os.write(_STDERR, "".join(f"{render.safe(line)}\n" for line in made).encode())


def verdict(report: Report) -> list[str]:
    """Returns the sentence, then at most three lines: evidence, and what to do."""
    first = report.findings[0] if report.findings else None
    if first is None:
        return [report.summary]
    # Where it stands says most, and the sentence may not have it.
    stands = f"{ranks_text(first.who.ranks)} in " if first.who.ranks else ""
    evidence = sorted(first.evidence, key=lambda one: not (stands and one.text.startswith(stands)))
    texts = [one.text for one in evidence[:_MOST_EVIDENCE]]
    return [report.summary, *texts, *(f"next: {step}" for step in first.next[:1])]


def stands(seconds: float) -> str:
    return f"no rank has moved for {duration(seconds)}, and nothing says why"


def died(ranks: Sequence[int]) -> str:
    return f"{ranks_text(ranks)} died, and nothing says why"


def went_on(seconds: float) -> str:
    return f"went on after {duration(seconds)}"


def still(seconds: float) -> str:
    return f"still stuck after {duration(seconds)}"


def duration(seconds: float) -> str:
    """Returns a time as a person says it: 95 s, 10 min, 3.5 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
