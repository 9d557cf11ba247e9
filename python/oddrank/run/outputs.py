"""Writes the files that the user wants of a job, reads its history, has its evidence saved.

Each in a child: their file systems may not answer. That costs the judge some seconds, and no
sentence. Evidence is saved by one guard of each node, which runs `oddrank collect` there.
"""

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from oddrank import exposition
from oddrank.collect.children import Result, Say, Stop, Task, run_all
from oddrank.control.address import leave_private
from oddrank.control.stages import RankState
from oddrank.errors import OddrankError
from oddrank.report import Report
from oddrank.run.decide import ATTEMPTS, Attempt, attempts
from oddrank.run.snapshot import Snapshot, Taker
from oddrank.run.watch import has_ended, is_heard
from oddrank.trace.ranks import STATES_FILE, states_text

_SECONDS = 3.0  # guards of dead ranks wait 15 s for the judge's next question
# A guard answers after 60 s at the latest, collect ends after about 35 s.
_ANSWER_SECONDS = 62.0
_POLL = 0.1
_TO_WRITE = 5.0
_MOST_HOSTS = 3
_SILENT = {"saved": None, "lines": ["its guards are silent"]}
_NO_ANSWER = {"saved": None, "lines": ["there was no answer while the judge waited"]}
_PREFIX = "oddrank_run_"


class Outputs:
    """The files of one judge."""

    def __init__(self) -> None:
        self._why: dict[str, str] = {}
        """File -> why it was not written, as it was said last."""
        self._left: dict[str, int] = {}
        """File -> the pid of a child that its file system still holds."""

    def write(self, works: Mapping[str, Callable[[], object]]) -> list[str]:
        """Calls each file's function, which writes it; returns the new failures as sentences.

        A file is left alone while a child of an earlier call hangs at it.
        """
        # No pid of a child that was reaped is kept: it may be another process's by now.
        self._left = {file: pid for file, pid in self._left.items() if _hangs(pid)}
        tasks = [Task(file, _only(work), _SECONDS) for file, work in works.items()
                 if file not in self._left]  # fmt: skip
        new = []
        for task, result in zip(tasks, _run(*tasks), strict=True):
            file, why = task.name, result.why
            if why and not result.refused:
                why = f"{file} was not written: {why}"
            if result.left is not None:
                self._left[file] = result.left
            if why and why != self._why.get(file):
                new.append(why)
            self._why[file] = why
        return new


def earlier(folder: Path) -> tuple[list[Attempt], str]:
    """Returns the last attempts that a history holds, and why they could not be read ("": read)."""

    def read(say: Say) -> None:
        for attempt in attempts(folder)[-ATTEMPTS:]:
            say(asdict(attempt))

    (result,) = _run(Task(str(folder), read, _SECONDS))
    why = f"the attempts in {folder} were not read: {result.why}" if result.why else ""
    return [Attempt(**said) for said in result.said], why


def _run(*tasks: Task) -> list[Result]:
    # Each task ends after its own seconds. With one end for all, the time that a fork takes would
    # change the sentence from call to call, and "no answer within 2.98 s" would count as new.
    return run_all(tasks, math.inf, Stop())


def _only(work: Callable[[], object]) -> Callable[[Say], None]:
    """Makes a task's work of a function that says nothing but why it fails."""

    def run(_: Say) -> None:
        try:
            work()
        except OSError as error:
            raise OddrankError(str(error)) from None

    return run


def _hangs(pid: int) -> bool:
    """Returns whether a child that was killed has still not ended."""
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    return False


def leave_states(snapshot: Snapshot, records: Sequence[str], folder: Path | None) -> None:
    """Writes how ranks were, and ended, as their guards saw it: guards end soon.

    folder: of the evidence, if the user wants some. records: folders that may hold this host's
    records. These are read later: only ends last, and only of processes that have a record there.
    """

    def write(_: Say) -> None:
        for beside in map(Path, records):
            ended = [
                one
                for one in snapshot.seen
                if (one.signal is not None or one.code is not None)
                and any(beside.glob(f"rank*-{one.pid}-{one.started}.trace"))
            ]
            with suppress(OSError):
                if ended:
                    leave_private(beside / STATES_FILE, states_text(ended))
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / STATES_FILE).write_text(states_text(snapshot.seen))

    # In a child: the folder's file system may not answer. Why it failed, the collectors say.
    _run(Task("states", write, _TO_WRITE))


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
    results = taker.ask("collect", chosen, len(asked), _ANSWER_SECONDS, over=over, poll=_POLL)
    hosts = {state.host: _SILENT for state in ranks if state.host}
    hosts |= {host: _of_host(results.get(rank)) for host, rank in asked.items()}
    return {"folder": str(folder / job), "hosts": hosts}


def _of_host(result: bytes | None) -> dict[str, Any]:
    """Reads what collect/command.py prints for a guard; anything else is what went wrong."""
    if result is None:
        return _NO_ANSWER
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
        if found["hosts"][host] is _NO_ANSWER
        else f"no evidence of {host} was saved: {why}"
        for host, why in lacks[:_MOST_HOSTS]
    ]
    if len(lacks) > _MOST_HOSTS:
        texts.append(f"nor of {len(lacks) - _MOST_HOSTS} more hosts")
    return texts


def gauges(
    ranks: Sequence[RankState], *, quiet: Mapping[int, float], late: Mapping[int, float],
    events: Sequence[str], report: Report | None, now: float,
) -> str:  # fmt: skip
    """Returns the judge's view of a running job, for Prometheus's textfile collector.

    quiet: seconds since each living rank moved. late: by how many seconds a rank is late. events:
    the events said so far. report: None: nothing has happened. now: seconds since 1970.
    """
    came = [state for state in ranks if state.contact != "never"]
    host_of = {s.rank: s.host for s in ranks}
    who = {rank: {"rank": rank, "host": host} for rank, host in host_of.items()}
    steps = [(who[s.rank], float(s.step)) for s in came if s.step.isdecimal()]
    families: list[exposition.Family] = [
        ("time_seconds", "When this was written, since 1970.", [({}, now)]),
        ("ranks", "Ranks of the job.", [({}, float(len(ranks)))]),
        ("rank_alive", "1 while the rank's process lives, 0 after its end.",
         [(who[s.rank], float(not has_ended(s))) for s in came
          if is_heard(s) or has_ended(s)]),
        ("rank_quiet_seconds", "Since the rank's last step or collective.",
         [(who[rank], seconds) for rank, seconds in quiet.items()]),
        ("rank_progress", "Steps, and begins and ends of collectives.",
         [(who[s.rank], float(s.progress)) for s in came]),
        ("rank_step", "The rank's last step.", steps),
        ("rank_late_seconds", "How late the rank comes to collectives, if it stays late.",
         [(who[rank], seconds) for rank, seconds in late.items()]),
        ("events", "What was told until now: deaths, stalls and so on.",
         [({"event": event}, float(count)) for event, count in Counter(events).items()]),
    ]  # fmt: skip
    if report is not None:
        # A script that starts its ranks itself has one guard for all of them.
        families += exposition.of_report(report, lambda rank: host_of.get(rank, ""))
    return exposition.text(_PREFIX, families)
