"""Decides what follows a verdict: start on the same nodes, leave some out, wait, or do nothing.

A pure table. It ends or starts no job: examples/slurm does, by the report's `decision`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_type_hints

from oddrank.finding import Finding
from oddrank.job import file_name
from oddrank.report import Report
from oddrank.triage import causes

Action = Literal["same-nodes", "exclude", "do-not-restart", "wait"]

SCHEMA = "oddrank.attempt/1"
ATTEMPTS = 3
"""So many attempts that end by the same cause without progress are enough."""
REFUSED = "oddrank.switches.agreement.RefusedError"
"""The exception of all ranks of a job that a switch does not let start."""
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")
_MOST_FILES, _LARGEST = 4096, 1 << 16


@dataclass(frozen=True)
class Attempt:
    """One attempt of a job, as it ended. step: the highest of all ranks; None: not known."""

    job: str
    began: float
    restart: int
    signature: str
    step: int | None
    summary: str


_FIELDS = get_type_hints(Attempt)


@dataclass(frozen=True)
class Decision:
    """An action, and why, in one sentence. nodes: the hosts to leave out."""

    action: Action
    why: str
    nodes: tuple[str, ...] = ()


def decide(
    report: Report,
    host_of: Mapping[int, str],
    *,
    told: bool,
    earlier: Sequence[Attempt],
    now: Attempt,
) -> Decision:
    """Decides by the surest finding. told: a launcher or a user ended the whole job.

    earlier: the attempts before, oldest first; `now` is this one.
    """
    first = report.surest
    if told:
        return Decision("same-nodes", "somebody ended the job: that says nothing of its nodes")
    if first is None:
        return Decision("same-nodes", "no rank is named, so there is no node to leave out")
    if first.cause == causes.MOVING.name:
        return Decision("wait", "the rank that others wait for moves")
    if hopeless := _hopeless(first, [*earlier, now]):
        return Decision("do-not-restart", hopeless)
    hosts = {host_of[rank] for rank in first.who.ranks if rank in host_of}
    nodes = tuple(sorted(hosts or filter(None, [first.who.host])))
    if first.drains_node and nodes:
        return Decision("exclude", f"{', '.join(nodes)}: {first.what}", nodes)
    return Decision("same-nodes", "what was found is no fault of a node")


def signature(report: Report) -> str:
    """Returns the part of a verdict that repeats if the cause repeats: without ranks and numbers.

    "" if no rank is named.
    """
    if (first := report.surest) is None:
        return ""
    what = first.what.removeprefix(str(first.who)).partition(";")[0]
    return f"{first.cause}: {_NUMBERS.sub('#', what).strip()}"


def _hopeless(first: Finding, attempts: Sequence[Attempt]) -> str:
    """Returns why another attempt will end like the last ones; "" if it may not."""
    if REFUSED in first.what:
        return "a switch says that this job must not start"
    last = attempts[-ATTEMPTS:]
    steps = [attempt.step for attempt in last if attempt.step is not None]
    same = len(steps) == ATTEMPTS and len({attempt.signature for attempt in last}) == 1
    if not same or not last[0].signature or max(steps) > steps[0]:
        return ""
    at = f" at step {steps[0]}" if steps[0] else ""
    return f"the last {ATTEMPTS} attempts ended by the same cause{at}, without progress"


def attempts(folder: Path) -> list[Attempt]:
    """Returns the attempts that were written to a folder, oldest first.

    Files that are none of ours, or broken, are left out: they decide nothing.
    """
    found: list[Attempt] = []
    with suppress(OSError):
        for file in sorted(folder.glob("attempt-*.json"))[-_MOST_FILES:]:
            with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
                if file.stat().st_size <= _LARGEST:
                    one = json.loads(file.read_text(encoding="utf-8"))
                    if one.pop("schema") == SCHEMA:
                        made = Attempt(**one)
                        if all(isinstance(one[name], kind) for name, kind in _FIELDS.items()):
                            found.append(made)
    return sorted(found, key=lambda a: (a.began, a.restart))


def note(folder: Path, attempt: Attempt) -> None:
    """Writes an attempt to the folder, whole or not at all. OSError if that can't be done."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"attempt-{file_name(attempt.job)}-{attempt.began:.6f}-{attempt.restart}"
    temporary = folder / f".{name}"
    temporary.write_text(json.dumps({"schema": SCHEMA, **asdict(attempt)}), encoding="utf-8")
    temporary.replace(folder / f"{name}.json")
