"""Tells several jobs apart: a folder of logs often holds logs of earlier jobs, too.

Ends and timeouts of one job are at most a day apart. Ranks of two jobs prove nothing of each other,
so each job is judged alone.

Folders may hold dumps of the same ranks: of other jobs, attempts or moments. A Flight Recorder dump
names neither its job nor its time, and copies of files lose their times. A rank's newest dump would
be judged beside an older one of another rank.
"""

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations

from oddrank.inputs import Item, Notes
from oddrank.triage.evidence import flight_recorder
from oddrank.triage.facts import Counts, Death, Fact, Mismatch, Progress, Stack, Stop

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
            return f"the dumps in {self.folder}/"
        files = sorted({file_of(fact) for fact in self.facts} - {""})
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        where = f" ({files[0]}{more})" if files else ""
        if self.time is None:
            return f"the job whose lines have no times{where}"
        day = time.strftime("%d %b", time.gmtime(self.time))
        return f"the job that ended about {day}{where}"


def jobs(facts: Sequence[Fact]) -> list[Job]:
    """Returns the jobs, the newest first; one with all facts if nothing tells them apart."""
    starts = _starts(sorted(t for fact in facts if (t := _end(fact)) is not None))
    if len(starts) < 2:
        return [Job(starts[0] if starts else None, list(facts))]
    made = {start: Job(start) for start in starts}
    of_file: dict[str, set[float]] = defaultdict(set)
    for fact in facts:
        if (file := file_of(fact)) and (moment := _end(fact)) is not None:
            of_file[file].add(_nearest(starts, moment))
    undated: dict[str, Job] = {}
    for fact in facts:
        moment, file = _end(fact), file_of(fact)
        own = of_file.get(file, set()) if moment is None else {_nearest(starts, moment)}
        if len(own) > 1 and isinstance(fact, (Death, Progress, Mismatch, Counts, Stack)):
            undated.setdefault(file, Job(None)).facts.append(fact)
            continue
        # A file without such times does not name its job. It counts for the last job, which users
        # mostly ask about. Faults of devices are judged by their own times.
        for start in own or starts[-1:]:
            made[start].facts.append(fact)
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
    if isinstance(fact, Mismatch):
        return fact.variants[0].source.file if fact.variants else ""
    if isinstance(fact, Stack):
        return fact.threads[0].source.file if fact.threads else ""
    return fact.source.file


# By their folders.


def by_folder(items: Sequence[Item]) -> list[tuple[str, list[Item]]]:
    """Returns folders to be judged alone and their files, the newest first; else "" and all files.

    They lie side by side, below the folder that all files share, and any two of them have dumps of
    mostly the same ranks and of a group. Files outside of them go to the newest.
    """
    shared = shared_folder(items)
    folders: dict[str, list[Item]] = defaultdict(list)
    dumps: dict[str, dict[int, Item]] = defaultdict(dict)
    for item in items:
        folder, slash, _ = item.name.removeprefix(shared).lstrip("/").partition("/")
        folders[folder if slash else ""].append(item)
        rank = flight_recorder.named_rank(item.name)
        if rank >= 0 and flight_recorder.sniff(item):
            dumps[folder if slash else ""][rank] = item
    alike = 1 < len(dumps) <= _MOST and all(
        2 * len(one.keys() & other.keys()) > min(len(one), len(other))
        and not _are_parts(one, other)
        for one, other in combinations(dumps.values(), 2)
    )
    if not alike:
        return [("", [*items])]
    # Copies lose their times: then the last name is the newest, as of attempt_0 and attempt_1.
    names = sorted(dumps, key=lambda name: (max(i.written_ns for i in dumps[name].values()), name))
    names.reverse()
    others = [item for name, own in folders.items() if name not in dumps for item in own]
    return [(name, folders[name] + others * (name == names[0])) for name in names]


def _are_parts(one: Mapping[int, Item], other: Mapping[int, Item]) -> bool:
    """Returns whether dumps show other groups of the same ranks, as of NCCL and of gloo."""
    rank = min(one.keys() & other.keys())
    mine, yours = (
        {
            (fact.group.name, fact.backend)
            for fact in flight_recorder.read([dumps[rank]], Notes())
            if isinstance(fact, Progress) and fact.backend
        }
        for dumps in (one, other)
    )
    return bool(mine and yours) and mine.isdisjoint(yours)


def shared_folder(items: Sequence[Item]) -> str:
    """Returns the folder that all files share, with a slash at its end; "" if there is none."""
    common = ""
    with suppress(ValueError):  # some paths are absolute, some are not
        common = os.path.commonpath([os.path.dirname(item.name) for item in items])
    return f"{common}/" if common.strip("/") else ""
