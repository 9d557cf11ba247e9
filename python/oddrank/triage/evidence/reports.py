"""oddrank's own JSON reports of the self-test and of bench: what they found before the job."""

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from oddrank.inputs import Item, Notes, unix_time
from oddrank.report import SCHEMA
from oddrank.triage.evidence import Kind, of_json
from oddrank.triage.facts import Fact, Source, Trouble

_NAMES = {"selftest": "the self-test", "bench": "oddrank bench"}
_BEGIN = re.compile(rb'^\s*\{\s*"schema"\s*:\s*"%s"' % SCHEMA.encode())
_TEXT = 400
_WHO = ("gpu", "node", "link", "rank")


def _read(items: Sequence[Item], notes: Notes) -> Iterable[Fact]:
    for item in items:
        yield from of_json(item, notes, partial(_report, item, notes), most=256 << 20)


def _report(item: Item, notes: Notes, report: Mapping[str, Any]) -> Iterator[Fact]:
    tool = report["tool"]
    if tool in _NAMES:
        found = report.get("findings", [])
        yield from (_trouble(item, tool, finding) for finding in found if _tells(finding))
    else:
        notes.add(item, f"a report of oddrank {tool} is no evidence of a job", lost=False)


KIND = Kind("reports", True, lambda item: _BEGIN.match(item.head) is not None, _read)


def _tells(finding: Mapping[str, Any]) -> bool:
    """Returns whether it names something. Low confidence only shows a suspect."""
    return (
        finding["condition"] != "unknown"
        and finding["confidence"]["level"] != "low"
        and finding["who"]["kind"] in _WHO
    )


def _trouble(item: Item, tool: str, finding: Mapping[str, Any]) -> Trouble:
    who = finding["who"]
    # An unpacked copy has another time.
    made = unix_time(item.written_ns / 1e9) if str(item.path) == item.name else None
    when = f" of {time.strftime('%Y-%m-%d %H:%M', time.localtime(made))}" if made else ""
    level = str(finding["confidence"]["level"])
    text = f"{_NAMES[tool]}{when} found: {str(finding['what'])[:_TEXT]} ({level} confidence)"
    return Trouble(
        tool, text, Source(item.name), _word(who.get("host")), _word(who.get("device")),
        code=str(finding["cause"]), time=made, coarse=True,
        ranks=tuple(int(rank) for rank in who["ranks"]),
    )  # fmt: skip


def _word(value: Any) -> str | None:
    return str(value) if value else None
