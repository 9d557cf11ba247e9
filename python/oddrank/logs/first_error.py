"""Finds which rank said what first: failures in order, with what follows from others folded.

triage reads and judges the same lines: one table of errors and of cascades (triage.judges.ends)
serves both, so that the two never name different ranks.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from oddrank.errors import OddrankError
from oddrank.finding import Evidence, Finding, Row, Who, counted, group_name, grouped, ranks_text
from oddrank.inputs import Notes
from oddrank.logs import sources
from oddrank.logs.sources import Source
from oddrank.report import Report
from oddrank.triage import findings, report, timeline
from oddrank.triage.evidence import kinds, log_lines
from oddrank.triage.facts import Process, Progress, ranks
from oddrank.triage.facts import Source as Place
from oddrank.triage.judges import ends
from oddrank.triage.next_steps import next_steps
from oddrank.triage.report import Triage
from oddrank.triage.view import View
from oddrank.triage.words import call_text, place_text

_KINDS = [kind for kind in kinds.KINDS
          if kind.name in ("kubectl", "launcher", "tracebacks", "watchdog")]  # fmt: skip
Basis = Literal["time", "line", "unknown"]
# Kind of a row -> its words in the list.
_WHY = {
    "own": "", "unlike": "was sent another size than expected", "lost": "lost a peer",
    "waited": "timed out waiting for others", "interrupted": "", "ended": "",
}  # fmt: skip
# How far a row is from the cause: ranks lose a peer, one of them exits, the launcher ends the rest.
_DISTANCE = {"own": 0, "unlike": 0, "lost": 1, "waited": 1, "interrupted": 1, "ended": 2}
_MOST_TEXT = 300
_MOST_EVIDENCE = 8


@dataclass(frozen=True)
class Said:
    """The same failure of some processes. source, time: of the first of them.

    coarse: its time is in whole seconds.
    """

    why: str
    text: str
    processes: tuple[Process, ...]
    count: int
    source: Place
    time: float | None = None
    coarse: bool = False
    wall: bool = False

    @property
    def who(self) -> str:
        known = ranks(self.processes)
        if known:
            return ranks_text(known)
        names = {sources.name(process) for process in self.processes if process != Process()}
        if len(names) == 1:
            return names.pop()
        return f"{len(self.processes)} processes" if len(self.processes) > 1 else "a process"

    @property
    def event(self) -> timeline.Event:
        host = self.processes[0].host if self.processes else None
        return timeline.Event(self.time or 0.0, self.text, self.source, host, coarse=self.coarse,
                              wall=self.wall)  # fmt: skip


@dataclass(frozen=True)
class Told:
    """Failures in logs, in the order that `basis` gives."""

    failures: list[Said]
    basis: Basis
    triage: Triage
    files: int


def read(logs: Sequence[Source], notes: Notes) -> Told:
    """Reads all failures, and judges which came first."""
    items = [source.item for source in logs]
    own = Notes()
    facts = [fact for *_, found in kinds.read(items, own, _KINDS) for fact in found]
    # A note on a log without a failure only says that it found nothing.
    notes.lines += [line for line in own.lines if "left out" in line]
    triage = report.judge({"": facts}, items, notes, {})
    if not facts and any(len(one.support) < 2 for one in triage.suspects):
        what = f"no line of {counted(len(items), 'log')} tells of a failure, a step or a good end"
        raise OddrankError(f"{what}; give logs of how ranks end; oddrank triage reads more")
    seen = triage.view
    # Lines that name a time in whole seconds.
    read_again = log_lines.read(items, Notes())
    coarse = frozenset(log.source(line) for log in read_again for line in log.lines if line.coarse)
    failures = [*_ends(ends.ends_of(seen), coarse), *_timeouts(seen, coarse)]
    basis: Basis = "line" if len({said.source.file for said in failures}) < 2 else "unknown"
    if failures and all(said.time is not None for said in failures):
        basis = "time"
    _sort(failures, basis)
    return Told(failures, basis, triage, len(logs))


def _ends(ended: Sequence[ends.End], coarse: frozenset[Place]) -> Iterator[Said]:
    """Yields how processes ended: equal ends of several ranks are one."""
    groups = grouped(((end.why, ends.signature(end.best)), end) for end in ended)
    for group in groups.values():
        first = min(group, key=lambda end: (_time(end.timed.time if end.timed else None),
                                            end.best.source.line or 0))  # fmt: skip
        best, timed = first.best, first.timed
        text = timeline.death_text(best, several=len(group) > 1)[:_MOST_TEXT]
        if best.site and best.site[0].line is not None:
            text += f" at {place_text(best.site[0])}"
        why = "interrupted" if ends.is_interrupt(best) else first.why
        yield Said(
            why, text, tuple(end.process for end in group), len(group),
            best.source, timed.time if timed else None,
            bool(timed and (timed.coarse or timed.source in coarse)), timed is None or timed.wall,
        )  # fmt: skip


def _timeouts(seen: View, coarse: frozenset[Place]) -> Iterator[Said]:
    """Yields the calls that watchdogs gave up, of ranks that may live on."""
    groups: dict[tuple[str, str], list[Progress]] = defaultdict(list)
    for group, members in seen.progress.items():
        for progress in members.values():
            if progress.timed_out:
                call = call_text(next(iter(progress.open), None))
                groups[call or "a call", group.title].append(progress)
    for (call, title), late in groups.items():
        first = min(late, key=lambda p: (_time(p.time), p.source.line or 0))
        text = f"gave up waiting in {call} of {group_name(title)}"
        yield Said("waited", text, tuple(p.process for p in late), len(late), first.source,
                   first.time, first.source in coarse, first.wall)  # fmt: skip


def _sort(failures: list[Said], basis: Basis) -> None:
    """Puts failures in order; within a second, a cause before what follows from it.

    A time in whole seconds may be any within the second. That of a consequence counts as the end of
    the second, so that only an exact time puts it before the cause. A lost peer or a timeout counts
    so only if the second has a cause; an end by the launcher always does.
    """
    seconds = {int(s.time) for s in failures if s.time is not None and not _DISTANCE[s.why]}

    def key(said: Said) -> tuple[float, bool, int, str, int]:
        file, line = said.source.file if basis == "unknown" else "", said.source.line or 0
        distance = _DISTANCE[said.why]
        if basis != "time" or said.time is None:
            return 0.0, False, distance if file else 0, file, line
        late = said.coarse and (distance > 1 or (distance == 1 and int(said.time) in seconds))
        return said.time + (1.0 if late else 0.0), not late, distance, file, line

    failures.sort(key=key)


def _time(time: float | None) -> float:
    return float("inf") if time is None else time


def lines(told: Told, most: int) -> Iterator[str]:
    """Yields the list: time, rank, error, place. `~`: not known to be after the line above."""
    words = {
        "time": "in order of time",
        "line": "in order of lines: these have no times",
        "unknown": "causes first: lines without times in several files have no order",
    }
    failures = told.failures
    if failures:
        yield f"what failed, {words[told.basis]}"

    def place(said: Said) -> str:
        return str(said.source).removeprefix(told.triage.folder)

    before: Said | None = None
    start = failures[0].time if failures and told.basis == "time" else None
    for said in failures[:most]:
        unsure = before is not None and (
            told.basis == "unknown"
            or (told.basis == "time" and not timeline.ordered(before.event, said.event))
        )
        when = f"{said.time - start:+9.3f} s" if start is not None and said.time is not None else ""
        why = f" ({_WHY[said.why]})" if _WHY[said.why] else ""
        yield f"{'~' if unsure else ' '}{when}  {said.who}: {said.text}{why} [{place(said)}]"
        before = said
    if len(failures) > most:
        yield f"  ... and {len(failures) - most} more"


def data(told: Told) -> dict[str, Any]:
    """Returns the data of the report."""
    return {
        "order": told.basis,
        "said": [
            {"kind": said.why, "text": said.text, "ranks": list(ranks(said.processes)),
             "who": said.who, "count": said.count, "source": str(said.source), "time": said.time}
            for said in told.failures
        ],
    }  # fmt: skip


def report_of(told: Told, content: dict[str, object], lost: str) -> Report:
    """Makes the report of first-error. lost: which logs were not read, for an end of a sentence."""
    found = [
        findings.finding(s, next_steps(s, told.triage.view), told.triage.folder)
        for s in told.triage.suspects
    ]
    logs = counted(told.files, "log")
    failures = told.failures
    own = [said for said in failures if said.why == "own"]
    if len(own) > 1 and told.basis == "unknown":
        found = [_found(NO_ORDER, own[:_MOST_EVIDENCE])]
    elif failures and not found:
        found = [_found(FIRST_SAID, failures[:1])]
    why = f"read: {logs}"
    if not failures:
        why = f"no line of {logs} tells of a failure"
    size = told.triage.view.world
    return Report.of("logs first-error", {"size": size} if size else {}, content, found,
                     complete=bool(found) or not lost, why=why + lost)  # fmt: skip


# fmt: off
NO_ORDER = Row(
    "no-order", "unknown",
    "{names}: each failed in its own way, and no times tell which was first",
    ("low", "lines without times in several logs have no order"),
    ("give the log of the launcher, or logs whose lines name times",))
FIRST_SAID = Row(
    "first-said", "unknown",
    "{name} said first that it failed, and nothing says whose fault that was",
    ("low", "a log tells who spoke first, not who was at fault"),
    ("oddrank triage PATH... with stacks or dumps of the ranks",))
# fmt: on


def _found(row: Row, said: Sequence[Said]) -> Finding:
    names = "; ".join(one.who for one in said)
    seen = (Evidence(one.text, str(one.source)) for one in said)
    return row.found(Who("process", (), None, said[0].who), *seen, names=names, name=said[0].who)
