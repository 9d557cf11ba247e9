"""The judge hears all guards of a job and says what went wrong.

Its process belongs to no launcher, ends by itself, and no process waits for it. If it fails, the
job only runs unwatched.
"""

import ctypes
import gc
import itertools
import json
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from oddrank import _native, exclude, exposition, job, launch, page
from oddrank.collect import children
from oddrank.control.address import ADDRESS, put_in_store
from oddrank.control.stages import OddClaim, RankState
from oddrank.finding import Finding, counted, duration, ranks_text
from oddrank.inputs import Notes
from oddrank.page import Parts, Table, utc
from oddrank.report import Report, write_json, write_text
from oddrank.run import late, outputs, say, watch
from oddrank.run.decide import Attempt, Decision, decide, note, signature
from oddrank.run.options import KILL, REPORT
from oddrank.run.outputs import Outputs
from oddrank.run.snapshot import Snapshot, Taker, awaited
from oddrank.run.start import FOREVER, Settings, store_key
from oddrank.run.watch import Awaited, Event, Watch
from oddrank.trace.ranks import LOOK
from oddrank.triage import causes
from oddrank.triage import report as triage
from oddrank.triage.evidence import record
from oddrank.triage.facts import Identity, Process, Source
from oddrank.triage.findings import finding
from oddrank.triage.judges import deaths, ends
from oddrank.triage.suspects import Point, Suspect

_STDERR = 2
# Between two looks at the states: they take about 5 % of a core, if there are many ranks.
_LEAST_PAUSE, _MOST_PAUSE, _PAUSE_TIMES = 0.05, 2.0, 20.0
# The longest time from one thought on states to the next, if none of them changes.
_THOUGHT_SECONDS = 0.5
_LAST_SECONDS = 10.0  # after the end of rank 0's process, for the other ranks' ends
# For the answers of all guards after a death, of a stall; more for each rank.
_DEATH_SECONDS, _STALL_SECONDS, _RANK_SECONDS = 0.1, 2.0, 0.0005
_LATE_SECONDS = 0.3  # for the records that show late ranks: a death may wait for as long
_LAUNCHER_SECONDS = 5.0  # for the launcher's own last words, after all ranks have ended
# After a death, for the ends that follow from it, or came before it.
_AGAIN_SECONDS = 0.5
_END_SECONDS = 0.3
_GAUGES_SECONDS = 15.0  # as often as collectors are read
_KILL_SECONDS = 10.0  # between two orders to end all ranks
_WORK_SECONDS = 1.0  # between the two looks that show which ranks work
_STANDS = ("stall", "still-stuck")
_VERDICTS = ("death", "stall", "corrected")  # what --on-verdict is for
_LEVELS = ("low", "medium", "high")
_DIFFER = (causes.MISMATCH.name, causes.SETTINGS.name)
# Causes whose ranks wait for each other, also where none of them is the odd one.
_EACH_OTHER = {cause.name for cause in causes.TABLE.values() if cause.about == "others"}
# Popen waits for a child that enters a folder, whose file system may not answer: a shell enters it.
_IN_FOLDER = 'cd "$1" && exec /bin/sh -c "$2"'
# Guards say what changes at once. Heartbeats only show that a host is still there.
_HEARTBEAT_MS, _SILENCE_MS = 10_000, 30_000
# For slow readers of stderr; without any reader, a launcher may wait for this process.
_LAST_WORDS_SECONDS = 5.0
_PR_SET_NAME = 15


@dataclass
class Judged:
    """A verdict. awaited: the ranks that others wait for, as awaited(). read: its evidence."""

    report: Report
    awaited: dict[int, Awaited]
    read: triage.Triage


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
    """A user or a launcher ended the whole job."""
    killed: bool = False
    """The judge itself has ended all ranks."""
    evidence: dict[str, Any] | None = None
    """The saved evidence, as outputs.save() returns it."""
    earlier: list[Attempt] = field(default_factory=list)
    """The attempts before this one."""
    outputs: Outputs = field(default_factory=Outputs)
    lateness: late.Lateness = field(default_factory=late.Lateness)
    read: triage.Triage | None = None
    """The evidence of the last verdict."""
    late: dict[int, Finding] = field(default_factory=dict)
    """Ranks that were named as late, with what was said last."""
    gauges_at: float = 0.0
    """When --prometheus's file is written anew."""
    kill_again: float = float("inf")
    """When all guards get the order to end their ranks once more."""
    again: float = float("inf")
    """When a death is judged once more, from the ends that came after it."""
    seen: int = 0
    """The records that the verdict on that death is from; 0: the last verdict is on no death."""

    def run(self) -> None:
        """Watches until all ranks have ended, or rank 0 has and the others stay silent."""
        end = float("inf")
        every = self.settings.options["report_every"] or end
        due = time.monotonic() + every
        known: list[dict[str, Any]] = []
        thought = 0.0
        while time.monotonic() < end:
            began = time.monotonic()
            rows = self.hub.snapshot()
            if began >= self.gauges_at:
                self.gauges_at = began + _GAUGES_SECONDS
                self._put(self._gauges())
            if rows == known and began < min(thought + _THOUGHT_SECONDS, self.again):
                _rest(time.monotonic() - began)
                continue
            known, thought = rows, began
            states = [RankState(**row) for row in rows]
            self.watch.refused = bool(self.hub.notes()[1])
            events = self.watch.feed(began, states)
            cost = time.monotonic() - began
            for event in events:
                self.take(event)
                if event.kind == "end":
                    return
            if began >= self.again:
                self._correct()
            if began >= self.kill_again:  # a guard whose network was cut has not heard it
                self._kill()
            if began >= due and not events and self.watch.goes_well:
                self.report_late()
                due = began + max(every, _PAUSE_TIMES * (time.monotonic() - began))
            end = min(end, began + _LAST_SECONDS) if self._may_be_over(states) else float("inf")
            _rest(cost)
        self._on_end()

    def _may_be_over(self, states: Sequence[RankState]) -> bool:
        """Returns whether rank 0 has ended, and no other is known to live.

        Ranks that live on may stand still because rank 0 has ended.
        """
        gone = job.start_time(self.settings.pid) != self.settings.started
        if not gone and not watch.has_ended(states[0]):  # a zombie has its start time
            return False
        return not any(watch.is_heard(s) and not watch.has_ended(s) for s in states)

    def _states(self) -> list[RankState]:
        return [RankState(**row) for row in self.hub.snapshot()]

    def take(self, event: Event) -> None:
        if event.kind == "end":
            self._on_end()
        elif self.killed or event.kind == "cascade":  # what ranks do after the order tells nothing
            self.cascade |= set(event.ranks)
            self._write()
        elif event.kind == "death":
            self._on_death(event)
        elif event.kind == "stall":
            self._on_stall(event)
        elif event.kind == "still":
            snapshot = self._snapshot(_STALL_SECONDS, look=LOOK)
            made = self._judge(snapshot, say.stands(event.seconds))
            if _is_paused(made.report):
                self.watch.excuse(time.monotonic())
                return
            said = f"still stuck after {duration(event.seconds, 0)}"
            self._tell("still-stuck", event.seconds, made, said)
        elif self.said:
            say.lines([f"went on after {duration(event.seconds, 0)}"])
            self.said = ""
            self._note("went-on", event.seconds, None)

    def _on_death(self, event: Event) -> None:
        self.lateness.by = {}
        after = time.monotonic() - self.watch.began
        if self._follows_from_stall(event):
            self.cascade |= set(event.ranks)
            self._note("death", after, None)
            return
        snapshot = self._snapshot(_DEATH_SECONDS, look=0.0)
        made = self._judge(snapshot, f"{ranks_text(event.ranks)} died, and nothing says why")
        if deaths.is_over(made.read.view):
            return
        # A rank that got a signal before all others is the first death, not the job's end.
        first = any(
            f.cause == causes.DEAD.name and f.names_somebody() for f in made.report.findings
        )
        told = event.told or any(s.rule == "told-to-end" for s in made.read.suspects[:1])
        again, self.told = self.told, told and not first
        alone = self.settings.world["size"] == 1 and len(made.read.view.heard) < 2
        if self.told or alone:
            # Python, or the user who ended the job, has already said why.
            if not again:
                self._note("death", after, made)
        else:
            self._tell_launcher(made.report)
            self._tell("death", after, made)
            self.again, self.seen = time.monotonic() + _AGAIN_SECONDS, len(snapshot.records)
            self._save(snapshot, lambda: False)

    def _correct(self) -> None:
        """Judges a death once more, and says so if others are to blame, or for another reason."""
        self.again, before = float("inf"), self.report
        snapshot = self._snapshot(_DEATH_SECONDS, look=0.0)
        if before is None or len(snapshot.records) < self.seen:
            return
        made = self._judge(snapshot, before.why)
        was, now = _blame(before), _blame(made.report)
        if now[:2] != was[:2] and now[2] >= max(was[2], 0):
            self._tell("corrected", time.monotonic() - self.watch.began, made, "corrected")
            folder = Path(self.evidence["folder"]) if self.evidence is not None else None
            # So that triage says the same of it.
            outputs.leave_states(snapshot, self.settings.folders, folder)
        elif self.said and made.report.summary.startswith(self.said):  # the same, and more
            self.report, self.read, self.said = made.report, made.read, made.report.summary
            self._write()

    def _follows_from_stall(self, event: Event) -> bool:
        """Returns whether ranks died because others stood: the verdict on the stall stays.

        A user ended the standing job, or one rank; or a watchdog ended ranks that waited.
        """
        if self.report is None or not self.history or self.history[-1]["event"] not in _STANDS:
            return False
        stood = {
            rank for finding in self.report.findings
            if finding.names_somebody() and finding.cause != causes.MOVING.name
            for rank in finding.who.ranks
        }  # fmt: skip
        states = self._states()
        ended = {s.rank for s in states if s.signal in ends.FROM_OUTSIDE and not s.oom_kills}
        return bool(stood) and (event.told or stood.isdisjoint(set(event.ranks) - ended))

    def _on_stall(self, event: Event) -> None:
        before_all = self._states()
        before = self._snapshot(_STALL_SECONDS, look=0.0)
        after = self._snapshot(_STALL_SECONDS, look=_WORK_SECONDS)
        # Guards look once a second: ranks that have gone on by now show no stall in `after`.
        self.hub.refresh(_STALL_SECONDS)
        if self._goes_on(before_all):
            return
        made = self._judge(after, say.stands(event.seconds))
        if _is_paused(made.report):
            self.watch.excuse(time.monotonic())
            return
        working = watch.anybody_works(made.awaited, before.work, after.work, event.seconds)
        if working and not (event.last and event.started):
            return
        if made.report.verdict != "odd":
            differ = any(f.cause in _DIFFER for f in made.report.findings)
            if not event.last and not differ:
                return
            if not differ and (absent := _never_joined(self._states())):
                was = made.report
                report = Report.of("run", was.world, was.data, [absent], complete=True)
                made = replace(made, report=report)
        self.watch.tell()
        self.again, self.seen = float("inf"), 0
        first = ""
        if self.history and (before_it := self.history[-1])["event"] == "went-on":
            began = time.time() - event.seconds
            went_on = f"went on after {duration(before_it['seconds'], 0)}"
            if began - before_it["time"] <= watch.PATIENCE * self.watch.limit:
                since = time.strftime("%H:%M:%S UTC", time.gmtime(began))
                first = f"{went_on}, and stands again since {since}"
        self._tell("stall", event.seconds, made, first)
        self._act(made.report, after, before_all)

    def _goes_on(self, before: Sequence[RankState]) -> bool:
        states = self._states()
        moves = any(watch.is_heard(s) and s.stage == "moving" for s in states)
        return moves or [s.progress for s in before] != [s.progress for s in states]

    def _act(self, report: Report, snapshot: Snapshot, before: Sequence[RankState]) -> None:
        """Does at a stall what --on-stall asks for. before: states from when the ranks stood."""
        dead = sum(map(watch.has_ended, before))

        def over() -> bool:
            return self._goes_on(before) or sum(map(watch.has_ended, self._states())) != dead

        self._save(snapshot, over)
        if self.settings.options["on_stall"] != KILL or over():
            return
        if why := _why_not_kill(report):
            say.lines([f"ends no rank: {why}"])
        else:
            say.lines(["ends all ranks, as --on-stall kill asks"])
            self._tell_launcher(report)
            self.killed = True
            self._write()  # the launcher may end before the judge has heard of a death
            self._kill()

    def _kill(self) -> None:
        self.kill_again = time.monotonic() + _KILL_SECONDS
        self.taker.ask("kill", "", 0, _END_SECONDS)

    def _save(self, snapshot: Snapshot, over: Callable[[], bool]) -> None:
        """Has all nodes save their evidence, unless the user wants none."""
        began = time.strftime("%Y-%m-%dT%H%M%S", time.gmtime(self.began))
        folder = Path(self.settings.options["output"], f"{began}-{self.settings.pid}")
        wanted = folder / self.settings.job if self.settings.options["on_stall"] != REPORT else None
        outputs.leave_states(snapshot, self.settings.folders, wanted)
        if wanted is None:
            return
        self.evidence = outputs.save(self.taker, self._states(), folder, self.settings.job, over)
        say.lines(outputs.words(self.evidence))
        self._write()

    def report_late(self) -> None:
        """Tells of ranks that came late to collectives, in this report and the last one."""
        snapshot = self._snapshot(_LATE_SECONDS, look=0.0)
        states = self._states()
        hosts = {state.rank: state.host for state in states if state.host}
        clocks = late.clocks_of(snapshot, hosts, self.settings.host)
        named = self.lateness.look(late.read(snapshot), clocks)
        if any(map(watch.has_died, states)):  # is reported next
            return
        if found := late.findings_of(named, snapshot, hosts):
            self.late |= {rank: finding for finding in found for rank in finding.who.ranks}
            texts = say.late(found)
            say.lines(texts)
            self._note("late", time.monotonic() - self.watch.began, None, "; ".join(texts))

    def _on_end(self) -> None:
        if self.seen:
            self._correct()
        elif self.told:  # how the others ended may show that a signal ended one rank alone
            self._on_death(Event("death", told=True))
        states = self._states()
        went_on = not self.said and all(s.exit_code == 0 for s in states)
        if self.report is None or went_on:
            unknown = [s.rank for s in states if not watch.has_ended(s) or watch.has_died(s)]
            ranks = len(states) - len(unknown)
            why = f"{counted(ranks, 'rank')} ended with exit code 0"
            if unknown:
                why += f"; how {ranks_text(unknown)} ended is not known"
            world = self.settings.world
            self.report = Report.of("run", world, {}, [], complete=not unknown, why=why)
        self._note("end", time.monotonic() - self.watch.began, None)

    def _tell_launcher(self, report: Report) -> None:
        """Has torchrun's own report of the failure show the sentence, where no rank left its own.

        It reads a rank's file soon after the rank's end: the named rank's file may come too late.
        """
        if not (of_rank_0 := launch.error_file()):
            return
        here, host = Path(of_rank_0), self.settings.host
        named = {rank for one in report.findings[:1] for rank in one.who.ranks}
        now, texts = time.time(), {}
        for s in self._states():
            if s.host == host and s.rank in named | {0}:
                # Its root cause is the first end by time: a named rank's, before all that it sees.
                when = now - 1 if s.rank in named else now + 1
                path = here.parent.parent / str(s.local_rank) / here.name
                texts[path] = launch.error_text(report.summary, when)
        # Their file system may not answer.
        threading.Thread(target=_write_new, args=(texts,), daemon=True).start()

    def say_again(self) -> None:
        """Says the sentence once more, as the last line of a job that ended by that fault."""
        restarts = os.environ.get("TORCHELASTIC_MAX_RESTARTS", "")
        if not self.said or (restarts.isdecimal() and int(restarts) > self.settings.restart):
            return
        reports, pid = bool(launch.error_file()), self._states()[0].launcher_pid
        end, started = time.monotonic() + _LAUNCHER_SECONDS, job.start_time(pid)
        while reports and started and time.monotonic() < end and job.start_time(pid) == started:
            time.sleep(_LEAST_PAUSE)
        say.again(self.said, after_others=reports)

    def _snapshot(self, seconds: float, *, look: float) -> Snapshot:
        states = self._states()
        ended = {s.rank: at for s in states if (at := self.watch.ended_at(s)) is not None}
        patience = seconds + look + _RANK_SECONDS * len(states)
        return self.taker.take(patience, look=look, ended=ended)

    def _judge(self, snapshot: Snapshot, otherwise: str) -> Judged:
        """Asks triage's judge. otherwise: what happened, if nothing says whose fault that is."""
        states, world, notes = self._states(), self.settings.world, Notes()
        facts = record.held(snapshot.contents, snapshot.seen, notes)
        if any(isinstance(fact, Identity) and fact.world for fact in facts):  # no group was made
            facts += [
                Identity(Process(c.rank, c.host, c.pid), Source("oddrank run"), world=c.world)
                for c in itertools.starmap(OddClaim, self.hub.notes()[1])
                if c.host != self.settings.host or job.start_time(c.pid)
            ]
        files = {"records": (len(snapshot.contents), len(facts))}
        read = triage.judge({"": facts}, [], notes, files)
        read.folder = f"{self.settings.folders[0]}/"
        made = triage.made(read)
        ranks = awaited(made.data["suspects"], states, read.view.activities.values())
        # Guards in contact that have not answered yet, over a link that loses packets, blame none.
        mute = {s.rank for s in states if watch.is_heard(s)} - {s.rank for s in snapshot.seen}
        if not _is_paused(made) and all(mute >= {*f.who.ranks} > set() for f in made.findings):
            made = Report.of("run", world, made.data, [], complete=False, why=otherwise)
        return Judged(replace(made, tool="run", world=world), ranks, read)

    def _tell(self, event: str, after: float, made: Judged, first: str = "") -> None:
        """Says what was found, unless that was said before; writes the report."""
        report = made.report
        sentence, *more = say.verdict(report)
        if first:
            say.lines([f"{first}: {sentence}", *(more if event == "stall" else ())])
        elif sentence != self.said:
            say.lines([sentence, *more])
        self.said = report.summary
        self._note(event, after, made)
        options = self.settings.options
        if event not in _VERDICTS or not options["on_verdict"]:
            return
        command = options["on_verdict"].replace("{report}", shlex.quote(options["json"] or ""))
        try:  # not waited for
            subprocess.Popen(
                ["/bin/sh", "-c", _IN_FOLDER, "sh", self.settings.cwd, command],
                stdin=subprocess.DEVNULL, stdout=_STDERR, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            say.lines([f"--on-verdict {command!r} was not started: {error}"])

    def _note(self, event: str, after: float, made: Judged | None, summary: str = "") -> None:
        """Adds to the history in the report. summary: if it differs from the report's."""
        if made is not None:
            self.report, self.read = made.report, made.read
        summary = summary or (self.report.summary if self.report else "")
        row = {"event": event, "time": time.time(), "seconds": after, "summary": summary}
        self.history.append(row)
        self._write()

    def _write(self) -> None:
        """Writes the files of the verdict and of this attempt, as far as they are wanted."""
        report, told = self._with_late(), self.told
        if report is None:
            return
        host_of = {state.rank: state.host for state in self._states() if state.host}
        attempt = self._attempt(report)
        made = decide(report, host_of, told=told, earlier=self.earlier, now=attempt)
        options = self.settings.options
        works = self._gauges()
        whole = self._with_run(report, made)
        if (json := options["json"]) is not None:
            works[json] = lambda: write_json(whole.envelope(), json)
        if (html := options["html"]) is not None:
            works[html] = lambda: page.write(whole, self._page_parts(host_of, made), html)
        if (nodes := options["exclude"]) is not None and not told:
            names = exclude.text(report, host_of, exclude.slurm_nodes())
            works[nodes] = lambda: write_text(names, nodes, exclude.ADVICE)
        if (history := options["history"]) is not None and self.report is not None:
            works[history] = lambda: note(Path(history), attempt)
        self._put(works)

    def _put(self, works: Mapping[str, Callable[[], object]]) -> None:
        for trouble in self.outputs.write(works):
            say.lines([trouble])

    def _gauges(self) -> dict[str, Callable[[], object]]:
        """Returns --prometheus's file, if it is wanted, with what writes it."""
        if (path := self.settings.options["prometheus"]) is None:
            return {}
        states, now = self._states(), time.monotonic()

        def write() -> None:  # in a child: what fails here costs no other file
            text = outputs.gauges(
                states,
                quiet=self.watch.quiet(now, states),
                late=self.lateness.by,
                events=[row["event"] for row in self.history],
                report=self._with_late(),
                now=time.time(),
            )
            write_text(text, path, exposition.ADVICE)

        return {path: write}

    def _with_late(self) -> Report | None:
        """Returns the report, with the ranks that came late: they explain no stall and no death."""
        made = self.report or Report.of("run", self.settings.world, {}, [], complete=True)
        if not self.late or (made.verdict not in ("healthy", "odd") and not self.told):
            return self.report
        findings = [*made.findings, *self.late.values()]
        findings.sort(key=lambda finding: self.told and not finding.names_somebody())
        return Report.of("run", made.world, made.data, findings, complete=True, raised=made.raised)

    def _page_parts(self, hosts: Mapping[int, str], decision: Decision) -> Parts:
        """Returns what the page of --html shows: the evidence of the verdict, and its history.

        hosts: by rank, as guards name them.
        """
        rows = [(utc(row["time"]), row["event"], row["summary"]) for row in self.history]
        status = [f"last: {rows[-1][1]} at {rows[-1][0]}"] if rows else []
        status += outputs.words(self.evidence) if self.evidence else []
        status += ["all ranks were ended, as --on-stall kill asks"] if self.killed else []
        if self.report is not None and self.report.verdict != "healthy":
            nodes = f" {', '.join(decision.nodes)}" if decision.nodes else ""
            status.append(f"decision: {decision.action}{nodes}, {decision.why}")
        history = Table("What happened when", ("time", "event", "verdict"), tuple(rows))
        parts = triage.parts(self.read) if self.read is not None else Parts()
        return replace(
            parts, status=status, hosts={**parts.hosts, **hosts}, tables=[*parts.tables, history]
        )

    def _attempt(self, report: Report) -> Attempt:
        """report: how it ended. A job that only had late ranks ended well."""
        states = self._states()
        steps = [int(state.step) for state in states if state.step.isdecimal()]
        # A job that tells no steps may have come further all the same.
        step = max(steps, default=None if any(state.progress for state in states) else 0)
        name = "" if self.told or self.report is None else signature(self.report)
        return Attempt(
            self.settings.job, self.began, self.settings.restart, name, step, report.summary,
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
            "evidence": self.evidence,
            "killed": self.killed,
        }
        return replace(report, data={**report.data, "run": run, "decision": asdict(made)})


def _never_joined(states: Sequence[RankState]) -> Finding | None:
    """Names the ranks that never came, of a job in which no rank has come further than waiting."""
    never = tuple(s.rank for s in states if s.contact == "never")
    here = [s.rank for s in states if s.contact != "never"]
    if not never or not here or any(s.progress or watch.has_ended(s) for s in states):
        return None
    seen = Point(f"guards of {ranks_text(here)} are in contact", Source("oddrank run"))
    absent, waiting = tuple(map(Process, never)), tuple(map(Process, here))
    one = Suspect(causes.NEVER_JOINED, absent, "others-joined", 1, (seen,), waiting=waiting)
    return finding(one, ["read the launcher's log: was it started, and does it reach MASTER_ADDR?"])


def _rest(cost: float) -> None:
    """Sleeps as long as fits what took so many seconds."""
    time.sleep(min(max(_LEAST_PAUSE, _PAUSE_TIMES * cost), _MOST_PAUSE))


def _write_new(texts: Mapping[Path, str]) -> None:
    """Writes files whole, but those that are there."""
    for path, text in texts.items():
        with suppress(OSError):
            made = path.with_name(f".{path.name}.oddrank")
            made.write_text(text, encoding="utf-8")
            with suppress(FileExistsError):
                os.link(made, path)
            made.unlink()


def _blame(report: Report) -> tuple[tuple[int, ...], str, int]:
    """Returns the ranks, the cause and the confidence of the surest finding; (), "", -1: none."""
    sure = (one for one in report.findings if one.confidence.level == "high")
    one = report.surest or next(sure, None)
    return (one.who.ranks, one.cause, _LEVELS.index(one.confidence.level)) if one else ((), "", -1)


def _why_not_kill(report: Report) -> str:
    """Returns why a stall is no reason to end a job; "" if a rank is named or all of them wait."""
    if (first := report.surest) is not None:
        if first.cause == causes.MOVING.name:
            return "the rank that others wait for moves"
        return "no rank waits for it" if first.cause == causes.OUTSIDE.name else ""
    waiting = {
        one["rank"]
        for each in report.data["suspects"]
        for one in [*each["waiting"], *(each["processes"] if each["cause"] in _EACH_OTHER else ())]
    }
    all_wait = len(waiting - {None}) == report.world["size"]
    return "" if all_wait else "nothing shows that all ranks wait for each other"


def _is_paused(report: Report) -> bool:
    """Returns whether ranks wait on purpose, and nothing else is wrong."""
    return [one["cause"] for one in report.data["suspects"]] == [causes.PAUSED.name]


def main(arguments: Sequence[str]) -> None:
    """Runs as the judge's process. Arguments: the socket of the guards; Settings as JSON."""
    listener = int(arguments[0])
    _native.core().ignore_launchers_signals()
    ctypes.CDLL(None).prctl(_PR_SET_NAME, b"oddrank-judge", 0, 0, 0)
    # Only stderr and the listener stay open of rank 0's files: a launcher may wait for the rest.
    children.close_all_but(listener)
    os.set_inheritable(listener, False)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    with suppress(OSError):
        os.chdir("/")
    try:
        settings = Settings(**json.loads(arguments[1]))
        address = os.environ.pop(ADDRESS)
        try:
            _watch(settings, listener, address)
        finally:
            # Another run of the same launcher may have left its own address there by now.
            with suppress(OSError, ValueError):
                if Path(settings.file).read_text(encoding="ascii") == address:
                    os.unlink(settings.file)
    except Exception as error:
        say.lines([f"the job goes on unwatched: {type(error).__name__}: {error}"])
    say.wait_written(_LAST_WORDS_SECONDS)


def _watch(settings: Settings, listener: int, address: str) -> None:
    core = _native.core()
    token = core.control_parse_address(address)[2]
    hub = core.Hub(
        listener, settings.world["size"], token, settings.host, FOREVER, _HEARTBEAT_MS,
        _SILENCE_MS,
    )  # fmt: skip
    if settings.publish and (master := launch.current().master):  # the thread is not joined
        arguments = (master, store_key(settings.restart), address, FOREVER)
        threading.Thread(target=put_in_store, args=arguments, daemon=True).start()
    # Modules stay. Snapshots of 10,000 ranks are objects enough to walk.
    gc.collect()
    gc.freeze()
    taker = Taker(hub, settings.host, [Path(each) for each in settings.folders])
    try:
        judge = Judge(settings, hub, taker, Watch(time.monotonic(), settings.options["stall"]))
        if settings.options["history"] is not None:
            judge.earlier, trouble = outputs.earlier(Path(settings.options["history"]))
            if trouble:
                say.lines([trouble])
        judge.run()
    finally:
        hub.end(0, _END_SECONDS)
    judge.say_again()
