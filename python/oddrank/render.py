"""How it is said: reports and tables for people. The only importer of rich, on a terminal only.

Every text is somebody else's (host names, exception messages, file names): control characters are
shown, never obeyed, and what the stream's encoding lacks is escaped rather than raised.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

from oddrank.finding import Evidence, Finding, Report, fold, write_json

_MAX_TEXT = 1000
_MAX_FINDINGS = 12
# Of more findings than that: as many as these lines hold; the rest is folded, to so many groups.
_MAX_LINES = 24
_MAX_GROUPS = 6
_MAX_EVIDENCE = 6
_STYLES = {
    "healthy": "bold green",
    "odd": "bold red",
    "unknown": "bold yellow",
    "incomplete": "bold yellow",
}
# Condition -> style of a finding's line; the rest is red.
_MILD = {"suspicious": "yellow", "unknown": "yellow"}

_plain = False

# A line of output and its style.
Line = tuple[str, str]


def report(report: Report, stream: TextIO) -> None:
    """The verdict, its sentence, the findings with evidence, and the ranks not named."""
    lines: list[Line] = [
        (f"{report.tool}: {report.verdict}", _STYLES[report.verdict]),
        (report.summary, ""),
    ]
    shown = _as_many_as_fit(report)
    for made in shown:
        lines += made
    lines += _folded_lines(report.findings[len(shown) :])
    if any(finding.names_somebody() for finding in report.findings):
        raised, rest = _not_named(report)
        if raised:
            lines.append((f"{_ranks(raised)} raised too (it may be a consequence)", "yellow"))
        if rest:
            lines.append((f"nothing found against: {_ranks(rest)}", "green"))
    if report.findings and report.why:
        lines.append((report.why, ""))
    _write(lines, stream)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], stream: TextIO, *, title: str = ""
) -> None:
    """Columns of text, numbers to the right, None as `-`; rows in the order of the caller."""
    cells = [[safe("-" if cell is None else str(cell), stream) for cell in row] for row in rows]
    heads = [safe(column, stream) for column in columns]
    right = [_all_numbers(row[i] for row in cells) for i in range(len(heads))]
    if _has_style(stream):
        _rich_table(safe(title, stream), heads, cells, right, stream)
        return
    widths = [max(len(line[i]) for line in [heads, *cells]) for i in range(len(heads))]
    if title:
        print(safe(title, stream), file=stream)
    for line in [heads, ["-" * width for width in widths], *cells]:
        padded = [
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(line, widths, right, strict=True)
        ]
        print("  ".join(padded).rstrip(), file=stream)
    stream.flush()


def line(text: str, stream: TextIO, style: str = "") -> None:
    """One line: progress, a hint, an error."""
    _write([(text, style)], stream)


def progress(text: str, stream: TextIO) -> None:
    """A line while a command runs: whoever does not read on takes nothing from what follows."""
    try:
        line(text, stream)
    except BrokenPipeError:
        _discard(stream)
    except OSError:
        pass  # a full disk: what comes at the end is said elsewhere then (see deliver)


def deliver(
    report_: Report,
    json_path: str | None,
    columns: Sequence[str] = (),
    rows: Iterable[Sequence[object]] = (),
    *,
    tables: Sequence[tuple[str, Sequence[str], Iterable[Sequence[object]]]] = (),
) -> None:
    """The end of a command that judges: table and verdict, then JSON where --json says.

    tables: (title, columns, rows) of further ones.

    Whoever does not read on (`| head`) takes nothing from the rest. Where stdout can't be written,
    the verdict goes to stderr. What is slow to write, the JSON on a file system, comes last.
    """
    stream = sys.stderr if json_path == "-" else sys.stdout
    every = [*([("", columns, rows)] if columns else []), *tables]
    try:
        _say_all(report_, every, stream)
    except BrokenPipeError:
        _discard(stream)
    except OSError as error:
        _discard(stream)
        line(f"oddrank: cannot write the verdict to stdout: {error.strerror}", sys.stderr)
        report(report_, sys.stderr)
    try:
        if json_path is not None:
            write_json(report_.envelope(), json_path)
    except BrokenPipeError:
        _discard(sys.stdout)


def _say_all(
    report_: Report,
    tables: Iterable[tuple[str, Sequence[str], Iterable[Sequence[object]]]],
    stream: TextIO,
) -> None:
    for title, columns, rows in tables:
        table(columns, rows, stream, title=title)
        print(file=stream)
    report(report_, stream)


def _discard(stream: TextIO) -> None:
    """What is buffered could not be written, and is not to be tried again when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def be_plain() -> None:
    """No colours in this process, whatever its streams look like."""
    global _plain
    _plain = True


def safe(text: str, stream: TextIO | None = None) -> str:
    """The text on one line; nothing in it moves a cursor, turns direction, or can't be encoded."""
    if len(text) > _MAX_TEXT:
        text = f"{text[:_MAX_TEXT]}... ({len(text) - _MAX_TEXT} more characters)"
    text = "".join(c if c.isprintable() else _escape(c) for c in text)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _as_many_as_fit(report: Report) -> list[list[Line]]:
    """The lines of each of the first findings: all of a few, a screen of many."""
    made = [list(_finding_lines(f, report.summary)) for f in report.findings[:_MAX_FINDINGS]]
    if len(report.findings) <= _MAX_FINDINGS:
        return made
    while len(made) > 1 and sum(map(len, made)) > _MAX_LINES:
        made.pop()
    return made


def _finding_lines(finding: Finding, summary: str) -> Iterable[Line]:
    style = _MILD.get(finding.condition, "red")
    where = f", stage {finding.stage}" if finding.stage else ""
    yield "", ""
    yield f"  {_short(str(finding.who))}: {finding.condition} ({finding.cause}{where})", style
    if finding.what != summary:
        yield f"    {finding.what}", ""
    for evidence in finding.evidence[:_MAX_EVIDENCE]:
        yield f"    evidence    {_evidence(evidence)}", ""
    if len(finding.evidence) > _MAX_EVIDENCE:
        yield f"    evidence    {len(finding.evidence) - _MAX_EVIDENCE} more in the JSON", ""
    yield f"    confidence  {finding.confidence.level}: {finding.confidence.why}", ""
    for command in finding.next:
        yield f"    next        {command}", "bold"


def _evidence(evidence: Evidence) -> str:
    unit = f" {evidence.unit}" if evidence.unit else ""
    numbers = []
    if evidence.value is not None:
        numbers.append(f"{evidence.value:.4g}{unit}")
    if evidence.median is not None:
        numbers.append(f"median of the others {evidence.median:.4g}{unit}")
    if evidence.spread is not None:
        numbers.append(f"spread {evidence.spread:.2%}")
    return f"{evidence.text}{': ' if numbers else ''}{', '.join(numbers)} [{evidence.source}]"


def _folded_lines(findings: Sequence[Finding]) -> Iterable[Line]:
    """Findings beyond the screen, one line per condition, cause and stage."""
    groups: dict[tuple[str, str, str | None], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.condition, finding.cause, finding.stage), []).append(finding)
    if groups:
        yield "", ""
    for (condition, cause, stage), members in list(groups.items())[:_MAX_GROUPS]:
        ranks = {rank for member in members for rank in member.who.ranks}
        who = f"ranks {_short(fold(ranks))}" if ranks else f"{len(members)} more"
        where = f", stage {stage}" if stage else ""
        yield f"  {who}: {condition} ({cause}{where})", _MILD.get(condition, "red")
    if len(groups) > _MAX_GROUPS:
        yield f"  {len(groups) - _MAX_GROUPS} more kinds of findings in the JSON", ""


def _not_named(report: Report) -> tuple[list[int], list[int]]:
    """Those that raised, and those against whom there is nothing at all."""
    size = report.world.get("size")
    named = {rank for finding in report.findings for rank in finding.who.ranks}
    others = [rank for rank in range(size) if rank not in named] if isinstance(size, int) else []
    raised = set(report.raised)
    return [r for r in others if r in raised], [r for r in others if r not in raised]


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {_short(fold(ranks))}"


def _short(text: str, limit: int = 160) -> str:
    return text if len(text) <= limit else f"{text[:limit].rpartition(',')[0]},..."


def _all_numbers(cells: Iterable[str]) -> bool:
    """Whether a column reads better from the right: numbers, with or without a unit."""
    texts = [cell for cell in cells if cell != "-"]
    return bool(texts) and all(text.lstrip("+-")[:1].isdigit() for text in texts)


def _has_style(stream: TextIO) -> bool:
    """A terminal that wants colours."""
    if _plain:
        return False
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", ""):
        return False
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def _write(lines: Iterable[Line], stream: TextIO) -> None:
    made = [(safe(text, stream), style) for text, style in lines]
    if not _has_style(stream):
        for text, _ in made:
            print(text, file=stream)
        stream.flush()
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False, emoji=False)  # obeys NO_COLOR
    for text, style in made:
        console.print(Text(text, style=style), soft_wrap=True)


def _rich_table(
    title: str, heads: list[str], cells: list[list[str]], right: list[bool], stream: TextIO
) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(title=Text(title) if title else None, box=box.SIMPLE_HEAD, title_justify="left")
    for head, to_right in zip(heads, right, strict=True):
        made.add_column(Text(head), justify="right" if to_right else "left", overflow="fold")
    for row in cells:
        made.add_row(*(Text(cell) for cell in row))
    Console(file=stream, highlight=False, emoji=False).print(made)
