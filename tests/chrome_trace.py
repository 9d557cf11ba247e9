"""Reads a Chrome trace and checks every rule of the Trace Event Format.

Viewers accept broken traces and show them wrong: an end without its begin, overlapping slices of a
row, a row without a name.
"""

import gzip
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

# Kind of metadata event -> the member of its args, and the member's type.
DESCRIPTIONS: dict[str, tuple[str, type]] = {
    "process_name": ("name", str),
    "process_labels": ("labels", str),
    "process_sort_index": ("sort_index", int),
    "thread_name": ("name", str),
    "thread_sort_index": ("sort_index", int),
}
DEEPEST = 512  # Perfetto's limit for a stack


class ChromeTrace:
    """A trace that keeps all rules; the constructor fails on any other."""

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        text = gzip.decompress(data) if path.suffix == ".gz" else data
        self.whole = json.loads(
            text.decode(), parse_constant=_refuse, object_pairs_hook=_without_doubles
        )
        assert self.whole["displayTimeUnit"] in {"ms", "ns"}
        self.events: list[dict[str, Any]] = self.whole["traceEvents"]
        self.deepest: dict[tuple[int, int], list[str]] = {}
        """Row with calls -> its deepest stack."""
        self._names: dict[tuple[str, int, int], str] = {}
        rows = defaultdict(list)
        for event in self.events:
            _check_members(event)
            if event["ph"] == "M":
                self._note_name(event)
            else:
                rows[event["pid"], event["tid"]].append(event)
        for (pid, tid), events in rows.items():
            assert self.name("process_name", pid) is not None
            assert self.name("thread_name", pid, tid) is not None, (pid, tid)
            phases = {event["ph"] for event in events}
            assert not {"X", "B"} <= phases, "calls and slices in one row"
            self._check_calls((pid, tid), [event for event in events if event["ph"] in "BE"])
            _check_slices([event for event in events if event["ph"] == "X"])

    def of(self, phase: str, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["ph"] == phase and event["name"] == name]

    def name(self, what: str, pid: int, tid: int | None = None) -> str | None:
        """Returns the name of a process or a row; None if it has none."""
        return self._names.get((what, pid, pid if tid is None else tid))

    def rows(self, title: str) -> list[tuple[int, int]]:
        """Returns (pid, tid) of all rows with this name."""
        return [
            (pid, tid)
            for (what, pid, tid), name in self._names.items()
            if what == "thread_name" and name == title
        ]

    def _note_name(self, event: dict[str, Any]) -> None:
        member, kind = DESCRIPTIONS[event["name"]]
        assert set(event["args"]) == {member}
        value = event["args"][member]
        assert type(value) is kind
        row = event["pid"] if event["name"].startswith("process") else event["tid"]
        key = (event["name"], event["pid"], row)
        assert self._names.setdefault(key, str(value)) == str(value), f"two values of {key}"

    def _check_calls(self, row: tuple[int, int], events: list[dict[str, Any]]) -> None:
        stack: list[str] = []
        last = 0.0
        for event in events:
            assert event["ts"] >= last, f"time goes back in row {row}"
            last = event["ts"]
            if event["ph"] == "B":
                stack.append(event["name"])
                if len(stack) > len(self.deepest.get(row, [])):
                    self.deepest[row] = list(stack)
            else:
                assert stack, f"an end without a begin in row {row}: {event}"
                stack.pop()
        assert not stack, f"no end of {stack} in row {row}"
        assert len(self.deepest.get(row, [])) <= DEEPEST


def _check_members(event: dict[str, Any]) -> None:
    assert event["ph"] in {"B", "E", "X", "i", "M"}, event
    for member in ("pid", "tid"):
        assert type(event[member]) is int, event
        assert event[member] >= 0, event
    assert type(event.get("args", {})) is dict, event
    if event["ph"] != "E":
        assert isinstance(event["name"], str), event
        assert event["name"], event
    if event["ph"] != "M":
        _check_time(event["ts"])
    if event["ph"] == "X":
        _check_time(event["dur"])
    if event["ph"] == "i":
        assert event["s"] in {"g", "p", "t"}, event


def _check_time(value: Any) -> None:
    assert type(value) in {int, float}
    assert math.isfinite(value)
    assert value >= 0


def _check_slices(events: list[dict[str, Any]]) -> None:
    """Checks the slices of a row: each is inside or after the one before it."""
    open_ends: list[int] = []
    for event in sorted(events, key=lambda each: (each["ts"], -each["dur"])):
        begin = round(event["ts"] * 1000)
        end = begin + round(event["dur"] * 1000)
        while open_ends and open_ends[-1] <= begin:
            open_ends.pop()
        assert not open_ends or end <= open_ends[-1], f"{event} overlaps another one"
        open_ends.append(end)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    assert len(made) == len(pairs), f"a member comes twice: {pairs}"
    return made
