"""What the main thread of a process did, as far back as its record goes: for `trace diff`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oddrank import _native
from oddrank.trace.frames import short

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

    def __str__(self) -> str:
        if self.kind == "step":
            return f"step {self.name}"
        if self.kind == "collective":
            number = "" if self.sequence is None else f" #{self.sequence}"
            return f"{self.name.strip('_')}{number} of group {self.place}, {self.bytes} bytes"
        return f"{self.kind} {self.name} ({short(self.place)})"


@dataclass(frozen=True)
class History:
    """The main thread of one process."""

    rank: int
    host: str
    pid: int
    items: tuple[Item, ...]
    whole: bool
    """Since arm(); else the beginning has been overwritten."""
    overwritten: tuple[int, ...] = ()
    """Steps from before what is left: that they were is known, and no more."""

    @property
    def steps(self) -> list[int]:
        return [int(item.name) for item in self.items if item.kind == "step"]

    @property
    def groups(self) -> set[str]:
        """Those in which it has issued collectives."""
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
    gone = () if whole else tuple(int(item.name) for item in _items(own[:oldest]))
    since = None if whole or not own else own[oldest][0]
    collectives = _collectives(core.trace_collectives(str(file)), pid, since)
    made = tuple(_merged(items, collectives))
    return History(process["rank"], process["host"], pid, made, whole, gone)


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
