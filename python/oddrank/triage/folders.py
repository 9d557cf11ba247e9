"""Tells folders apart that hold dumps of the same ranks: of other jobs, attempts or moments.

A dump of the flight recorder says neither of which job it is nor when it was made, and copies of
files lose their times. A rank's newest dump would be judged beside an older one of another rank.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from oddrank.triage.evidence import Item, Notes, flight_recorder
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
    if not all(_are_others(one, other) for one, other in combinations(dumps.values(), 2)):
        return everything
    names = sorted(dumps, key=lambda name: (-max(map(_modified, dumps[name].values())), name))
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


def _are_others(one: Mapping[int, Item], other: Mapping[int, Item]) -> bool:
    """Returns whether two folders have dumps of mostly the same ranks, which show other calls.

    Of a job that hangs, dumps of two moments show the same calls, and belong together.
    """
    both = one.keys() & other.keys()
    if 2 * len(both) <= min(len(one), len(other)):
        return False
    mine, yours = _numbers(one.values()), _numbers(other.values())
    return any(mine[key] != yours[key] for key in mine.keys() & yours.keys())


def _numbers(dumps: Iterable[Item]) -> dict[tuple[object, ...], tuple[int | None, int | None]]:
    """Returns for each rank and group the last call that was issued, and that was completed."""
    return {
        (fact.process.rank, fact.group, fact.backend): (fact.enqueued, fact.completed)
        for fact in flight_recorder.read([*dumps], Notes())
        if isinstance(fact, Progress)
    }


def _modified(item: Item) -> int:
    try:
        return item.path.stat().st_mtime_ns
    except OSError:
        return 0
