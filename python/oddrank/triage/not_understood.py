"""Quotes lines of trouble in logs of which no reader understood more: such logs are not healthy.

Healthy takes a sign: ranks that moved, or a good end.
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress

from oddrank import _native
from oddrank.errors import OddrankError
from oddrank.finding import counted
from oddrank.inputs import Item
from oddrank.inputs.files import is_text
from oddrank.triage import causes
from oddrank.triage.evidence import log_lines, nccl_ras, nvidia_smi
from oddrank.triage.evidence.log_lines import FINISHED, NO_PROGRESS, PROGRESS
from oddrank.triage.facts import Process, Source
from oddrank.triage.suspects import Point, Suspect

RULE = "not-understood"
# Tables whose healthy text has words such as "Errors": rows "Name : value" and headings.
_TABLES = (nvidia_smi.KIND, nccl_ras.KIND)
_CELL = re.compile(r"[^:]+ : |[^:]*\bErrors\W*$")
_TRACEBACK = "Traceback (most recent"
_LOUD_WORDS = ("rror", "ERROR", "atal", "FATAL", "died", "illed", "imed out", "imeout", "lost",
               "efused", "bort", "xception", "reempt", "issing ranks", "stall", "Stalled", "tuck",
               "xited", "victed", "ismatched", "Failed", "BackoffL", "CrashLoop",
               "lame w", "NCCL WARN", "illing sub", "Assertion `", "lready in use",
               "CRITICAL", "CUDA_ERROR_", " dead", "iming out", "xit with", "status fail",
               "egmentation f", _TRACEBACK)  # fmt: skip
_LOUD = re.compile(
    r"(?<![\w-])(?:\w*errors?|fatal|died|killed|tim(?:ed|ing) out|timeout(?![\w=:),]| ?\()|lost"
    r"|refused|stuck|traceback|abort(?:ed|ing)?|\w*exception|preempted|missing ranks|stall(?:ed)?"
    r"|exit(?:ed)? with (?:exit |status )?code [1-9]\d*|status failed|segmentation fault|evicted"
    r"|mismatched|lame workers|nccl warn|critical|dead|already in use|cuda_error_\w+"
    r"|killing subprocess|assertion .{1,200} failed"
    r"|(?-i:[A-Z]\w+Failed|Failed[A-Z]\w+|BackoffLimitExceeded|CrashLoopBackOff))(?!\w)", re.I,
)  # fmt: skip
# The first of these lines is shown before lines that may be prose.
_PLAIN = re.compile(
    r"\b(?:\w*[A-Z]\w*(?:Error|Exception)|ERROR|FATAL|CUDA_ERROR_\w+|NCCL WARN|died|[Kk]illed"
    r"|timed out|refused)\b|\[[EF][ \d]"
)
_QUIET = re.compile(  # a line of source in a traceback is none, either
    r"\b(?:no|0|without|ignor\w+) (?:errors?|exceptions?)|errors?[:=] ?0\b|(?:^|[\]:])\s*raise \w"
    r'|File "[^"]+", line \d',
    re.I,
)
_NO_LOG = (".py", ".sh", ".yaml", ".yml", ".toml", ".md", ".c", ".cpp", ".h")
_MOST, _MOST_TEXT, _MOST_OF_A_WORD = 8, 300, 1000
_END = 1 << 18  # bytes


def judge(items: Sequence[Item], *, ended: bool = False, read: bool = True) -> Suspect | None:
    """Returns the suspect if judges found none. ended: a process or a device did.
    None if there are no files, or if logs tell of ranks that moved or ended well; if nothing else
    was read, they have to tell of a good end.
    """
    if not items:
        return None
    looked = []
    for item in items:
        is_json = re.match(rb"\s*\{[^']", item.head)  # Python prints metrics with an apostrophe
        if is_text(item) and not is_json and not item.name.endswith(_NO_LOG):
            with suppress(OSError, OddrankError):
                looked.append(_Looked(item))
    telling = [each for each in looked if each.loud or each.steps or each.ended_well]
    if telling and not ended and all(each.well if read else each.ended_well for each in telling):
        return None
    points = [point for each in looked for point in each.loud]
    points.sort(key=lambda point: not _PLAIN.search(point.text))
    lines = sum(each.lines for each in looked)
    understood = sum(each.understood for each in looked)
    text = f"oddrank understood {understood} of {counted(lines, 'line')}"
    told = {p: None for each in looked for p in each.speakers if p != Process()}
    return Suspect(
        causes.UNKNOWN, (), rule=RULE, certainty=0, support=(*points[:_MOST], Point(text)),
        waiting=tuple(told),
    )  # fmt: skip


class _Looked:
    """One log's contents. loud: its first lines of trouble. steps: training steps in its lines."""

    def __init__(self, item: Item) -> None:
        path, needles = os.fsencode(item.path), [(word, 0) for word in _LOUD_WORDS]
        scan = _native.core().scan_lines(path, needles, most=_MOST_OF_A_WORD, speakers=False)
        writers = log_lines.writers(item)
        self.loud: list[Point] = []
        self.steps: set[str] = set()
        self.speakers: list[Process] = []
        known = log_lines.lines_of(item)
        last_step = last_loud = 0
        finished, table = 0, any(kind.sniff(item) for kind in _TABLES)
        for number, _, text, writer, *_ in scan["matches"]:
            if _LOUD.search(text) and not (_QUIET.search(text) or (table and _CELL.match(text))):
                last_loud = number
                if len(self.loud) < _MOST and _TRACEBACK not in text:  # which says no more
                    process = writers.process(writer) if writers else Process()
                    self.speakers.append(process)
                    who = f"rank {process.rank}: " if process.rank is not None else ""
                    said = text.strip()[:_MOST_TEXT]
                    self.loud.append(Point(f"{who}{said}", Source(item.name, number)))
        with open(item.path, "rb") as file:  # steps go on to its end
            file.seek(max(item.size - _END, 0))
            end = file.read(_END).decode(errors="replace").splitlines()
        for number, text in enumerate(end, max(scan["lines"] - len(end), 0) + 1):
            if not NO_PROGRESS.search(text):
                finished = number if FINISHED.search(text) else finished
                if step := PROGRESS.search(text):
                    self.steps.add(step[1])
                    last_step = number
                    known.add(number)
        self.ended_well = finished > last_loud
        self.well = finished > 0 or (len(self.steps) > 1 and last_step > last_loud)
        self.lines, self.understood = scan["lines"], len(known)
        if table and not self.loud and not self.steps:
            self.lines, self.understood = 0, 0
