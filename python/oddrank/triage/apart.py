"""Tells the facts of several jobs apart: a folder of logs often holds those of earlier jobs, too.

Ends and timeouts of one job are at most a day apart. Those of ranks in two jobs prove nothing of
each other, so that each job is judged alone.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from oddrank.triage.facts import (
    Advice,
    Counts,
    Death,
    Fact,
    Mismatch,
    Progress,
    Source,
    Stack,
    Stop,
)

_APART = 24 * 3600.0
_MOST = 8


@dataclass
class Job:
    """The facts of one job. time: of its first end or timeout; None: its lines have no times.

    folder: that its files are in, if folders tell the jobs apart.
    """

    time: float | None
    facts: list[Fact] = field(default_factory=list)
    folder: str = ""

    @property
    def text(self) -> str:
        """Returns when and where it was, for a sentence."""
        if self.folder and self.time is None:
            return f"the one in {self.folder}/"
        files = sorted({source.file for fact in self.facts if (source := _source(fact))})
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        where = f" ({files[0]}{more})" if files else ""
        if self.time is None:
            return f"one whose lines have no times{where}"
        day = time.strftime("%d %b", time.gmtime(self.time))
        return f"one that ended about {day}{where}"


def jobs(facts: Sequence[Fact]) -> list[Job]:
    """Returns the jobs, the newest first; one with all facts if nothing tells them apart."""
    starts = _starts(sorted(t for fact in facts if (t := _end(fact)) is not None))
    if len(starts) < 2:
        return [Job(starts[0] if starts else None, list(facts))]
    made = {start: Job(start) for start in starts}
    of_file: dict[str, set[float]] = defaultdict(set)
    for fact in facts:
        if (source := _source(fact)) and (moment := _end(fact)) is not None:
            of_file[source.file].add(_nearest(starts, moment))
    undated: dict[str, Job] = {}
    for fact in facts:
        moment, source = _end(fact), _source(fact)
        own = of_file.get(source.file, set()) if source else set()
        if moment is not None:
            made[_nearest(starts, moment)].facts.append(fact)
        elif len(own) == 1:
            made[next(iter(own))].facts.append(fact)
        elif own and source and isinstance(fact, (Death, Progress, Mismatch, Counts, Stack)):
            undated.setdefault(source.file, Job(None)).facts.append(fact)
        elif own and source and not isinstance(fact, Advice):
            for start in own:
                made[start].facts.append(fact)
        else:
            # Nothing in a file without such times says of which job it is, and the last one is the
            # one that people ask about. Faults of devices are judged by their own times.
            made[starts[-1]].facts.append(fact)
    found = [made[start] for start in reversed(starts)][:_MOST]
    return [*found, *undated.values()][:_MOST]


def _starts(times: Iterable[float]) -> list[float]:
    """Returns the first time of each group of times that are less than a day apart."""
    starts: list[float] = []
    last = float("-inf")
    for moment in times:
        if moment - last > _APART:
            starts.append(moment)
        last = moment
    return starts


def _nearest(starts: Sequence[float], moment: float) -> float:
    return max(start for start in starts if start <= moment)


def _end(fact: Fact) -> float | None:
    """Returns when a rank or the job ended, or one gave up; None for all other facts."""
    if isinstance(fact, (Death, Stop)) or (isinstance(fact, Progress) and fact.timed_out):
        return fact.time
    return None


def file_of(fact: Fact) -> str:
    """Returns the file in which a fact was read; "" if it names none."""
    source = _source(fact)
    return source.file if source else ""


def _source(fact: Fact) -> Source | None:
    if isinstance(fact, Mismatch):
        return fact.variants[0].source if fact.variants else None
    if isinstance(fact, Stack):
        return fact.threads[0].source if fact.threads else None
    return fact.source
