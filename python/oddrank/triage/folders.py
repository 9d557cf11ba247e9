"""Tells folders apart that hold dumps of the same ranks: of other jobs, attempts or moments.

A dump of the flight recorder says neither of which job it is nor when it was made, and copies of
files lose their times. A rank's newest dump would be judged beside an older one of another rank.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from oddrank.inputs import Item, Notes
from oddrank.triage.evidence import flight_recorder
from oddrank.triage.facts import Progress

_MOST = 8


def jobs(items: Sequence[Item]) -> list[tuple[str, list[Item]]]:
    """Returns folders to be judged alone and their files, the newest first; else "" and all files.

    They are side by side, below the folder that all files share, and any two of them have dumps of
    mostly the same ranks, which show other calls. Files outside of them go to the newest.
    """
    everything = [("", [*items])]
    folders = _folders(items)
    dumps = {name: found for name, own in folders.items() if (found := _dumps(own))}
    if not 1 < len(dumps) <= _MOST:
        return everything
    if not all(_mostly_shared({*one}, {*other}) for one, other in combinations(dumps.values(), 2)):
        return everything
    moments = [_moment(found.values()) for found in dumps.values()]
    if not all(_are_others(one, other) for one, other in combinations(moments, 2)):
        return everything
    # Copies lose their times: then the last name is the newest, as of attempt_0 and attempt_1.
    names = sorted(dumps, key=lambda name: (max(i.written_ns for i in dumps[name].values()), name))
    names.reverse()
    others = [item for name, own in folders.items() if name not in dumps for item in own]
    return [(name, folders[name] + others * (name == names[0])) for name in names]


def _folders(items: Sequence[Item]) -> Mapping[str, list[Item]]:
    """Returns the files by their folder below the one that all files share, "" for that itself."""
    parts = [item.name.split("/") for item in items]
    shared = 0
    for level in zip(*(one[:-1] for one in parts), strict=False):
        if len({*level}) > 1:
            break
        shared += 1
    found: dict[str, list[Item]] = defaultdict(list)
    for item, one in zip(items, parts, strict=True):
        found[one[shared] if len(one) > shared + 1 else ""].append(item)
    return found


def _dumps(items: Iterable[Item]) -> dict[int, Item]:
    """Returns dumps by the rank in their name."""
    found = {
        flight_recorder.named_rank(item.name): item for item in items if flight_recorder.sniff(item)
    }
    found.pop(-1, None)
    return found


def _mostly_shared(one: set[int], other: set[int]) -> bool:
    """Returns whether most of the fewer ranks are in both folders."""
    return 2 * len(one & other) > min(len(one), len(other))


class _Calls(NamedTuple):
    """A rank's calls in one folder. issued: group -> the last one. open: groups and numbers."""

    issued: dict[tuple[object, ...], int | None]
    open: set[tuple[object, ...]]


def _moment(dumps: Iterable[Item]) -> Mapping[int, _Calls]:
    """Returns the calls of each rank."""
    found: dict[int, _Calls] = defaultdict(lambda: _Calls({}, set()))
    for fact in flight_recorder.read([*dumps], Notes()):
        if isinstance(fact, Progress) and fact.process.rank is not None:
            calls, group = found[fact.process.rank], (fact.group, fact.backend)
            calls.issued[group] = fact.enqueued
            calls.open.update((*group, call.op, call.seq) for call in fact.open)
    return found


def _are_others(one: Mapping[int, _Calls], other: Mapping[int, _Calls]) -> bool:
    """Returns whether the ranks of two folders have mostly issued other calls, and wait in others.

    Of a job that hangs, dumps of two moments show the same open calls, though a group that is still
    at work may have gone on: they belong together.
    """
    both = one.keys() & other.keys()
    moved = stayed = 0
    for rank in both:
        mine, yours = one[rank], other[rank]
        groups = mine.issued.keys() & yours.issued.keys()
        moved += any(mine.issued[group] != yours.issued[group] for group in groups)
        stayed += bool(mine.open & yours.open)
    return 2 * moved > len(both) and 2 * stayed <= len(both)
