"""Findings of tests in short, and as users see them.

check({"a name": (findings, "slow slow-rank: 3; dead killed: node 4-7")}, golden)
"""

import io
import json
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby

import reports
from oddrank import render
from oddrank.finding import Finding, Who, fold
from oddrank.report import Report


def brief(findings: Iterable[Finding]) -> str:
    """Returns condition, cause and who of each finding; equal neighbours once."""
    groups = groupby(findings, lambda one: f"{one.condition} {one.cause}")
    return "; ".join(f"{what}: {', '.join(_who(one.who) for one in of)}" for what, of in groups)


def _who(who: Who) -> str:
    if not who.ranks:
        return who.device or "nobody"
    return fold(who.ranks) if who.kind == "rank" else f"{who.kind} {fold(who.ranks)}"


def shown(findings: Iterable[Finding]) -> str:
    """Returns the report as users see it, once the schema has accepted it."""
    report = Report.of("selftest", {"size": 4}, reports.DATA, [*findings], complete=True)
    reports.valid(json.dumps(report.envelope()))
    stream = io.StringIO()
    render.report(report, stream)
    text, _, _ = stream.getvalue().partition("\nno findings: ")  # in a world of four ranks
    return text.rstrip("\n")


def check(
    rows: Mapping[str, tuple[Iterable[Finding], str]], golden: Callable[[str], None] | None = None
) -> None:
    """Asserts the names of each row; with `golden`, the text for users, too."""
    wrong = [
        f"{name}: {said!r}, not {expected!r}"
        for name, (findings, expected) in rows.items()
        if (said := brief(findings)) != expected
    ]
    assert not wrong, "\n".join(wrong)
    if golden:
        golden("\n\n".join(f"=== {name}\n{shown(found)}" for name, (found, _) in rows.items()))
