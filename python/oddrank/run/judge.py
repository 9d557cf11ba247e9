"""The judge: a process beside rank 0 that hears all guards and says what went wrong.

It belongs to no launcher, ends by itself, and no other process waits for it: if it fails, the job
only runs unwatched.
"""

import ctypes
import gc
import json
import os
import shutil
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from oddrank import _native, exclude, job
from oddrank.control.rendezvous import ADDRESS
from oddrank.control.root import RankState
from oddrank.errors import OddrankError
from oddrank.report import Report, write_json, write_text
from oddrank.run import say, store, watch
from oddrank.run.decide import Attempt, Decision, attempts, decide, note, signature
from oddrank.run.snapshot import Snapshot, Taker, awaited, private_folder
from oddrank.run.start import LISTENER, Settings
from oddrank.run.watch import AllEnded, Cascade, Death, Event, Moved, Stall, Still, Watch
from oddrank.triage import report as triage

# Guards say what changes at once. Heartbeats only show that a host is still there.
_HEARTBEAT_MS, _SILENCE_MS = 10_000, 30_000
_FOREVER = 10 * 365 * 86400.0
_PR_SET_NAME = 15
# Between two looks at the states: they take about 5 % of a core, however many ranks there are.
_LEAST_PAUSE, _MOST_PAUSE, _PAUSE_TIMES = 0.03, 2.0, 20.0
# After the end of rank 0's process, for the other ranks' ends.
_LAST_SECONDS = 10.0
# For the answers of all guards after a death, of a stall; more for each rank.
_DEATH_SECONDS, _STALL_SECONDS, _RANK_SECONDS = 0.1, 2.0, 0.0005
_LOOK = 0.2  # seconds between two looks at threads
_END_SECONDS = 0.3
_WORK_SECONDS = 1.0  # between the two snapshots that show who is at work


@dataclass
class Judge:
    """One job, from the first guard to the last end."""

    settings: Settings
    hub: Any
    taker: Taker
    watch: Watch
    began: float = field(default_factory=time.time)
    report: Report | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    cascade: set[int] = field(default_factory=set)
    said: str = ""
    told: bool = False
    """Somebody ended the whole job."""
    earlier: list[Attempt] = field(default_factory=list)
    """The attempts of this job before this one."""

    def run(self) -> None:
        """Watches until all ranks have ended, or rank 0 has and the others stay silent."""
        end = float("inf")
        while time.monotonic() < end:
            began = time.monotonic()
            events = self.watch.feed(began, self._states())
            pause = max(_LEAST_PAUSE, _PAUSE_TIMES * (time.monotonic() - began))
            for event in events:
                self.take(event)
                if isinstance(event, AllEnded):
                    return
            if job.start_time(self.settings.pid) != self.settings.started:
                end = min(end, began + _LAST_SECONDS)
            time.sleep(min(pause, _MOST_PAUSE))

    def _states(self) -> list[RankState]:
        return [RankState(**row) for row in self.hub.snapshot()]

    def take(self, event: Event) -> None:
        if isinstance(event, Death):
            self._on_death(event)
        elif isinstance(event, Cascade):
            self.cascade |= set(event.ranks)
            self._write()
        elif isinstance(event, Stall):
            self._on_stall(event)
        elif isinstance(event, Still):
            snapshot = self._snapshot(_STALL_SECONDS, look=_LOOK)
            report, _ = self._judge(snapshot, say.stands(event.seconds))
            self._tell("still-stuck", event.seconds, report, say.still(event.seconds))
        elif isinstance(event, Moved):
            self._on_moved(event)
        else:
            self._on_end()

    def _on_death(self, event: Death) -> None:
        snapshot = self._snapshot(_DEATH_SECONDS, look=0.0)
        report, _ = self._judge(snapshot, say.died(event.ranks))
        after = time.monotonic() - self.watch.began
        self.told = event.told
        if event.told or self.settings.world["size"] == 1:
            # Python, or the user who ended the job, has said what there is to say.
            self._note("death", after, report)
        else:
            self._tell("death", after, report)

    def _on_stall(self, event: Stall) -> None:
        progress = [s.progress for s in self._states()]
        before = self._snapshot(_STALL_SECONDS, look=_LOOK)
        time.sleep(_WORK_SECONDS)
        after = self._snapshot(_STALL_SECONDS, look=_LOOK)
        # Guards look once a second: ranks that have gone on by now show no stall in `after`.
        self.hub.refresh(_STALL_SECONDS)
        states = self._states()
        moves = any(watch.is_heard(s) and s.stage == "moving" for s in states)
        if moves or progress != [s.progress for s in states]:
            return
        report, ranks = self._judge(after, say.stands(event.seconds))
        working = watch.anybody_works(ranks, before.work, after.work)
        if not event.last and (working or report.verdict != "odd"):
            return
        self.watch.tell()
        self._tell("stall", event.seconds, report)

    def _on_moved(self, event: Moved) -> None:
        if self.said:
            say.lines([say.went_on(event.seconds)])
            self.said = ""
            self._note("went-on", event.seconds, self.report)

    def _on_end(self) -> None:
        states = self._states()
        if self.report is None:
            ended = [s for s in states if watch.has_ended(s) and not watch.has_died(s)]
            ranks = len(ended)
            why = f"{ranks} rank{'s' if ranks != 1 else ''} ended with exit code 0"
            self.report = Report.of("run", self.settings.world, {}, [], complete=True, why=why)
        self._note("end", time.monotonic() - self.watch.began, self.report)

    def _snapshot(self, seconds: float, *, look: float) -> Snapshot:
        states = self._states()
        ended = {s.rank: at for s in states if (at := self.watch.ended_at(s)) is not None}
        patience = seconds + look + _RANK_SECONDS * len(states)
        return self.taker.take(patience, look=look, ended=ended)

    def _judge(self, snapshot: Snapshot, otherwise: str) -> tuple[Report, dict[int, bool]]:
        """Asks triage's judge; returns its report, and the ranks that are awaited, as awaited().

        otherwise: what happened, if nothing says whose fault that is.
        """
        states, world = self._states(), self.settings.world
        try:
            made = triage.made(triage.read([str(snapshot.folder)]))
        except OddrankError:  # no rank has a record
            made = Report.of("run", world, {"suspects": []}, [], complete=False, why=otherwise)
        ranks = awaited(made.data["suspects"], states)
        # The snapshot is removed; the records stay.
        data = {**made.data, "folder": f"{self.settings.folders[0]}/"}
        if not made.findings:
            return Report.of("run", world, data, [], complete=False, why=otherwise), ranks
        return replace(made, tool="run", world=world, data=data), ranks

    def _tell(self, event: str, after: float, report: Report, first: str = "") -> None:
        """Says what was found, unless that was said before; writes the report."""
        if first:
            say.lines([f"{first}: {report.summary}"])
        elif report.summary != self.said:
            say.lines(say.verdict(report))
        self.said = report.summary
        self._note(event, after, report)

    def _note(self, event: str, after: float, report: Report | None) -> None:
        """Adds to the history that the report has."""
        self.report = report or self.report
        summary = self.report.summary if self.report else ""
        self.history.append(
            {"event": event, "time": time.time(), "seconds": after, "summary": summary}
        )
        self._write()

    def _write(self) -> None:
        """Writes the report, the nodes to leave out and this attempt, as far as they are wanted."""
        if self.report is None:
            return
        report, told = self.report, self.told
        host_of = {state.rank: state.host for state in self._states() if state.host}
        attempt = self._attempt(report)
        made = decide(report, host_of, told=told, earlier=self.earlier, now=attempt)
        try:
            if self.settings.json is not None:
                write_json(self._with_run(report, made).envelope(), self.settings.json)
            if self.settings.exclude is not None and not told:
                names = exclude.text(report, host_of, exclude.slurm_nodes())
                write_text(names, self.settings.exclude, exclude.ADVICE)
            if self.settings.history is not None:
                note(Path(self.settings.history), attempt)
        except (OddrankError, OSError) as error:
            say.lines([str(error)])

    def _attempt(self, report: Report) -> Attempt:
        steps = [int(state.step) for state in self._states() if state.step.isdecimal()]
        name = "" if self.told else signature(report)
        return Attempt(
            self.settings.job, self.began, self.settings.restart, name, max(steps, default=None),
            report.summary,
        )  # fmt: skip

    def _with_run(self, report: Report, made: Decision) -> Report:
        last = self.history[-1] if self.history else {}
        run = {
            "restart": self.settings.restart,
            "began": self.began,
            "event": last.get("event"),
            "after": last.get("seconds"),
            "stall_seconds": self.watch.limit,
            "cascade": sorted(self.cascade),
            "history": self.history,
        }
        decision = {"action": made.action, "why": made.why, "nodes": list(made.nodes)}
        return replace(report, data={**report.data, "run": run, "decision": decision})


def main(arguments: Sequence[str]) -> None:
    """Runs as the judge's process. Its only argument: Settings as JSON, its secret in ADDRESS."""
    _leave_everything()
    try:
        settings = Settings(**json.loads(arguments[0]))
        folder = private_folder(Path(settings.folders[0]))
        try:
            _judge(settings, folder, os.environ.pop(ADDRESS))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):
                os.unlink(settings.file)
            with suppress(OSError):  # it has records, as it should
                folder.parent.rmdir()
    except Exception as error:
        say.lines([f"the job goes on unwatched: {type(error).__name__}: {error}"])


def _judge(settings: Settings, folder: Path, address: str) -> None:
    core = _native.core()
    token = core.control_parse_address(address)[2]
    hub = core.Hub(
        LISTENER, settings.world["size"], token, settings.host, _FOREVER, _HEARTBEAT_MS,
        _SILENCE_MS,
    )  # fmt: skip
    publisher = store.start_publisher(address, settings.restart) if settings.publish else None
    # Modules stay. Snapshots of 10,000 ranks are objects enough to walk.
    gc.collect()
    gc.freeze()
    taker = Taker(hub, folder, settings.host, [Path(each) for each in settings.folders])
    try:
        judge = Judge(settings, hub, taker, Watch(time.monotonic(), settings.stall))
        if settings.history is not None:
            judge.earlier = attempts(Path(settings.history), settings.job)
        judge.run()
    finally:
        hub.end(0, _END_SECONDS)
        if publisher is not None:
            publisher.kill()


def _leave_everything() -> None:
    """Keeps stderr and the listener of what rank 0 has open: a launcher may wait for the rest."""
    _native.core().ignore_launchers_signals()
    ctypes.CDLL(None).prctl(_PR_SET_NAME, b"oddrank-judge", 0, 0, 0)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > LISTENER:
            with suppress(OSError):  # listdir's own
                os.close(int(name))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    with suppress(OSError):
        os.chdir("/")
