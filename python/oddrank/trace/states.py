"""Says what the kernel knows of the processes of records; keeps it beside copies of records.

A copied record cannot tell a process that was stopped from one that waits, nor one that was killed
before the copy from one that was killed after it.
"""

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from oddrank import _native
from oddrank.trace.ranks import Rank

SCHEMA = "oddrank.states/1"
NAME = "states.json"
LOOK = 0.2  # seconds between the two looks at threads
SILENT = "silent"
_IN_D = "in uninterruptible sleep (D)"
WORDS = {"T": "stopped", "t": "stopped", "Z": "zombie", "X": "dead", "D": "uninterruptible"}


@dataclass(frozen=True)
class Seen:
    """A process at a moment.

    state: running, stopped, uninterruptible, zombie or dead; silent: its guard says nothing more.
    signal, code: how it ended, if its parent has not asked for it yet. threads: id -> (its state in
    words, seconds of CPU time between two looks). oom_kills: of its cgroup while a guard watched
    it. ended: Unix time of its end, if a guard saw that.
    """

    rank: int
    host: str
    pid: int
    started: int
    state: str
    time: float
    signal: int | None = None
    code: int | None = None
    threads: dict[int, tuple[str, float]] = field(default_factory=dict)
    oom_kills: int = 0
    ended: float | None = None


def look(ranks: Sequence[Rank]) -> list[Seen]:
    """Looks at the processes that this host runs, or ran. Their threads were looked at before."""
    known = [rank for rank in ranks if rank.alive is not None]
    states = _native.core().trace_kernel_states([rank.pid for rank in known])
    now = time.time()
    return [
        complete(
            Seen(rank.rank, rank.host, rank.pid, rank.started, "dead", now, threads={
                t.tid: (t.state, t.cpu or 0.0) for t in rank.threads if t.state is not None
            }),
            letter if started == rank.started else "", status,
        )
        for rank, (letter, _, status, started, _) in zip(known, states, strict=True)
    ]  # fmt: skip


def complete(seen: Seen, letter: str, status: int) -> Seen:
    """Adds a process's state and end: its letter in /proc ("": it is gone) and wait status."""
    state, signal, code = WORDS.get(letter, "running") if letter else "dead", None, None
    if state == "uninterruptible" and seen.threads.get(seen.pid, ("", 0.0))[0] != _IN_D:
        state = "running"  # for a moment
    if state == "zombie" and status >= 0:
        signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    return replace(seen, state=state, signal=signal, code=code)


def text(seen: Iterable[Seen]) -> str:
    """Returns the content of a file of states."""
    return json.dumps({"schema": SCHEMA, "processes": [asdict(each) for each in seen]}) + "\n"


def parse(found: Any) -> list[Seen]:
    """Returns the states of such a file. ValueError if it is none; anybody may have written it."""
    if not isinstance(found, Mapping) or found.get("schema") != SCHEMA:
        raise ValueError("it has another schema")
    try:
        return [_parsed(each) for each in found["processes"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is broken ({error})") from None


def _parsed(found: Mapping[str, Any]) -> Seen:
    threads = {int(tid): (str(s), float(cpu)) for tid, (s, cpu) in found["threads"].items()}
    signal, code = (
        None if found[name] is None else int(found[name]) for name in ("signal", "code")
    )
    return Seen(
        int(found["rank"]), str(found["host"]), int(found["pid"]), int(found["started"]),
        str(found["state"]), float(found["time"]), signal, code, threads,
        int(found.get("oom_kills", 0)), None if (end := found.get("ended")) is None else float(end),
    )  # fmt: skip
