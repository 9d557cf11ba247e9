"""Which commit the working directory has: read from git's own files, without running git there."""

import re
from pathlib import Path

from oddrank.selftest.facts.fact import Fact, Here

_MOST_BYTES = 1 << 22


def commit(here: Here, folder: Path | None = None) -> str | None:
    """Of HEAD; None outside a repository. Changes that are not committed are not seen."""
    start = folder or Path.cwd()
    for place in (start, *start.parents):
        mark = place / ".git"
        if mark.is_dir():
            return _head(mark, mark)
        if mark.is_file():  # a further working tree, or a submodule
            own = place / _first_line(mark).removeprefix("gitdir:").strip()
            shared = own / "commondir"
            return _head(own, own / _first_line(shared) if shared.is_file() else own)
    return None


def _head(own: Path, shared: Path) -> str | None:
    head = _first_line(own / "HEAD")
    name = head.removeprefix("ref:").strip()
    if not head.startswith("ref:"):
        return _hash(head)
    if ".." in name or name.startswith("/"):
        return None
    loose = shared / name
    return _hash(_first_line(loose)) if loose.is_file() else _packed(shared / "packed-refs", name)


def _packed(file: Path, name: str) -> str | None:
    with open(file, encoding="utf-8", errors="replace") as lines:
        for line in lines.read(_MOST_BYTES).splitlines():
            found, _, ref = line.partition(" ")
            if ref == name:
                return _hash(found)
    return None


def _first_line(file: Path) -> str:
    with open(file, encoding="utf-8", errors="replace") as text:
        return text.readline(4096).strip()


def _hash(text: str) -> str | None:
    return text if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", text) else None


FACTS = (Fact("git_commit", commit, "breaks"),)
