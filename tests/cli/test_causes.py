"""docs/causes.md lists the causes of all commands; `make golden` writes it."""

import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path

from oddrank.advise.checks import CAUSES
from oddrank.finding import Row
from oddrank.metrics.findings import _TABLE
from oddrank.triage import causes
from oddrank.triage.facts import Process
from oddrank.triage.findings import finding
from oddrank.triage.suspects import Suspect

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "causes.md"
HEAD = """# All causes

`cause` of a finding ([report.md](report.md)) is one of these; scripts may compare with it. Braces
stand for what a finding fills in: {who} is a rank, a node, a GPU or a link. "what to type" is its
`next`. Where the evidence or the command tells more, `next` has other or further lines. `make
golden` writes this page from the tables that the commands take their sentences from.
"""
# Folder of the package -> the commands that say its causes.
TITLES = {
    "triage": "triage, run (rank 2 stands for the named one)",
    "control": "selftest, bench and all that start ranks",
}


def rows_in(thing: object) -> Iterator[Row]:
    """Yields the rows of a module's variable: a row, or a table of rows."""
    if isinstance(thing, Row):
        yield thing
    elif isinstance(thing, Mapping):
        yield from rows_in(tuple(thing.values()))
    elif isinstance(thing, tuple | list):
        for each in thing:
            yield from rows_in(each)


def every() -> Iterator[tuple[str, str, str, Iterable[str]]]:
    """Yields folder, cause, sentence, and what to type, of each row."""
    for cause, row in CAUSES.items():
        yield "advise", cause, row.what, row.next
    for cause, row in _TABLE.items():
        yield "metrics", cause, row.what, row.next
    for cause, row in causes.TABLE.items():
        if row.says is not None:
            # Two processes: a single one is in no circle.
            named = (Process(2), Process(3)) if row is causes.CYCLE else (Process(2),)
            yield "triage", cause, finding(Suspect(row, named, "", 2)).what, row.next
    for file in sorted((ROOT / "python" / "oddrank").rglob("*.py")):
        if re.search(r"\bRow\(", text := file.read_text()) and "oddrank.finding import" in text:
            parts = file.relative_to(ROOT / "python").with_suffix("").parts
            for thing in vars(import_module(".".join(parts))).values():
                for row in rows_in(thing):
                    yield parts[1], row.cause, row.what, row.next


def page() -> str:
    tables: dict[str, dict[tuple[str, ...], None]] = {}
    for folder, cause, *texts in every():
        shown = texts[0], "; ".join(f"`{command}`" for command in texts[1])
        row = (f"`{cause}`", *(text.replace("|", "\\|") for text in shown))
        tables.setdefault(folder, {})[row] = None
    made = [HEAD.rstrip()]
    for folder in sorted(tables):
        made += [f"\n## {TITLES.get(folder, folder)}\n", "| cause | sentence | what to type |"]
        made += ["|---|---|---|", *(f"| {' | '.join(row)} |" for row in tables[folder])]
    return "\n".join(made) + "\n"


def test_the_page_of_causes_is_that_of_the_tables(golden, request):
    if request.config.getoption("--golden"):
        PAGE.write_text(page(), encoding="utf-8")
    assert page() == PAGE.read_text(encoding="utf-8"), "`make golden` writes docs/causes.md"
