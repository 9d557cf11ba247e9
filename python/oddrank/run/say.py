"""Words for the user's terminal: on stderr, between the job's own lines, each write whole."""

import os
import queue
import select
import stat
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from oddrank import render
from oddrank.finding import Finding, duration, ranks_text
from oddrank.report import Report

_MOST_EVIDENCE = 2
_MOST_LATE = 4
_STDERR = 2
_SECONDS = 0.2  # for lines to be written, so that they come before what happens next
_WRITER = "oddrank-writer"
_unwritten: "queue.Queue[bytes]" = queue.Queue()
# The last line that was said, and the size of stderr's file after it.
_last: dict[str, Any] = {"line": "", "size": 0}


def lines(texts: Sequence[str]) -> None:
    """Writes lines, the first one with oddrank's name, in one piece; waits only a moment for that.

    An empty line comes before: a progress bar may have left the last one open. The pipe may have no
    reader, and a file system may not answer: a thread of its own writes.
    """
    made = [f"oddrank: {texts[0]}", *(f"  {text}" for text in texts[1:])]
    _last["line"] = made[-1]
    is_behind = not wait_written(0.0)
    _unwritten.put("".join(f"{render.safe(line)}\n" for line in ["", *made]).encode())
    if not any(thread.name == _WRITER for thread in threading.enumerate()):
        threading.Thread(target=_write_all, name=_WRITER, daemon=True).start()
    if not is_behind:
        wait_written(_SECONDS)


def again(sentence: str, *, after_others: bool) -> None:
    """Says a sentence as the job's last line, unless it stands there.

    after_others: others have written since.
    """
    wait_written(_SECONDS)
    if after_others or _last["size"] != _file_size() or not _last["line"].endswith(sentence):
        lines([sentence])


def _file_size() -> int:
    with suppress(OSError):
        if stat.S_ISREG((found := os.fstat(_STDERR)).st_mode):
            return found.st_size
    return 0


def wait_written(seconds: float) -> bool:
    """Waits until all lines are written, or so long. Returns whether they are."""
    with _unwritten.all_tasks_done:
        return _unwritten.all_tasks_done.wait_for(
            lambda: not _unwritten.unfinished_tasks, timeout=seconds
        )


def _write_all() -> None:
    while True:
        text = _unwritten.get()
        with suppress(OSError):  # the reader is gone
            while text:
                try:
                    text = text[os.write(_STDERR, text) :]
                except BlockingIOError:  # another process made it so
                    select.select([], [_STDERR], [])
        _last["size"] = _file_size()
        _unwritten.task_done()


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
    return f"no rank has moved for {duration(seconds, 0)}, and nothing says why"


def late(found: Sequence[Finding]) -> list[str]:
    """Returns a sentence for each of the latest ranks, then how many more there are."""
    texts = [finding.what for finding in found[:_MOST_LATE]]
    more = {rank for finding in found[_MOST_LATE:] for rank in finding.who.ranks}
    return [*texts, *([f"late, too: {ranks_text(more)}"] if more else [])]
