"""What readers make of the lines that tools write: lines in data/read/, facts in golden files."""

import json
import os
import re
from importlib import import_module
from pathlib import Path

import pytest

from oddrank.inputs import Notes
from oddrank.report import envelope
from oddrank.triage.evidence import kinds
from triage.facts_of import facts_of, item_of
from triage.told import shown

DATA = Path(__file__).with_name("data") / "read"
WRITTEN = 1_740_315_600  # 2025-02-23 13:00: dates without a year are before that


@pytest.mark.parametrize("name", [file.stem for file in sorted(DATA.iterdir())])
def test_what_is_read_of_each_log(tmp_path, name, golden):
    """A part `=== NAME` of a file is a log; of `=== each line, NAME` each line is one."""
    kind = import_module(f"oddrank.triage.evidence.{name}").KIND
    text, said = (DATA / f"{name}.txt").read_text(), []
    for title, _, log in (part.partition("\n") for part in re.split("(?m)^=== ", text)[1:]):
        said.append(f"=== {title}")
        for each in log.splitlines(keepends=True) if title.startswith("each line") else [log]:
            path = tmp_path / f"{len(said)}"  # what was scanned is known by its file
            path.write_text(each)
            os.utime(path, (WRITTEN, WRITTEN))
            said += [each.rstrip("\n")] if each is not log else []
            said += [f"  {shown(fact)}" for fact in facts_of(kind, path)]
    golden("\n".join(said))


def test_the_docs_list_all_kinds_of_evidence_in_the_table_s_order():
    docs = (Path(__file__).parents[2] / "docs" / "triage.md").read_text()
    head = "| kind | what it is, and where it comes from |\n|---|---|\n"
    table = docs.partition(head)[2].partition("\n\n")[0]
    names = [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()]
    assert names == [kind.name for kind in kinds.KINDS]


def test_of_many_files_without_evidence_one_that_was_named_is_told_first(tmp_path):
    for name in "0123456789":
        (tmp_path / name).write_text("hello\n")
    notes = Notes()
    notes.named = frozenset("9")
    assert list(kinds.read([item_of(file) for file in sorted(tmp_path.iterdir())], notes)) == []
    assert [line.partition(":")[0] for line in notes.lines] == [*"90123456", "2 more files"]


@pytest.mark.parametrize("tool", ["advise", "selftest"])
@pytest.mark.parametrize("indent", [None, 1])
def test_a_report_of_oddrank_is_no_evidence(tmp_path, tool, indent):
    path = tmp_path / "report.json"
    data = {"said": "RuntimeError: rank 3: Watchdog caught collective operation timeout"}
    path.write_text(json.dumps(envelope(tool, {}, data), indent=indent))
    notes = Notes()
    assert list(kinds.read([item_of(path)], notes)) == []
    assert notes.lines == [f"report.json: a report of oddrank {tool} is no evidence of a job"]
    assert not notes.lost


def test_a_core_is_not_read_and_the_note_says_what_is(tmp_path):
    core = tmp_path / "core.4711"
    core.write_bytes(
        b"\x7fELF\x02\x01".ljust(16, b"\0") + b"\x04\0" + b"\nSegmentation fault\n" * 9
    )
    notes = Notes()
    assert list(kinds.read([item_of(core)], notes)) == []
    assert notes.lines == [f"core.4711: {kinds._CORE}"]
