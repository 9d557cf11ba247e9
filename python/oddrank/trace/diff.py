"""Where the histories of two ranks part: what their main threads called, issued and stepped.

Ranks of one job do the same as a rule, so the first place where they don't is worth a look. They
are compared from the last anchor on that both have in their windows: a step, or where step() is not
called a collective with the same number in its group, or their beginnings.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oddrank import _native
from oddrank.trace.where import short

NEXT = 5
_CALL, _RESUME, _MARK = 1, 2, 0
_ALL = 1 << 62  # events


@dataclass(frozen=True)
class Item:
    """Something that a main thread did."""

    kind: str
    """call, resume (of a generator or coroutine), step or collective."""
    name: str
    """Function, number of the step, operation."""
    place: str
    """Its file, the collective's group."""
    ns: int | None = None
    """Wall clock."""
    sequence: int | None = None
    """Of a collective in its group, as its backend counts."""
    bytes: int | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """What is compared."""
        return (self.kind, self.name, self.place)

    def __str__(self) -> str:
        if self.kind == "step":
            return f"step {self.name}"
        if self.kind == "collective":
            number = "" if self.sequence is None else f" #{self.sequence}"
            return f"{self.name.strip('_')}{number} of group {self.place}, {self.bytes} bytes"
        return f"{self.kind} {self.name} ({short(self.place)})"


@dataclass(frozen=True)
class History:
    """The main thread of one process, as far back as its record goes."""

    rank: int
    host: str
    pid: int
    items: tuple[Item, ...]
    whole: bool
    """Since arm(); else the beginning has been overwritten."""

    @property
    def steps(self) -> list[int]:
        return [int(item.name) for item in self.items if item.kind == "step"]

    def __str__(self) -> str:
        return f"rank {self.rank} ({self.host}, pid {self.pid})"

    def as_data(self) -> dict[str, Any]:
        return {"rank": self.rank, "host": self.host, "pid": self.pid, "steps": self.steps}


@dataclass(frozen=True)
class Difference:
    """Where two histories part."""

    a: History
    b: History
    begin: Item | None
    """The anchor; None: there is none, or both are compared from arm() on."""
    compared: bool
    """False: nothing in the windows is common, and the rest is empty."""
    common: int = 0
    """Items that are the same, from the anchor on."""
    last: Item | None = None
    """The last one of them."""
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
    """OddrankError where `file` is no record."""
    core = _native.core()
    before = core.trace_snapshot(str(file))
    process, events, _ = core.trace_history(str(file), _ALL)
    pid = process["pid"]
    own = [event for event in events if event[1] == pid]
    recorded = sum(1 for event in own if event[2] != _MARK)
    ever = max((each["events"] for each in before["threads"] if each["tid"] == pid), default=0)
    whole = recorded >= ever
    # What is older than the oldest event has lost the calls that followed it.
    oldest = next((i for i, event in enumerate(own) if event[2] != _MARK), 0)
    items = _items(own if whole else own[oldest:])
    since = None if whole or not own else own[oldest][0]
    collectives = _collectives(core.trace_collectives(str(file)), pid, since)
    return History(process["rank"], process["host"], pid, tuple(_merged(items, collectives)), whole)


def compare(a: History, b: History) -> Difference:
    """Pure: the items from the last common anchor on, up to the first that differs."""
    found = _anchors(a, b)
    if found is None:
        return Difference(a, b, None, False)
    begin_a, begin_b = found
    ours, theirs = a.items[begin_a:], b.items[begin_b:]
    common = 0
    for one, other in zip(ours, theirs, strict=False):
        if one.key != other.key:
            break
        common += 1
    from_arm = begin_a == begin_b == 0 and (not ours or ours[0].kind in ("call", "resume"))
    return Difference(
        a, b,
        begin=None if from_arm or not common else ours[0],
        compared=True,
        common=common,
        last=ours[common - 1] if common else None,
        a_next=ours[common : common + NEXT],
        b_next=theirs[common : common + NEXT],
    )  # fmt: skip


def text(found: Difference) -> Iterable[str]:
    """The lines of `trace diff`."""
    for side in (found.a, found.b):
        yield f"{side}: {_window(side)}"
    if not found.compared:
        yield "nothing in these windows is common: no step, and no collective with the same number"
        return
    since = "arm()" if found.begin is None else str(found.begin)
    if found.last is None:
        yield f"they part at once after {since}"
    else:
        yield f"the same since {since}: {found.common} calls, steps and collectives, the last one"
        yield f"  {found.last}"
    if not found.a_next and not found.b_next:
        yield "and then neither has anything more"
        return
    for side, items in ((found.a, found.a_next), (found.b, found.b_next)):
        yield f"then {side}:"
        yield from (f"  {item}" for item in items)
        if len(items) < NEXT:
            yield "  nothing more"


def _items(events: Sequence[tuple[Any, ...]]) -> list[Item]:
    items = []
    for ns, _, kind, (function, file, _), _, mark in events:
        if kind in (_CALL, _RESUME):
            items.append(Item("call" if kind == _CALL else "resume", function, file, ns))
        elif kind == _MARK and mark.startswith("step ") and mark[5:].isdecimal():
            # (A mark("step 7") of the user looks the same, and says the same.)
            items.append(Item("step", mark[5:], "", ns))
    return items


def _collectives(found: Sequence[tuple[Any, ...]], pid: int, since: int | None) -> list[Item]:
    return [
        Item("collective", operation, group, begin, sequence, size)
        for tid, group, sequence, operation, size, _, begin, _ in found
        if tid == pid and begin is not None and (since is None or begin >= since)
    ]


def _merged(items: list[Item], collectives: list[Item]) -> list[Item]:
    """By time; items are in their order already. Without a clock the collectives are left out."""
    if not collectives or any(item.ns is None for item in items):
        return items
    return sorted([*items, *collectives], key=lambda item: item.ns or 0)  # stable


def _anchors(a: History, b: History) -> tuple[int, int] | None:
    """Places in both from which to compare; None: there are none."""

    def step(item: Item) -> Any:
        return item.name if item.kind == "step" else None

    def collective(item: Item) -> Any:
        known = item.kind == "collective" and item.sequence is not None
        return (item.place, item.sequence, item.name) if known else None

    return (
        _last_common(a, b, step)
        or ((0, 0) if a.whole and b.whole else None)
        or _last_common(a, b, collective)
    )


def _last_common(a: History, b: History, anchor: Callable[[Item], Any]) -> tuple[int, int] | None:
    places = {anchor(item): i for i, item in enumerate(b.items)}  # the last of each
    for i in range(len(a.items) - 1, -1, -1):
        name = anchor(a.items[i])
        if name is not None and name in places:
            return i, places[name]
    return None


def _window(side: History) -> str:
    steps = side.steps
    if not steps:
        return "no step in its window" if not side.whole else "no step"
    known = f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"
    return f"{known} in its window"
