"""Makes items of texts, and facts of items, as the command does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oddrank.inputs import HEAD, Item, Notes, files
from oddrank.triage import report
from oddrank.triage.evidence import Kind
from oddrank.triage.facts import Fact


def item_of(path: Path, name: str = "") -> Item:
    content = path.read_bytes()
    written = path.stat().st_mtime_ns
    return Item(name or path.name, path, len(content), content[:HEAD], written_ns=written)


def read_all(kind: Kind, *paths: Path) -> tuple[list[Fact], list[str]]:
    """Reads the files that are of the kind. Returns facts and notes."""
    notes = Notes()
    return list(kind.read([i for i in map(item_of, paths) if kind.sniff(i)], notes)), notes.lines


def facts_of(kind: Kind, *paths: Path) -> list[Fact]:
    """Returns the facts of the files that are of the kind. The readers must have no complaint."""
    found, lines = read_all(kind, *paths)
    assert lines == [], lines
    return found


def judged(path: Path) -> Any:
    """Judges a file or a folder, as the command does."""
    with files.opened([str(path)], Notes()) as items:
        return report.judged(items, Notes())


class Texts:
    """Writes texts to files of a folder, and reads them as one kind of evidence."""

    def __init__(self, folder: Path, kind: Kind) -> None:
        self.folder, self.kind = folder, kind

    def facts(self, *texts: str) -> list[Fact]:
        paths = []
        for number, text in enumerate(texts):
            path = self.folder / f"{number}.log"
            path.write_text(text, encoding="utf-8", errors="surrogateescape")
            paths.append(path)
        return facts_of(self.kind, *paths)


def reader(kind: Kind) -> Callable[..., Texts]:
    """Returns the fixture of a module that reads texts as one kind of evidence."""

    @pytest.fixture(name="log")
    def log(tmp_path: Path) -> Texts:
        return Texts(tmp_path, kind)

    return log


def of_kind(facts: list[Fact], kind: type) -> list[Any]:
    return [fact for fact in facts if isinstance(fact, kind)]


def noted(kind: Kind, path: Path, content: bytes) -> tuple[list[Fact], list[str]]:
    """Reads content as one kind, whatever it is. Returns facts and notes."""
    path.write_bytes(content)
    notes = Notes()
    return list(kind.read([item_of(path)], notes)), notes.lines
