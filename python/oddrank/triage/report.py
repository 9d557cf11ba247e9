"""From files to the report: reads the evidence, asks the judges, and says what they found."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from oddrank.errors import OddrankError
from oddrank.finding import counted
from oddrank.inputs import Item, Notes, files
from oddrank.report import Report
from oddrank.trace import where
from oddrank.triage import apart, causes, findings, not_understood, timeline, verdict, words
from oddrank.triage.evidence import kinds, record
from oddrank.triage.facts import MOST_RANKS, Fact
from oddrank.triage.next_steps import next_steps
from oddrank.triage.suspects import Point, Suspect
from oddrank.triage.view import View, bounded, ours, view

if TYPE_CHECKING:
    from oddrank.page import Parts

_MOST_NOTES = 64
_MOST_PAUSED = 4
_MOST_SAID = 2  # lines of trouble that are shown beside an exception that is cut off


@dataclass
class Triage:
    """Everything that was read, and the suspects. read: kind -> (files, facts)."""

    view: View
    suspects: list[Suspect]
    notes: Notes
    read: dict[str, tuple[int, int]] = field(default_factory=dict)
    jobs: int = 1
    """The number of jobs, or moments of one, that the files tell of."""
    folder: str = ""
    """The folder that all files share, with a slash at its end: sources are named below it."""


def read(paths: Sequence[str]) -> Triage:
    """Judges all files below the paths. OddrankError if none of them is evidence."""
    notes = Notes()
    with files.opened(paths, notes) as items:
        return judged(items, notes)


def judged(items: Sequence[Item], notes: Notes) -> Triage:
    """Reads all files and judges them. OddrankError if none of them is evidence."""
    parts: dict[str, list[Fact]] = {}
    read: dict[str, tuple[int, int]] = {}
    for name, own in apart.by_folder(items):
        for kind, chosen, found in kinds.read(own, notes):
            chosen_before, found_before = read.get(kind.name, (0, 0))
            read[kind.name] = (chosen_before + len(chosen), found_before + len(found))
            parts.setdefault(name, []).extend(found)
    if not any(parts.values()):
        suspect = not_understood.judge(items, read=False)
        if items and suspect is None and not notes.lost:
            read["log"] = len(items), 0
            return Triage(view(()), [], Notes(), read, 1, apart.shared_folder(items))
        if suspect is not None and len(suspect.support) > 1:
            return Triage(view(()), [suspect], notes, read, 1, apart.shared_folder(items))
        why = f" ({notes.lines[0]})" if notes.lines else ""
        count = counted(len(items), "file")
        if not items and not notes.lines:
            why = " (there is no file in them)"
        raise OddrankError(
            f"nothing in what was given tells what happened: {count} read{why}; give logs, stacks,"
            " dumps or records of the job"
        )
    return judge(parts, items, notes, read)


def judge(
    parts: Mapping[str, Sequence[Fact]],
    items: Sequence[Item],
    notes: Notes,
    read: dict[str, tuple[int, int]],
) -> Triage:
    """Judges each job alone. parts: the folder of a job, "" for all files, and its facts."""
    together: list[Fact] = []
    jobs_found: list[apart.Job] = []
    for folder, found in parts.items():
        facts, strange = bounded(ours(found))
        for file, number in Counter(apart.file_of(fact) for fact in strange).items():
            plural = "s" if number > 1 else ""
            notes.add(
                file,
                f"{number} fact{plural} left out: a rank or size beyond {MOST_RANKS}",
                lost=False,
            )
        together += facts
        jobs_found += [replace(job, folder=folder) for job in apart.jobs(facts)]
    views = [view(job.facts) for job in jobs_found]
    suspects = []
    for job, seen in zip(jobs_found, views, strict=True):
        found_here = verdict.suspects(seen)
        if len(views) > 1:
            alone = Point(f"judged alone, one of {len(views)}: {job.text}")
            found_here = [replace(s, support=(alone, *s.support), job=job.text) for s in found_here]
        suspects += found_here
    whole = views[0] if len(views) == 1 else view(together)
    quiet = not suspects and not whole.is_well and not notes.lost
    ended = any(not d.went_on for d in whole.deaths) or any(t.fatal for t in whole.troubles)
    if quiet and (unread := not_understood.judge(items, ended=ended)):
        suspects = [unread]
    # If a process raised what was not read, other lines may tell what.
    deaths = [one.death for one in suspects]
    if suspects and all(d is not None and d.how == "exception" and not d.text for d in deaths):
        unread = not_understood.judge(items)
        own = {death.source for death in deaths if death}
        points = unread.support if unread else ()
        said = [point for point in points if point.source and point.source not in own]
        suspects = [replace(s, support=(*s.support, *said[:_MOST_SAID])) for s in suspects]
    return Triage(whole, suspects, notes, read, len(jobs_found), apart.shared_folder(items))


def made(triage: Triage) -> Report:
    """Makes the report. Its `data` holds what was read, what was not, and each suspect's rule."""
    seen = triage.view
    size = seen.world or (max(seen.heard) + 1 if seen.heard else None)
    world: dict[str, Any] = {"size": size} if size else {}
    found = [
        findings.finding(suspect, next_steps(suspect, seen), triage.folder)
        for suspect in triage.suspects
        if suspect.cause.says is not None
    ]
    complete = bool(found) or not triage.notes.lost
    return Report.of("triage", world, _data(triage), found, complete=complete, why=_why(triage))


def _why(triage: Triage) -> str:
    read = ", ".join(f"{many} {name}" for name, (many, _) in triage.read.items())
    read = read or "nothing"
    notes, lost = triage.notes.lines, triage.notes.lost_text
    others = [line for line in notes if record.OTHER in line]
    skipped = len([line for line in notes if record.OTHER not in line and files.EMPTY not in line])
    rest = f" in {triage.folder}" if triage.folder else ""
    if skipped and (triage.suspects or not lost):
        rest += f"; not read: {skipped} (see skipped in the JSON, or --explain)"
    if others:
        other = record.OTHER + others[-1].partition(record.OTHER)[2]
        rest += f"; {len(others) + 1} jobs are here, this is the newest; another: {other}"
    if triage.jobs > 1:
        rest += f"; {triage.jobs} jobs or moments, each judged alone"
    if pauses := [on_purpose(one) for one in triage.suspects if one.cause is causes.PAUSED]:
        return "; ".join(pauses) + lost
    if triage.suspects:
        return f"read: {read}{rest}"
    return f"nothing in what was read tells of a stall or a death; read: {read}{rest}{lost}"


def on_purpose(suspect: Suspect) -> str:
    """Returns the sentence on ranks that wait on purpose. It is no finding: nothing is wrong."""
    stopped = [one for one in suspect.pauses if one.pause.kind == "breakpoint"]
    waiting = [one for one in suspect.pauses if one.pause.kind == "waits"]
    texts = []
    if stopped:
        first = stopped[0]
        few = [f"{words.count([one.process])} {one.pause}" for one in stopped[:_MOST_PAUSED]]
        more = " and more" if len(stopped) > len(few) else ""
        lasts = where.on_purpose(first.pause, None if first.gone else first.seen)
        texts.append(f"{', '.join(few)}{more}{lasts}")
    if waiting:
        they = words.count([one.process for one in waiting])
        wait = "wait" if len(waiting) > 1 else "waits"
        whom = "it" if stopped else f"rank {waiting[0].pause.what} at a breakpoint"
        texts.append(f"{they} {wait} for {whom}")
    return "; ".join(texts)


def _data(triage: Triage) -> dict[str, Any]:
    return {
        "evidence": [
            {"kind": name, "files": files, "facts": facts}
            for name, (files, facts) in triage.read.items()
        ],
        "folder": triage.folder or None,
        "skipped": triage.notes.lines[:_MOST_NOTES],
        "heard": sorted(triage.view.heard),
        "suspects": [_suspect(suspect) for suspect in triage.suspects],
    }


def _suspect(suspect: Suspect) -> dict[str, Any]:
    return {
        "cause": suspect.cause.name,
        "rule": suspect.rule,
        "processes": [{"rank": p.rank, "host": p.host, "pid": p.pid} for p in suspect.processes],
        "waiting": [{"rank": p.rank, "host": p.host, "pid": p.pid} for p in suspect.waiting],
        "call": words.call_text(suspect.at) or None,
        "group": suspect.group.name if suspect.group else None,
        "leaf": words.place_text(suspect.leaf) or None,
        "leaf_class": suspect.leaf_class or None,
    }


def explanation(triage: Triage) -> Iterator[str]:
    """Yields the lines of --explain: what was read, each rule that fired, for and against."""
    for name, (count, facts) in triage.read.items():
        yield f"read {count} file{'s' if count != 1 else ''} of {name}: {facts} facts"
    for line in triage.notes.lines[:_MOST_NOTES]:
        yield f"not read: {line}"
    for suspect in triage.suspects:
        yield ""
        meaning = causes.RULES.get(suspect.rule, "")
        yield f"rule {suspect.rule}" + (f": {meaning}" if meaning else "")
        for point in suspect.support:
            yield f"  for it      {_text(point, triage)}"
        for point in suspect.against:
            yield f"  against it  {_text(point, triage)}"
    yield ""
    happened = timeline.lines(timeline.timeline(triage.view.own_facts))
    if happened:
        yield "what happened, in UTC (~: no clock tells the order to the line above)"
        yield from happened
        yield ""


def _text(point: Point, triage: Triage) -> str:
    if point.source is None:
        return point.text
    return f"{point.text} [{str(point.source).removeprefix(triage.folder)}]"


def parts(triage: Triage) -> "Parts":
    """Returns what the page of --html shows besides the report."""
    from oddrank.triage import page_parts

    return page_parts.parts(triage.view, triage.suspects, triage.jobs)
