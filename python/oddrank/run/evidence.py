"""Has the evidence of all nodes saved: one guard of each runs `oddrank collect` there."""

import json
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from oddrank.control.stages import RankState
from oddrank.run.collect.children import Say, Stop, Task, run_all
from oddrank.run.snapshot import Snapshot, Taker
from oddrank.run.watch import has_ended, is_heard
from oddrank.trace import states

# A guard answers after 60 s at the latest, collect ends after about 35 s.
_SECONDS = 62.0
_POLL = 0.1
_TO_WRITE = 5.0
_MOST_HOSTS = 3
_SILENT = {"saved": None, "lines": ["its guards are silent"]}
_LATE = {"saved": None, "lines": ["there was no answer while the judge waited"]}


def leave_states(snapshot: Snapshot, folder: Path) -> None:
    """Leaves there how ranks were, and ended, as their guards saw it: soon nobody can see it."""

    def write(_: Say) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / states.NAME).write_text(states.text(snapshot.seen))

    # In a child: the folder's file system may not answer. Why it failed, the collectors say.
    run_all([Task("states", write, _TO_WRITE)], math.inf, Stop())


def save(
    taker: Taker, ranks: Sequence[RankState], folder: Path, job: str, over: Callable[[], bool]
) -> dict[str, Any]:
    """Saves in folder/job/HOST; returns what was done, as the report has it.

    over: there is nothing more to wait for.
    """
    asked: dict[str, int] = {}
    # The guard of a dead rank ends soon.
    for state in sorted(filter(is_heard, ranks), key=lambda s: (has_ended(s), s.rank)):
        asked.setdefault(state.host, state.rank)
    chosen = f"{','.join(map(str, asked.values()))} {folder}"
    results = taker.ask("collect", chosen, len(asked), _SECONDS, over=over, poll=_POLL)
    hosts = {state.host: _SILENT for state in ranks if state.host}
    hosts |= {host: _told(results.get(rank)) for host, rank in asked.items()}
    return {"folder": str(folder / job), "hosts": hosts}


def _told(result: bytes | None) -> dict[str, Any]:
    """Reads what collect/command.py prints for a guard; anything else is what went wrong."""
    if result is None:
        return _LATE
    last = result.decode(errors="replace").strip().rpartition("\n")[2]
    with suppress(ValueError, TypeError, KeyError):
        found = json.loads(last)
        saved, lines = found["saved"], [str(line) for line in found["lines"]]
        return {"saved": None if saved is None else str(saved), "lines": lines}
    return {"saved": None, "lines": [last or "the collector printed nothing"]}


def words(found: dict[str, Any]) -> list[str]:
    """Says where the evidence is, and of which hosts there is none."""
    hosts = found["hosts"]
    saved = [host for host, told in hosts.items() if told["saved"] is not None]
    lacks = [(host, told["lines"][0]) for host, told in hosts.items() if told["saved"] is None]
    texts = []
    if saved:
        whose = saved[0] if len(saved) == 1 else f"{len(saved)} hosts"
        texts.append(f"the evidence of {whose} is saved: oddrank triage {found['folder']}")
    texts += [
        f"no word yet from {host} about its evidence: look in {found['folder']} later"
        if found["hosts"][host] is _LATE
        else f"no evidence of {host} was saved: {why}"
        for host, why in lacks[:_MOST_HOSTS]
    ]
    if len(lacks) > _MOST_HOSTS:
        texts.append(f"nor of {len(lacks) - _MOST_HOSTS} more hosts")
    return texts
