"""Asks all guards what their ranks do, and lays the answers out as files for triage's judge."""

import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oddrank import _native, job
from oddrank.control.root import RankState
from oddrank.errors import OddrankError
from oddrank.run import say
from oddrank.run.watch import Awaited, Work, has_ended, is_heard
from oddrank.trace import states
from oddrank.trace.states import Seen
from oddrank.triage.facts import Activity

STAGE = "snapshot"
_POLL = 0.005
_IN_D = "in uninterruptible sleep (D)"
# Classes of places (triage/leaves.py) in which a process waits, perhaps in a loop.
_WAITS = ("peers", "gpu", "lock", "network")
_PREFIX = ".judge-"
_GONE = ("dead", "zombie")
_NOWHERE = Path("/dev/null/snapshot")
"""The folder of a snapshot of which no folder takes copies: no file has this name."""


@dataclass(frozen=True)
class Snapshot:
    """All ranks at a moment. folder: holds their records, and the states of their processes.

    work: of those whose guards have answered. records: those in `folder`, by rank.
    """

    folder: Path
    work: Mapping[int, Work]
    records: Mapping[int, Path]
    asked: float
    answered: float
    """Unix times between which the guards looked."""


def private_folder(job_folder: Path) -> Path:
    """Makes a folder for this process beside the job's records, and removes those left there."""
    for folder in (job_folder.parent, job_folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.geteuid():
            raise PermissionError(f"{folder} belongs to another user")
    for left in job_folder.glob(f"{_PREFIX}*"):
        pid, _, started = left.name.removeprefix(_PREFIX).partition("-")
        if not (pid.isdecimal() and str(job.start_time(int(pid))) == started):
            shutil.rmtree(left, ignore_errors=True)
    made = job_folder / _own_name()
    made.mkdir(mode=0o700)
    return made


def first_folder(job_folders: Sequence[Path]) -> Path:
    """Makes the private folder in the first job's folder that takes it; OSError if none does."""
    trouble = OSError("there is no folder for snapshots")
    for folder in job_folders:
        try:
            return private_folder(folder)
        except OSError as error:
            trouble = error
    raise trouble


def remove_folders(job_folders: Sequence[Path]) -> None:
    """Removes this process's private folders."""
    for folder in job_folders:
        shutil.rmtree(folder / _own_name(), ignore_errors=True)
        with suppress(OSError):  # it has records, as it should
            folder.rmdir()


def _own_name() -> str:
    return f"{_PREFIX}{os.getpid()}-{job.start_time(os.getpid())}"


class Taker:
    """Takes snapshots, each into a folder that takes the place of the last one."""

    def __init__(self, hub: Any, folder: Path | None, host: str, records: Sequence[Path]) -> None:
        """records: folders on this host that may hold the job's records."""
        self._hub, self._folder, self._host, self._records = hub, folder, host, records
        self._number = 0
        self._shown: Path | None = None
        self._last: dict[int, dict[str, Any]] = {}
        """The last answers of ranks that were dead then: their guards end soon."""

    def take(self, patience: float, *, look: float, ended: Mapping[int, float]) -> Snapshot:
        """Waits `patience` seconds for answers.

        look: seconds between two looks at threads, which show their CPU time; 0: one look.
        ended: when ranks ended, by the monotonic clock.
        """
        expected = sum(map(is_heard, self._ranks()))
        asked = time.time()
        results = self.ask(STAGE, str(round(look * 1000)), expected, patience)
        answered = time.time()
        answers = _unpacked(results)
        folder = _NOWHERE
        if self._folder is not None:
            folder = self._folder / str(self._number)
            folder.mkdir(mode=0o700)
        if self._shown is not None:
            shutil.rmtree(self._shown, ignore_errors=True)
        self._shown = folder
        seen: list[Seen] = []
        records: dict[int, Path] = {}
        now, since_boot = time.time(), time.monotonic()
        for state in self._ranks():  # as they are now: who ended meanwhile has said how
            found = answers.get(state.rank) or self._last.get(state.rank) or self._own(state)
            if found is None:
                if state.contact == "silent":
                    lost = Seen(state.rank, state.host, state.pid, 0, states.SILENT, now)
                    seen.append(lost)
                continue
            if has_ended(state):
                self._last[state.rank] = found
            # One clock for all ends: which rank was first shows who follows from whom. A rank that
            # is gone, and of whose end nobody has heard yet, has ended after all others.
            ago = since_boot - ended.get(state.rank, since_boot)
            one = seen_of(state, found)
            seen.append(replace(one, ended=now - ago) if one.state in _GONE else one)
            if found["record"] and self._folder is not None:
                name = f"rank{state.rank}-{state.pid}-{found['start_time']}.trace"
                records[state.rank] = folder / name
                records[state.rank].write_bytes(found["record"])
        if self._folder is not None:
            (folder / states.NAME).write_text(states.text(seen))
        work = {rank: _work(found) for rank, found in answers.items()}
        return Snapshot(folder, work, records, asked, answered)

    def use_next_folder(self) -> None:
        """Leaves a folder without room for another one, if there is one."""
        left, self._folder = self._folder, None
        if left is not None:
            shutil.rmtree(left, ignore_errors=True)
        try:
            self._folder = first_folder(
                [folder for folder in self._records if left is None or folder != left.parent]
            )
        except OSError as error:
            self.use_no_folder(error)

    def use_no_folder(self, why: OSError) -> None:
        """Goes on without copies of records, and says so."""
        self._folder = None
        say.lines([f"judges without the ranks' records: no folder takes copies of them ({why})"])

    def _ranks(self) -> list[RankState]:
        return [RankState(**row) for row in self._hub.snapshot()]

    def ask(
        self,
        stage: str,
        parameters: str,
        expected: int,
        seconds: float,
        *,
        over: Callable[[], bool] = lambda: False,
        poll: float = _POLL,
    ) -> dict[int, bytes]:
        """Begins a stage of all guards; returns their results by rank.

        Waits for `expected` results, `seconds`, or until over(): asked every `poll` seconds.
        """
        self._number += 1
        self._hub.begin(self._number, stage, parameters, seconds)
        end = time.monotonic() + seconds
        while self._hub.result_count() < expected and time.monotonic() < end and not over():
            time.sleep(poll)
        found: dict[int, bytes] = self._hub.results()
        return found

    def _own(self, state: RankState) -> dict[str, Any] | None:
        """Returns what this process can see itself of a rank of its host, whose guard is silent."""
        if state.host != self._host or not state.pid:
            return None
        name = f"rank{state.rank}-{state.pid}-*.trace"
        for file in (file for records in self._records for file in records.glob(name)):
            started = int(file.stem.rpartition("-")[2])
            ((letter, _, status, now),) = _native.core().trace_kernel_states([state.pid])
            there = now == started
            with suppress(OddrankError, OSError):
                return {
                    "record": _native.core().trace_slim(str(file)),
                    "start_time": started,
                    "realtime_ns": time.time_ns(),
                    "letter": letter if there else "",
                    "wait_status": status if there and letter == "Z" else -1,
                    "threads": [],
                    "oom_kills": 0,
                }
        return None


def _unpacked(results: Mapping[int, bytes]) -> dict[int, dict[str, Any]]:
    found = {}
    for rank, payload in results.items():
        with suppress(OddrankError):  # a guard of another version
            found[rank] = _native.core().run_unpack_snapshot(payload)
    return found


def seen_of(state: RankState, found: Mapping[str, Any]) -> Seen:
    """Says what the kernel and the guard know of a process, as oddrank.trace.states does."""
    threads = {tid: (words, cpu) for tid, words, cpu in found["threads"]}
    life = states.WORDS.get(found["letter"], "running") if found["letter"] else "dead"
    if life == "uninterruptible" and threads.get(state.pid, ("", 0.0))[0] != _IN_D:
        life = "running"  # it was for a moment
    seen = Seen(
        state.rank, state.host, state.pid, found["start_time"], life, found["realtime_ns"] / 1e9,
        threads=threads, oom_kills=found["oom_kills"],
    )  # fmt: skip
    if life not in _GONE:
        return seen
    status = found["wait_status"]
    if status < 0:  # its parent has asked for it; the guard may have been faster
        return replace(seen, signal=state.signal, code=state.exit_code)
    if os.WIFSIGNALED(status):
        return replace(seen, signal=os.WTERMSIG(status))
    return replace(seen, code=os.waitstatus_to_exitcode(status))


def _work(found: Mapping[str, Any]) -> Work:
    return Work(
        found["start_time"], found["realtime_ns"] / 1e9, found["cpu_ns"] / 1e9, found["io_bytes"],
        found["events"],
    )  # fmt: skip


def awaited(
    found: Iterable[Mapping[str, Any]],
    ranks: Iterable[RankState],
    activities: Iterable[Activity],
) -> dict[int, Awaited]:
    """Returns the ranks that a report's suspects are; all that live if it names nobody."""
    named = {
        process["rank"]: suspect["leaf_class"] in _WAITS
        for suspect in found
        for process in suspect["processes"]
        if process["rank"] is not None
    }
    living = {s.rank: False for s in ranks if is_heard(s) and not has_ended(s)}
    rests = {each.process.rank: each.rests for each in activities if each.process.rank in living}
    return {rank: Awaited(spins, rests.get(rank)) for rank, spins in (named or living).items()}
