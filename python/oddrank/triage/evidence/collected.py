"""Reads what `oddrank collect` wrote beside the evidence: its manifest, /proc facts and cgroups."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

from oddrank.finding import size_text
from oddrank.inputs import Item, Notes
from oddrank.triage import facts
from oddrank.triage.evidence import Kind, of_json

_BEGIN = re.compile(rb'\{\s*"schema": "oddrank\.(collect|process|cgroups|environment)/1"')
_STATES = ("running", "stopped", "uninterruptible", "zombie", "dead")
_KILLS = re.compile(r"^oom_kill (\d{1,12})$", re.MULTILINE)
_NO_LIMIT = 1 << 60  # version 1 writes a number near 2^63
_TEXT = 300


def _read(items: Sequence[Item], notes: Notes) -> Iterable[facts.Fact]:
    for item in items:
        if found := _BEGIN.match(item.head):
            make = partial(_READERS[found[1].decode()], item, notes)
            yield from of_json(item, notes, make)


KIND = Kind("collected", True, lambda item: _BEGIN.match(item.head) is not None, _read)


def _manifest(item: Item, notes: Notes, content: Mapping[str, Any]) -> Iterator[facts.Fact]:
    """Takes when the job began here, its ranks, and what could not be read."""
    source, host = facts.Source(item.name), str(content["host"])
    begun = [float(rank["since"]) for rank in content["ranks"] if rank["since"]]
    if begun:
        yield facts.Span(host, min(begun), source)
    for rank in content["ranks"]:
        # Without a launcher all have rank 0: the record knows better.
        if int(rank["world"]) > 1:
            yield facts.Identity(facts.Process(int(rank["rank"]), host, int(rank["pid"])), source)
    for size in {int(rank["world"]) for rank in content["ranks"]}:
        if size > 1:
            yield facts.World(size, source)
    if content["ended_by"]:
        notes.add(
            item, f"collecting was cut short by {str(content['ended_by'])[:_TEXT]}", lost=False
        )
    for lack in content["not_read"]:
        if not lack["absent"]:
            what, why = str(lack["what"])[:_TEXT], str(lack["why"])[:_TEXT]
            notes.add(f"{host}: {what}", f"not collected: {why}", lost=False)


def _process(item: Item, _: Notes, content: Mapping[str, Any]) -> Iterator[facts.Fact]:
    source = facts.Source(item.name)
    rank = int(content["rank"]) if int(content["world"]) > 1 else None
    process = facts.Process(rank, str(content["host"]), int(content["pid"]))
    when, status = float(content["time"]), int(content["status"])
    yield facts.Identity(process, source)
    state = str(content["state"])
    if state not in _STATES:
        raise ValueError(f"no state: {state[:40]!r}")
    dead = state in ("zombie", "dead")
    where = str(content["files"].get("wchan", "0"))[:80]
    yield facts.State(
        process, cast(Any, "dead" if dead else state), source, when,
        where if state == "uninterruptible" and where != "0" else "",
    )  # fmt: skip
    if dead and os.WIFSIGNALED(status):
        yield facts.Death(process, "signal", source, None, signal=os.WTERMSIG(status))
    elif dead and os.WIFEXITED(status) and os.WEXITSTATUS(status):
        yield facts.Death(process, "exit", source, None, code=os.WEXITSTATUS(status))


def _cgroups(item: Item, _: Notes, content: Mapping[str, Any]) -> Iterator[facts.Fact]:
    """Takes counts of processes that were killed because a cgroup's memory was used up."""
    for group in content["cgroups"]:
        files = {str(name): str(text) for name, text in group["files"].items()}
        # memory.events.local counts this cgroup alone, as version 1 always does.
        events = files.get("memory.events.local", files.get("memory.events", ""))
        kills = _KILLS.search(files.get("memory.oom_control", events))
        limit = files.get("memory.max", files.get("memory.limit_in_bytes", "max"))
        limited = limit.isdigit() and int(limit) < _NO_LIMIT
        # The root of version 1 counts all of the machine's.
        if not kills or not int(kills[1]) or not (limited or "memory.oom_control" not in files):
            continue
        told = f" (limit {size_text(int(limit))})" if limited else ""
        count, path = int(kills[1]), str(group["path"])[:_TEXT]
        yield facts.Trouble(
            "oom", f"the kernel killed {count} process{'es' if count > 1 else ''} of cgroup {path}"
            f"{told} for memory", facts.Source(item.name), str(content["host"]),
            code=facts.OF_CGROUP, count=count,
        )  # fmt: skip


_READERS: dict[str, Callable[[Item, Notes, Mapping[str, Any]], Iterable[facts.Fact]]] = {
    "collect": _manifest,
    "process": _process,
    "cgroups": _cgroups,
    "environment": lambda *_: (),  # of older collections
}
