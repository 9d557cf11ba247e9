"""Finds the first difference between two ranks' histories: calls, collectives and steps.

Only main threads are compared: in one job they usually do the same. The comparison starts at the
last anchor in both windows: a step; without steps, arm(); without both, a collective with the same
number in its group.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from oddrank import _native
from oddrank.finding import group_name
from oddrank.trace import collectives
from oddrank.trace.processes import short

NEXT = 5
_ALL = 1 << 62  # events


@dataclass(frozen=True)
class Item:
    """Something that a main thread did."""

    kind: str
    """call, resume (of a generator or coroutine), step or collective."""
    name: str
    """Function, number of the step, operation."""
    place: str
    """The function's file, or the collective's group."""
    ns: int | None = None
    """Wall-clock time."""
    sequence: int | None = None
    """Number of a collective in its group, as its backend counts."""
    bytes: int | None = None

    def __str__(self) -> str:
        if self.kind == "step":
            return f"step {self.name}"
        if self.kind == "collective":
            number = "" if self.sequence is None else f" {self.sequence}"
            where = group_name(self.place)
            return f"{collectives.op_name(self.name)}{number} of {where}, {self.bytes} bytes"
        return f"{self.kind} {self.name} ({short(self.place)})"


@dataclass(frozen=True)
class History:
    """The main thread of one process."""

    rank: int
    host: str
    pid: int
    items: tuple[Item, ...]
    whole: bool
    """The record goes back to arm(): its beginning is not overwritten."""
    overwritten: tuple[int, ...] = ()
    """Numbers of earlier steps, whose calls are overwritten."""
    lowered: frozenset[tuple[str, str]] = frozenset()
    """Function and file of code that runs too often: only some of its calls are recorded."""

    @property
    def steps(self) -> list[int]:
        return [int(item.name) for item in self.items if item.kind == "step"]

    @property
    def groups(self) -> set[str]:
        """The groups in which it has issued collectives."""
        return {item.place for item in self.items if item.kind == "collective"}

    def __str__(self) -> str:
        return f"rank {self.rank} ({self.host}, pid {self.pid})"

    def as_data(self) -> dict[str, Any]:
        return {
            "rank": self.rank,
            "host": self.host,
            "pid": self.pid,
            "steps": self.steps,
            "steps_overwritten": list(self.overwritten),
            "lowered": [list(each) for each in sorted(self.lowered)],
        }


@dataclass(frozen=True)
class Difference:
    """The first difference between two histories."""

    a: History
    b: History
    begin: Item | None
    """The anchor; None if there is none, or the comparison starts at arm()."""
    compared: bool
    """False if the windows have no common anchor; the other members are empty then."""
    common: int = 0
    """Number of equal items from the anchor on."""
    last: Item | None = None
    """The last equal item."""
    a_next: tuple[Item, ...] = ()
    b_next: tuple[Item, ...] = ()

    def as_data(self) -> dict[str, Any]:
        return {
            "a": self.a.as_data(),
            "b": self.b.as_data(),
            "compared": self.compared,
            "from": self.begin and asdict(self.begin),
            "common": self.common,
            "last_common": self.last and asdict(self.last),
            "a_next": [asdict(item) for item in self.a_next],
            "b_next": [asdict(item) for item in self.b_next],
        }


def read(file: Path) -> History:
    """Reads the main thread's history. Raises OddrankError if `file` is no record."""
    core = _native.core()
    before = core.trace_snapshot(str(file))
    process, events, _ = core.trace_history(str(file), _ALL)
    pid = process["pid"]
    own = [event for event in events if event[1] == pid]
    recorded = sum(1 for event in own if event[2] != "mark")
    ever = max((each["events"] for each in before["threads"] if each["tid"] == pid), default=0)
    whole = recorded >= ever
    # The calls that followed marks older than the oldest event are lost.
    oldest = next((i for i, event in enumerate(own) if event[2] != "mark"), 0)
    items = _items(own if whole else own[oldest:])
    gone = () if whole else tuple(int(item.name) for item in _items(own[:oldest]))
    since = None if whole or not own else own[oldest][0]
    collectives = _collective_items(core.trace_collectives(str(file)), pid, since)
    made = tuple(_merged(items, collectives))
    lowered = {(function, path) for function, path, *_ in before["lowered"]}
    lowered |= {event[3][:2] for event in events if event[2] == "level"}
    return History(
        process["rank"], process["host"], pid, made, whole, gone, frozenset(lowered)
    )  # fmt: skip


def compare(a: History, b: History) -> Difference:
    """Compares the items from the last common anchor up to the first difference. Pure.

    Leaves out the functions of which one of the records does not have all calls.
    """
    a, b = _without(a, a.lowered | b.lowered), _without(b, a.lowered | b.lowered)
    anchor = _last_common(a, b, lambda item: item.name if item.kind == "step" else None)
    from_arm = anchor is None and a.whole and b.whole
    anchor = (0, 0) if from_arm else anchor or _last_common(a, b, _collective)
    if anchor is None:
        return Difference(a, b, None, False)
    ours, theirs = a.items[anchor[0] :], b.items[anchor[1] :]
    shared = a.groups & b.groups
    common = 0
    for one, other in zip(ours, theirs, strict=False):
        if not _is_same(one, other, shared):
            break
        common += 1
    return Difference(
        a, b,
        begin=None if from_arm else ours[0],
        compared=True,
        common=common,
        last=ours[common - 1] if common else None,
        a_next=ours[common : common + NEXT],
        b_next=theirs[common : common + NEXT],
    )  # fmt: skip


def _without(history: History, functions: frozenset[tuple[str, str]]) -> History:
    kept = tuple(item for item in history.items if (item.name, item.place) not in functions)
    return replace(history, items=kept)


def text(found: Difference) -> Iterable[str]:
    """Yields the lines of `trace diff`."""
    for side in (found.a, found.b):
        yield f"{side}: {_window(side)}"
        if side.lowered:
            names = ", ".join(sorted(name for name, _ in side.lowered))
            yield f"  not compared, called too often to be recorded: {names}"
    if not found.compared:
        yield "these records have nothing in common: no step, no collective with the same number"
        return
    since = "arm()" if found.begin is None else str(found.begin)
    if found.last is not None:
        common = f"{found.common} calls, steps and collectives; the last one:"
        if found.common == 1:
            common = "one call, step or collective:"
        yield f"the same since {since}: {common}"
        yield f"  {found.last}"
    elif found.a_next or found.b_next:
        yield f"they part at once after {since}"
    else:
        yield "neither record has an event of its main thread"
        return
    if not found.a_next and not found.b_next:
        yield "neither record has anything after it"
        return
    for side, items in ((found.a, found.a_next), (found.b, found.b_next)):
        yield f"then {side}:"
        yield from (f"  {item}" for item in items)
        if len(items) < NEXT:
            yield "  nothing more"


def _is_same(one: Item, other: Item, shared: set[str]) -> bool:
    """Compares two items; for collectives, also the size, and the number if both have one.

    shared: groups that both ranks use. Names and numbers of other groups (tensor-parallel ones, for
    example) always differ.
    """
    if (one.kind, one.name, one.bytes) != (other.kind, other.name, other.bytes):
        return False
    if one.kind == "collective" and not {one.place, other.place} & shared:
        return True
    is_known = one.sequence is not None and other.sequence is not None
    return one.place == other.place and (not is_known or one.sequence == other.sequence)


def _collective(item: Item) -> Any:
    known = item.kind == "collective" and item.sequence is not None
    return (item.place, item.sequence, item.name, item.bytes) if known else None


def _last_common(a: History, b: History, anchor: Callable[[Item], Any]) -> tuple[int, int] | None:
    """Returns the indices of the latest anchor that both have; None if there is none.

    Latest by the sum of both indices: in a second epoch, steps have the names of the first.
    """
    ours, theirs = _last_places(a.items, anchor), _last_places(b.items, anchor)
    return max(((ours[name], theirs[name]) for name in ours.keys() & theirs), key=sum, default=None)


def _last_places(items: Sequence[Item], anchor: Callable[[Item], Any]) -> dict[Any, int]:
    names = ((anchor(item), i) for i, item in enumerate(items))
    return {name: i for name, i in names if name is not None}


def _window(side: History) -> str:
    if side.whole:
        return f"{_steps(side.steps)} in its record" if side.steps else "no step"
    known = f"{_steps(side.steps)} in its record" if side.steps else "no step in its record"
    if not side.overwritten:
        return f"{known}, earlier events are overwritten"
    gone = _steps(side.overwritten)
    return f"{known}, the calls of {gone} are overwritten (raise ODDRANK_TRACE_MB)"


def _steps(steps: Sequence[int]) -> str:
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"


def _items(events: Sequence[tuple[Any, ...]]) -> list[Item]:
    items = []
    for ns, _, kind, (function, file, _), _, mark in events:
        if kind in ("call", "resume"):
            items.append(Item(kind, function, file, ns))
        elif kind == "mark" and mark.startswith("step ") and mark[5:].isdecimal():
            # A user's mark("step 7") looks the same and means the same.
            items.append(Item("step", mark[5:], "", ns))
    return items


def _collective_items(found: Sequence[tuple[Any, ...]], pid: int, since: int | None) -> list[Item]:
    return [
        Item("collective", operation, group[0], begin, sequence, size)
        for tid, group, sequence, operation, size, _, begin, _, _ in found
        if tid == pid and begin is not None and (since is None or begin >= since)
    ]


def _merged(items: list[Item], collectives: list[Item]) -> list[Item]:
    """Merges by time (`items` are sorted already). Leaves collectives out if there is no clock."""
    if not collectives or any(item.ns is None for item in items):
        return items
    return sorted([*items, *collectives], key=lambda item: item.ns or 0)  # stable
