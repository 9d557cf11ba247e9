"""Opens logs, and finds the writers of lines: shared by all commands of `oddrank logs`."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from oddrank.inputs import Item, Notes, files
from oddrank.triage.evidence import log_lines
from oddrank.triage.facts import Process

_MOST_NAME = 80
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Source:
    """One log. writers: knows the ranks behind its prefixes, as triage does."""

    item: Item
    writers: log_lines.Writers


@contextmanager
def opened(paths: Sequence[str], notes: Notes) -> Iterator[list[Source]]:
    """Yields all logs below the paths; packed ones are unpacked, "-" is stdin.

    OddrankError if a path does not exist, or there is no log.
    """
    with files.texts(paths, notes) as items:
        found = []
        for item in log_lines.placed(items):
            if (known := log_lines.writers(item)) is None:
                notes.add(item, "left out: it is not readable")
            else:
                found.append(Source(item, known))
        yield found


def name(process: Process) -> str:
    """Returns a name for files and labels: rank3, node7-local-rank-3, no-rank."""
    if process.rank is not None:
        return f"rank{process.rank}"
    pid = f"pid{process.pid}" if process.pid is not None else ""
    text = "-".join(part for part in (process.host or "", process.label, pid) if part)
    return _UNSAFE.sub("-", text)[:_MOST_NAME].strip("-.") or "no-rank"
