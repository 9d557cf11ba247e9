"""Judges the operation counts of a library's watcher (NCCL RAS).

Progress order decides: a watcher lists the rarest count, which may be ahead. A count tells of
launches, so a rank behind has not launched the call, or its host is stuck inside it. Only counts
that do not move from one answer to the next tell of a stall.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable

from oddrank.finding import grouped, ranks_text
from oddrank.triage import causes
from oddrank.triage.facts import Call, Counts, Group, Process
from oddrank.triage.suspects import LOW, MEDIUM, Point, Suspect
from oddrank.triage.view import View

_SOON = 5.0  # two answers this close, in seconds, do not show that counts stand still


def judge(view: View) -> list[Suspect]:
    """Returns processes that a watcher gets no answer from, then ranks that are behind."""
    found = _unreachable(view)
    counted = (each for each in view.counts if each.counts or each.unnamed)
    several = grouped(((each.communicator, each.op), each) for each in counted)
    # The last answer on each operation of a communicator; one before it, if counts stand still.
    answers: list[tuple[Counts, Counts | None]] = []
    for some in several.values():
        if all(each.time is not None for each in some):
            some.sort(key=lambda each: each.time or 0.0)
        last, before = some[-1], some[-2] if len(some) > 1 else None
        if before is not None:
            if (before.counts, before.unnamed) != (last.counts, last.unnamed):
                return found  # they move
            if None not in (before.time, last.time):
                apart = (last.time or 0.0) - (before.time or 0.0)
                before = before if apart >= _SOON else None
        answers.append((last, before))
    missing = {p.rank for s in found for p in s.processes}
    if begun := [last for last, _ in answers if last.op == "init"]:
        return [*found, _not_begun(max(begun, key=lambda counts: counts.size or 0))]
    skewed = [made for each in answers if (made := _skewed(*each, missing)) is not None]
    if skewed:  # those that name ranks count before those that do not
        return [*found, max(skewed, key=lambda s: (bool(s.processes), s.certainty, len(s.waiting)))]
    if not found and answers and all(before is not None for _, before in answers):
        last, _ = answers[0]
        text = (f"all {len(last.counts)} ranks have launched the same operations, and none between"
                " two answers: the counts can't tell who is stuck")  # fmt: skip
        points = (Point(text, last.source),)
        return [Suspect(causes.UNKNOWN, (), "counts-equal", LOW, points, time=last.time)]
    return found


def _skewed(
    counts: Counts, before: Counts | None, missing: Collection[int | None]
) -> Suspect | None:
    """Judges one operation whose ranks have different counts."""
    levels: Counter[int] = Counter(value for _, value in counts.counts)
    for value, number in counts.unnamed:
        levels[value] += number
    if len(levels) < 2:
        return None
    least = min(levels)
    behind = [rank for rank, value in counts.counts if value == least]
    ahead = [rank for rank, value in counts.counts if value > least]
    listed = len(behind) == levels[least]
    few = levels[least] * 2 <= sum(levels.values())
    texts, against, op = [], [], f" ({counts.op})" if counts.op else ""
    for value in sorted(levels):
        text = f"{levels[value]} of {sum(levels.values())} ranks have launched {value} operations"
        if known := [rank for rank, number in counts.counts if number == value]:
            op_of = f"{op}: {ranks_text(known)}" + ("" if counts.whole else " of the communicator")
        texts.append(Point(text + (op_of if known else op), counts.source))
    if before is not None:
        texts.append(Point("the counts stood still between two answers", before.source))
    else:
        why = "counts of one answer differ in healthy jobs, too: ask again after some seconds"
        against = [Point(why, counts.source)]
    named = listed and few and not {*behind} <= {*missing}
    return Suspect(
        causes.NOT_ENTERED_OR_INSIDE if named else causes.UNKNOWN,
        _named(counts, behind) if named else (),
        "counts-behind" if named else "counts-mostly-behind",
        MEDIUM if named and before is not None else LOW, tuple(texts), tuple(against),
        _named(counts, ahead), Call(None, counts.op or "a collective"),
        Group(counts.communicator, text=f"NCCL communicator {counts.communicator}"),
        time=counts.time,
    )  # fmt: skip


def _not_begun(counts: Counts) -> Suspect:
    """Judges a communicator that no rank set up: living ranks that have not begun are awaited."""
    begun = [rank for rank, number in counts.counts if number]
    behind = [rank for rank, number in counts.counts if not number]
    text = (
        f"{len(begun)} of {len(counts.counts)} ranks have begun to set up NCCL communicator"
        f" {counts.communicator}, and none has come to the end; not begun: {ranks_text(behind)}"
    )
    why = "a line that is not there means only that it was not printed, or not collected"
    return Suspect(
        causes.NOT_ENTERED_OR_INSIDE, _named(counts, behind), "init-not-begun", LOW,
        (Point(text, counts.source),), (Point(why, counts.source),), _named(counts, begun),
        Call(None, "the set-up of NCCL"), time=counts.time,
    )  # fmt: skip


def _unreachable(view: View) -> list[Suspect]:
    """Makes suspects of processes that did not answer the watcher: stopped, dead, or cut off.

    Processes with the same points are one suspect: a node has several.
    """
    said: dict[Process, dict[Point, float | None]] = defaultdict(dict)
    for each in view.counts:
        for lost, says in ((each.dead, "calls it dead"), (each.silent, "got no answer from it")):
            for process in _named(each, lost):
                said[process].setdefault(Point(f"NCCL RAS {says}", each.source), each.time)
    for trouble in view.troubles:
        if trouble.kind == "unreachable":
            known = Process(trouble.hits[0]) if trouble.hits else None
            pid = trouble.pids[0] if trouble.pids else None
            process = known or view.join(Process(None, trouble.host, pid))
            said[process].setdefault(Point(trouble.text, trouble.source), trouble.time)
    several = len(said) > 1
    size = max(sum(None not in (p.rank, p.pid) for p in view.processes), view.world or 0)
    if several and size and len(said) * 2 > size:
        return []  # the job has ended, or the watcher itself is cut off
    sure = LOW if several and len(said) * 2 == size else MEDIUM  # either half may be
    alike = grouped((tuple(points.items()), process) for process, points in said.items())
    return [
        Suspect(causes.UNREACHABLE, tuple(processes), "no-answer", sure,
                tuple(point for point, _ in points), time=points[0][1])
        for points, processes in alike.items()
    ]  # fmt: skip


def _named(counts: Counts, ranks: Iterable[int]) -> tuple[Process, ...]:
    """Returns ranks of a communicator as processes of the job; those unknown are left out."""
    members = dict(counts.members)
    found = (members.get(rank, Process(rank if counts.whole else None)) for rank in ranks)
    return tuple(process for process in found if process.key is not None)
