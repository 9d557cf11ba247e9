"""Reports and tables as text for people. The only importer of rich, on a terminal only.

Every text may come from a stranger (host names, exception messages, file names): control characters
are shown, never obeyed, and characters that the stream cannot encode are escaped.
"""

import os
import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TextIO

from oddrank import launch
from oddrank.errors import OddrankError
from oddrank.finding import Evidence, Finding, grouped, number_text, ranks_text
from oddrank.report import Report, write_json

_MAX_TEXT = 1000
_MAX_FINDINGS = 12
# If there are more findings, shows as many as fit into _MAX_LINES; folds the rest into _MAX_GROUPS.
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

_NARROWEST = 12  # a column of text is not made narrower than this

_plain = False
_stdout_is_closed = False

Line = tuple[str, str]  # a line of output and its style


def report(report: Report, stream: TextIO, *, next_once: bool = False) -> None:
    """Prints the verdict, its sentence, the findings with evidence, and the ranks not named."""
    lines: list[Line] = [
        (f"{report.tool}: {report.verdict}", _STYLES[report.verdict]),
        (report.summary, ""),
    ]
    shown = _as_many_as_fit(report, next_once)
    for made in shown:
        lines += made
    lines += _folded_lines(report.findings[len(shown) :])
    if any(finding.names_somebody() for finding in report.findings):
        raised, rest = _not_named(report)
        if raised:
            lines.append((f"{_ranks(raised)} raised too (perhaps a consequence)", "yellow"))
        if rest:
            lines.append((f"no findings: {_ranks(rest)}", "green"))
    if report.findings and report.why:
        lines.append((report.why, ""))
    _write(lines, stream)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], stream: TextIO, *, title: str = ""
) -> None:
    """Prints rows in the caller's order. Numbers stand to the right, None is `-`.

    A table wider than the terminal, or than $COLUMNS, wraps its texts; if its numbers alone are
    too wide, it prints them in parts, each with the first columns that tell the rows apart.
    """
    with _writing(stream):
        _table(columns, rows, stream, title)


def line(text: str, stream: TextIO, style: str = "") -> None:
    """Prints one line: a hint, an error."""
    with _writing(stream):
        _write([(text, style)], stream)


@contextmanager
def _writing(stream: TextIO) -> Iterator[None]:
    """Turns a full disk into an OddrankError. A reader that has left stays a BrokenPipeError."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        _discard(stream)
        name = "stderr" if stream is sys.stderr else "stdout"
        raise OddrankError(f"cannot write to {name}: {error.strerror}") from error


def progress(text: str, stream: TextIO) -> None:
    """Prints a line while a command runs. A stream that takes no more does not end the command."""
    try:
        _write([(text, "")], stream)
    except BrokenPipeError:
        _discard(stream)
    except OSError:
        pass  # a full disk: deliver writes the verdict to stderr then


def deliver(
    report_: Report, json_path: str | None, columns: Sequence[str] = (),
    rows: Iterable[Sequence[object]] = (), *,
    tables: Sequence[tuple[str, Sequence[str], Iterable[Sequence[object]]]] = (),
    stdout_is_taken: bool = False, next_once: bool = False,
) -> bool:  # fmt: skip
    """Ends a command that judges: prints tables and verdict, then writes the JSON of --json.

    tables: (title, columns, rows) of further ones. stdout_is_taken: all of this goes to stderr.
    next_once: prints a command to type with its first finding only.

    If a reader leaves early (`| head`), the JSON is still written. If stdout can't be written,
    tables and verdict go to stderr, and it returns False. The JSON comes last: file systems may be
    slow.
    """
    taken = stdout_is_taken or json_path == "-"
    stream = sys.stderr if taken or _stdout_is_closed else sys.stdout
    if report_.verdict != "healthy":
        where = f"; report: {os.path.abspath(json_path)}" if json_path and json_path != "-" else ""
        said = f"{report_.tool}: {report_.verdict}: {report_.summary}{where}"
        launch.tell_launcher(safe(said))
    every = [
        (title, heads, list(body))
        for title, heads, body in [*([("", columns, rows)] if columns else []), *tables]
    ]
    whole = True
    try:
        _print_all(report_, every, stream, next_once)
    except BrokenPipeError:
        _discard(stream)
    except OSError as error:
        whole = False
        _discard(stream)
        line(f"oddrank: cannot write the verdict to stdout: {error.strerror}", sys.stderr)
        _print_all(report_, every, sys.stderr, next_once)
    try:
        if json_path is not None:
            write_json(report_.envelope(), json_path)
    except BrokenPipeError:
        _discard(sys.stdout)
    return whole


def _print_all(
    report_: Report,
    tables: Iterable[tuple[str, Sequence[str], Iterable[Sequence[object]]]],
    stream: TextIO,
    next_once: bool,
) -> None:
    for title, columns, rows in tables:
        _table(columns, rows, stream, title)
        print(file=stream)
    report(report_, stream, next_once=next_once)


def _discard(stream: TextIO) -> None:
    """Sends the rest of the stream to /dev/null: Python's flush at exit would fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def open_closed_streams() -> None:
    """Opens /dev/null as stdin, stdout and stderr if the caller has closed them (`>&-`).
    Else the next opened file would get their descriptor, and with it the output."""
    global _stdout_is_closed
    _stdout_is_closed = sys.stdout is None
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def be_plain() -> None:
    """Switches colours off in this process, for all its streams."""
    global _plain
    _plain = True


def safe(text: str, stream: TextIO | None = None) -> str:
    """Returns the text on one line, without anything that moves a cursor or can't be encoded."""
    if len(text) > _MAX_TEXT:
        text = f"{text[:_MAX_TEXT]}... ({len(text) - _MAX_TEXT} more characters)"
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _as_many_as_fit(report: Report, next_once: bool) -> list[list[Line]]:
    """Returns the lines of each finding shown: all if they are few, else as many as fit."""
    said: set[str] = set()  # commands to type
    made = []
    for finding in report.findings[:_MAX_FINDINGS]:
        made.append(list(_finding_lines(finding, report.summary, said)))
        if next_once:
            said.update(finding.next)
    if len(report.findings) <= _MAX_FINDINGS:
        return made
    while len(made) > 1 and sum(map(len, made)) > _MAX_LINES:
        made.pop()
    return made


def _finding_lines(finding: Finding, summary: str, said: Collection[str]) -> Iterable[Line]:
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
    for command in (command for command in finding.next if command not in said):
        yield f"    next        {command}", "bold"


def _evidence(evidence: Evidence) -> str:
    unit = f" {evidence.unit}" if evidence.unit else ""
    numbers = []
    if evidence.value is not None:
        numbers.append(f"{number_text(evidence.value)}{unit}")
    if evidence.median is not None:
        numbers.append(f"median of the others {number_text(evidence.median)}{unit}")
    if evidence.spread is not None:
        numbers.append(f"spread {evidence.spread:.2%}")
    return f"{evidence.text}{': ' if numbers else ''}{', '.join(numbers)} [{evidence.source}]"


def _folded_lines(findings: Sequence[Finding]) -> Iterable[Line]:
    """Returns the findings beyond the screen, one line per condition, cause and stage."""
    groups = grouped(((one.condition, one.cause, one.stage), one) for one in findings)
    if groups:
        yield "", ""
    for (condition, cause, stage), members in list(groups.items())[:_MAX_GROUPS]:
        ranks = {rank for member in members for rank in member.who.ranks}
        who = _ranks(ranks) if ranks else f"{len(members)} more"
        where = f", stage {stage}" if stage else ""
        yield f"  {who}: {condition} ({cause}{where})", _MILD.get(condition, "red")
    if len(groups) > _MAX_GROUPS:
        yield f"  {len(groups) - _MAX_GROUPS} more kinds of findings in the JSON", ""


def _not_named(report: Report) -> tuple[list[int], list[int]]:
    """Returns the ranks that no finding names: ranks that raised, and all others."""
    size = report.world.get("size")
    named = {rank for finding in report.findings for rank in finding.who.ranks}
    others = [rank for rank in range(size) if rank not in named] if isinstance(size, int) else []
    raised = set(report.raised)
    return [r for r in others if r in raised], [r for r in others if r not in raised]


def _ranks(ranks: Iterable[int]) -> str:
    return _short(ranks_text(ranks))


def _short(text: str, limit: int = 160) -> str:
    """Cuts a long list after one of its entries, any other text after a character."""
    if len(text) <= limit:
        return text
    return f"{text[:limit].rpartition(', ')[0] or text[:limit]}, ..."


def _table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], stream: TextIO, title: str
) -> None:
    cells = [[safe("-" if cell is None else str(cell), stream) for cell in row] for row in rows]
    heads = [safe(column, stream) for column in columns]
    right = [_all_numbers(row[i] for row in cells) for i in range(len(heads))]
    natural = [max(len(line[i]) for line in [heads, *cells]) for i in range(len(heads))]
    lines: list[Line] = [(title, "bold")] if title else []
    begins = [{tuple(row[: n + 1]) for row in cells} for n in range(len(heads))]
    first = next((n + 1 for n, some in enumerate(begins) if len(some) == len(cells)), 1)
    parts = _parts(natural, right, terminal_width(stream), first)
    for number, (part, widths) in enumerate(parts):
        to_right = [right[i] for i in part]
        head, *body = ([row[i] for i in part] for row in [heads, *cells])
        lines += [("", "")] * (number > 0)
        lines += [(text, "bold") for text in _padded(head, widths, to_right)]
        rules = ["-" * width for width in widths]
        lines += [(text, "") for row in [rules, *body] for text in _padded(row, widths, to_right)]
    _write(lines, stream)


def _parts(
    widths: list[int], right: Sequence[bool], limit: int | None, first: int
) -> Iterator[tuple[list[int], list[int]]]:
    """Yields the columns of each part of a table, and how wide each is: in each the first ones."""
    every = list(range(len(widths)))
    if limit is None or sum(widths) + 2 * len(widths) - 2 <= limit:
        yield every, widths
        return
    texts = [i for i in every if not right[i]]
    widths = list(widths)
    while sum(widths) + 2 * len(widths) - 2 > limit:
        widest = max(texts, key=lambda i: widths[i], default=None)
        if widest is None or widths[widest] <= _NARROWEST:
            break
        widths[widest] -= 1
    first = first if 2 * sum(widths[:first]) <= limit else 1  # half is left to others
    part = every[:first]
    for i in every[first:]:
        if len(part) > first and sum(widths[k] for k in (*part, i)) + 2 * len(part) > limit:
            yield part, [widths[k] for k in part]
            part = every[:first]
        part.append(i)
    yield part, [widths[k] for k in part]


def _padded(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> Iterator[str]:
    """Yields the lines of a row. Texts that are too wide for their column wrap."""
    wrapped = [
        textwrap.wrap(text, width, break_on_hyphens=False) or [""] if len(text) > width else [text]
        for text, width in zip(cells, widths, strict=True)
    ]
    for number in range(max(map(len, wrapped))):
        texts = [lines[number] if number < len(lines) else "" for lines in wrapped]
        padded = [
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(texts, widths, right, strict=True)
        ]
        yield "  ".join(padded).rstrip()


def terminal_width(stream: TextIO) -> int | None:
    """Returns how wide a table may be: $COLUMNS, else the terminal's width; None without both."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    with suppress(OSError, ValueError):
        return os.get_terminal_size(stream.fileno()).columns or None
    return None


def _all_numbers(cells: Iterable[str]) -> bool:
    """Returns whether a column holds only numbers, with or without a unit."""
    texts = [cell for cell in cells if cell != "-"]
    return bool(texts) and all(text.lstrip("+-")[:1].isdigit() for text in texts)


def _has_style(stream: TextIO) -> bool:
    """Returns whether the stream is a terminal that wants colours."""
    if _plain or os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", ""):
        return False
    with suppress(ValueError):  # closed
        return stream.isatty()
    return False


def _write(lines: Iterable[Line], stream: TextIO) -> None:
    made = [(safe(text, stream), style) for text, style in lines]
    if not _has_style(stream):
        # In one write, also where stderr is unbuffered: ranks write to one terminal.
        stream.write("".join(f"{text}\n" for text, _ in made))
        stream.flush()
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False, emoji=False)  # obeys NO_COLOR
    for text, style in made:
        console.print(Text(text, style=style), soft_wrap=True)
