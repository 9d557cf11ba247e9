"""Opens logs, and says who wrote a line: what all commands of `oddrank logs` share."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from oddrank.errors import OddrankError
from oddrank.triage.evidence import Item, Notes, files, lines, log_lines
from oddrank.triage.facts import Process

_CHUNK = 1 << 17  # what was read stays in a core's cache while it is cut
_MOST_NAME = 80
_NO_WRITER = "no-rank"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Source:
    """One log. writers: knows the ranks behind its prefixes, as triage does."""

    item: Item
    writers: log_lines.Writers

    def process(self, writer: tuple[Any, ...]) -> Process:
        return self.writers.process(writer)

    @property
    def hosts(self) -> set[str]:
        """The hosts that its prefixes name."""
        return {p.host for p in log_lines.speakers(self.item) if p.host is not None}

    @property
    def written_ns(self) -> int:
        """When it was last written: tells the year of times that name none."""
        return self.item.path.stat().st_mtime_ns

    def chunks(self) -> Iterator[bytes]:
        with open(self.item.path, "rb", buffering=0) as file:
            while chunk := file.read(_CHUNK):
                yield chunk


@contextmanager
def opened(paths: Sequence[str], notes: Notes) -> Iterator[list[Source]]:
    """Yields all logs below the paths; packed ones are unpacked, "-" is stdin.

    OddrankError if a path does not exist, or nothing in them is a log.
    """
    with files.opened(paths, notes) as items:
        found = []
        for item in log_lines.placed(items):
            # A folder may hold other things than logs.
            if not item.size:
                notes.add(item, "left out: it is empty", lost=False)
            elif not lines.is_text(item):
                notes.add(item, "left out: it is binary", lost=item.name in notes.named)
            elif (known := log_lines.writers(item)) is None:
                notes.add(item, "left out: it is not readable")
            else:
                found.append(Source(item, known))
        if not found:
            why = f" ({notes.lines[0]})" if notes.lines else ""
            raise OddrankError(f"there is no log in what was given{why}; give text files of a job")
        yield found


def name(process: Process) -> str:
    """Returns a name for files and labels: rank3, node7-local-rank-3, no-rank."""
    if process.rank is not None:
        return f"rank{process.rank}"
    pid = f"pid{process.pid}" if process.pid is not None else ""
    text = "-".join(part for part in (process.host or "", process.label, pid) if part)
    return _UNSAFE.sub("-", text)[:_MOST_NAME].strip("-.") or _NO_WRITER


def sort_key(process: Process) -> tuple[bool, int, str]:
    """Orders ranks by number, then all others by name."""
    return process.rank is None, process.rank or 0, name(process)
