"""The judge without guards: what it tells of events, and what it writes."""

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from operator import methodcaller as does
from pathlib import Path
from types import SimpleNamespace

import pytest

from dead_fuse import dead_file_system
from oddrank.collect.children import Result
from oddrank.control.stages import RankState
from oddrank.finding import Confidence, Evidence, Finding, Who, ranks_text
from oddrank.inputs import Notes
from oddrank.report import Report
from oddrank.run import judge as judge_
from oddrank.run import outputs, say, snapshot
from oddrank.run.decide import ATTEMPTS, Attempt, attempts, note
from oddrank.run.options import Options
from oddrank.run.start import Settings
from oddrank.run.watch import Awaited, Event, Watch, Work
from oddrank.trace import ranks
from oddrank.trace.ranks import Seen
from oddrank.triage import causes
from oddrank.triage.facts import Activity, Identity, Process, Source
from oddrank.triage.facts import Death as FactOfDeath
from patience import PATIENCE, until
from reports import valid
from run.made_job import MadeJob
from texts import texts

RESTING, BUSY = Work(1, 10.0, 1.0, 0), Work(1, 12.0, 3.0, 0)
SEEN = Seen(2, "node1", 7, 1, "stopped", 9.0)
TIMED = ("stall", "still-stuck", "went-on")  # seconds of the other events are the clock's


def finding(what="rank 2 (node1) is stuck in f() at train.py:3", ranks=(2,), level="high", **more):
    told = dict(
        condition="stuck", who=Who("rank", ranks, "node1"), cause="host-stuck", what=what,
        evidence=tuple(Evidence(f"evidence {i}", "rank2.trace") for i in range(5)),
        confidence=Confidence(level, "why not"), next=("look there", "and there"),
    )  # fmt: skip
    return Finding(**told | more)


class Judged:
    """A judge, and in the place of its guards, snapshots and triage what the test says."""

    leaf_class: str | None = None
    cause = "host-stuck"
    records = 4
    deaths, world = (), 4  # of the view
    culprits, waiting = (2,), ()
    histories: dict | None = None
    mute: int | None = None

    def __init__(self, folder, monkeypatch):
        self.folder, self.json = folder, folder / "report.json"
        self.lines, self.findings, self.activities = [], [finding()], {}
        self.monkeypatch = monkeypatch
        self.ranks = [
            dict(rank=rank, host=f"node{rank // 2}", contact="ok", stage="quiet", step="7")
            for rank in range(4)
        ]
        self.looks, self.asked, self.results = [], [], {}
        self.at_refresh, self.at_question = {}, {}  # changes of rank 1
        options = Options(
            60.0, str(self.json), str(folder / "nodes"), str(folder / "history"),
            on_stall="report", output=str(folder / "evidence"),
        )  # fmt: skip
        settings = Settings(
            pid=1, started=0, world={"size": 4}, host="node1", folders=[str(folder)], file="",
            options=asdict(options), restart=2, publish=False, cwd=str(folder),
        )  # fmt: skip
        self.watch = Watch(0.0, 60.0)
        self.judge = judge_.Judge(settings, self, self, self.watch, began=0.0)
        self.options = self.judge.settings.options
        monkeypatch.setattr(judge_, "_WORK_SECONDS", 0.0)
        monkeypatch.setattr(
            judge_.triage, "judge", lambda *what: SimpleNamespace(view=self, suspects=[])
        )
        monkeypatch.setattr(judge_.triage, "made", lambda found: self.made())
        monkeypatch.setattr(say, "lines", lambda texts: self.lines.append(list(texts)))
        monkeypatch.setattr(judge_.late, "read", lambda snapshot: self.histories)

    # The hub and the taker of the judge.

    def refresh(self, seconds):
        self.ranks[1] |= self.at_refresh

    def snapshot(self):
        return self.ranks

    def notes(self):
        return "", [], 0, ""

    def ask(self, stage, parameters, expected, seconds, *, over=lambda: False, poll=0.0):
        self.asked.append((stage, parameters))
        self.ranks[1] |= self.at_question
        return {} if over() else self.results

    def take(self, patience, *, look, ended):
        work, *self.looks = self.looks or [dict.fromkeys(range(4), RESTING)]
        records = dict.fromkeys(range(self.records), "no.trace")
        seen = [replace(SEEN, rank=rank) for rank in range(4) if rank != self.mute]
        return snapshot.Snapshot(work, 9.0, 9.01, seen, records, {"no.trace": b""})

    def made(self):
        processes = [{"rank": rank, "host": "node1", "pid": 7} for rank in self.culprits]
        waiting = [{"rank": rank, "host": None, "pid": None} for rank in self.waiting]
        suspects = [
            {"cause": self.cause, "processes": processes, "leaf_class": self.leaf_class,
             "waiting": waiting},
        ]  # fmt: skip
        data = {"evidence": [], "folder": None, "skipped": [], "heard": [], "suspects": suspects}
        return Report.of("triage", {"size": 4}, data, self.findings, complete=True)

    def report(self):
        return valid(self.json.read_text())

    @property
    def heard(self):
        return range(self.judge.settings.world["size"])

    # The steps of stories that are no events.

    def finds(self, *findings):
        """Lets triage find this from here on."""
        self.findings = [finding(one) if isinstance(one, str) else one for one in findings]

    def state(self, *ranks, **fields):
        for rank in ranks:
            self.ranks[rank] |= fields

    def lost(self, *ranks):
        self.state(*ranks, contact="lost", state="running", exit_code=None)

    def ended_well(self):
        self.state(*range(4), state="dead", exit_code=0)

    def on_stall(self, action, **results):
        """Sets what to do at a stall, and what the guards of ranks answer: r0=bytes."""
        self.options["on_stall"] = action
        self.results = {int(rank[1:]): result for rank, result in results.items()}

    def ran_a_line(self, last):
        """Rank 2 ran a line so many seconds ago."""
        rank = Process(2, "node1", 7)
        seen = Activity(rank, Source("rank2.trace"), last=100.0 - last, seen=100.0)
        self.activities[rank] = seen

    def late(self, *reports):
        """Ranks of one host show these seconds of lateness of rank 2, by report."""
        self.state(*range(4), host="node1")
        made = MadeJob(4)
        for seconds in reports:
            self.histories = made.runs(64, late={2: seconds})
            self.judge.report_late()

    def failed_before(self, times):
        """Earlier attempts ended as one does in which rank 2 is stuck."""
        ended = Attempt("run-7", 1.0, 0, "host-stuck: is stuck in f() at train.py:#", 7, "")
        self.judge.earlier = [replace(ended, began=float(began)) for began in range(times)]

    def alone(self):
        self.judge.settings.world["size"] = 1

    def over(self):
        self.judge.say_again()

    def corrects(self):
        self.judge._correct()

    def restarts(self):
        self.monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")  # this is the second one

    def has(self, **values):
        vars(self).update(values)

    def takes(self, *steps):
        """Takes events, and does steps: does("finds", ...)."""
        for step in steps:
            step(self) if callable(step) else self.judge.take(step)
        return self

    # What comes of it.

    def nodes(self):
        """Returns the list of nodes to leave out; None if it was not written."""
        with suppress(FileNotFoundError):
            lines = (self.folder / "nodes").read_text().splitlines()
            return [line for line in lines if not line.startswith("#")]

    def attempts(self):
        return attempts(self.folder / "history")

    def shown(self):
        """Returns what was said, asked and written, as text."""
        texts = ["\n  ".join(lines) for lines in self.lines]
        texts += [f"asks: {stage} {parameters}".strip() for stage, parameters in self.asked]
        if not self.json.exists():
            return "\n".join([*texts, "no report"])
        made = self.report()
        run, decision = made["data"]["run"], made["data"]["decision"]
        last = run["history"][-1]
        assert (made["tool"], run["restart"]) == ("run", 2)
        assert (run["event"], run["after"]) == (last["event"], last["seconds"])
        texts.append(f"report: {made['verdict']}: {made['summary']}")
        for one in made["findings"]:
            texts.append(f"  {one['condition']}: {one['cause']}, {one['who']['ranks']}")
        for row in run["history"]:
            after = f" after {row['seconds']:.0f} s" if row["event"] in TIMED else ""
            other = "" if row["summary"] == made["summary"] else f": {row['summary']}"
            texts.append(f"  event {row['event']}{after}{other}")
        texts += [f"  cascade: {ranks_text(run['cascade'])}"] * bool(run["cascade"])
        texts += ["  killed"] * run["killed"]
        for host, saved in run["evidence"]["hosts"].items() if run["evidence"] else ():
            texts.append(f"  evidence of {host}: {saved['saved']}: {', '.join(saved['lines'])}")
            left = Path(run["evidence"]["folder"], "states.json").read_text()
            assert SEEN in ranks.parse_states(json.loads(left))
        texts.append(f"  decision: {' '.join([decision['action'], *decision['nodes']])}")
        texts += [f"  attempt: step {one.step}, {one.signature!r}" for one in self.attempts()]
        nodes = self.nodes()
        texts.append(f"  nodes: {'not written' if nodes is None else ' '.join(nodes)}".rstrip())
        return "\n".join(texts).replace(str(self.folder), "FOLDER")


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Waits for the children that write files also where they get no core for seconds."""
    monkeypatch.setattr(outputs, "_SECONDS", PATIENCE.limit)


@pytest.fixture
def judged(tmp_path, monkeypatch):
    return Judged(tmp_path, monkeypatch)


death, cascade, END = partial(Event, "death"), partial(Event, "cascade"), Event("end")


def stall(seconds, **more):
    return Event("stall", seconds=seconds, **more)


def still(seconds):
    return Event("still", seconds=seconds)


def moved(seconds):
    return Event("moved", seconds=seconds)


STALL, LAST = stall(61.0), stall(600.0, last=True)
EARLY = stall(600.0, last=True, started=False)
DEATH = death((2,))
ALL_TOLD = death((0, 1, 2, 3), told=True)


WORKS_ON = does("has", looks=[{2: RESTING}, {2: BUSY}])
NOTHING_IS_TOLD = {
    "the awaited rank works": [WORKS_ON, STALL],
    "the awaited rank runs a line now and then": [does("ran_a_line", 3), STALL],
    "the awaited rank has run a line since": [does("ran_a_line", 60), stall(122.0)],
    "the awaited rank works before the first step, even at last": [WORKS_ON, EARLY],
    "a rank moves again": [does("has", at_refresh={"stage": "moving"}), LAST, moved(62.0)],
    "a rank has moved since": [does("has", at_refresh={"progress": 1}), LAST, moved(62.0)],
    "nobody is to blame, and it is not the last look": [does("finds"), STALL],
    "the guard of the awaited rank has not answered yet": [does("has", mute=2), STALL],
    "a rank was late for the first time": [does("late", 0.0, 0.02)],
    "a rank is late but another is dead":
        [does("state", 1, state="dead", signal=9), does("late", 0.02, 0.02, 0.02)],
}  # fmt: skip


def test_nothing_is_told_and_written_while(tmp_path):
    for number, (name, steps) in enumerate(NOTHING_IS_TOLD.items()):
        assert story(tmp_path / str(number), steps) == "no report", name


def story(folder, steps):
    """Returns what is shown of a judge that writes its files itself: a hundred forks take long."""

    def in_this_process(tasks, *_):
        for task in tasks:
            task.work(None)
        return [Result()] * len(tasks)

    folder = folder / "run-7"
    folder.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(outputs, "run_all", in_this_process)
        return Judged(folder, monkeypatch).takes(*steps).shown()


SAVED = json.dumps({"saved": "4 files", "lines": ["no nvidia-smi"]}).encode()
BROKE = b"Traceback\nKeyError: 3\n"
NO_ROOM = json.dumps({"saved": None, "lines": ["no room"]}).encode()
GPU = finding(cause="gpu-stopped", drains_node=True)
MOVING = finding(cause="moving", drains_node=True)
OTHER = finding("rank 1 died", (1,))
DIFFER = finding("ranks 0 and 1 issued other calls", (0, 1), level="low", cause="mismatch")
PERHAPS = finding("rank 1 died", (1,), level="low")
GPU_STALL = [does("finds", GPU), STALL]
RANK_0 = does("finds", "rank 0 died"), death((0,))
RANK_2 = does("finds", "rank 2 died"), DEATH
KILLED = does("state", 2, signal=9, state="dead")
OF_MEMORY = does("state", 2, oom_kills=1)
ENDED_WELL = does("ended_well")
AT_LAST = END, does("over")
TOLD_NOTHING = does("state", *range(4), step="", progress=0)
STORIES = {
    "a stall is one sentence, two points and a step": [STALL],
    "the same sentence is not said twice": [STALL, DEATH, does("finds", "rank 3 has died"), LAST],
    "a stall and a death that nothing explains have no name": [does("finds"), LAST, death((1, 2))],
    "the awaited rank works, but it is the last look": [WORKS_ON, LAST],
    "an awaited rank ran a line long ago": [does("ran_a_line", 60), stall(122.0, last=True)],
    "before the first step, nobody works any more": [WORKS_ON, EARLY, EARLY],
    "a rank that waits in a loop is not at work": [does("has", leaf_class="gpu"), WORKS_ON, STALL],
    "work of ranks that wait says nothing": [does("has", looks=[{0: RESTING}, {0: BUSY}]), STALL],
    "calls differ, and nothing says whose is wrong": [does("finds", DIFFER), STALL],
    "nobody is to blame at last": [does("finds"), STALL, LAST],
    "nor is a rank whose guard has not answered yet": [does("has", mute=2), STALL, LAST],
    "a job is still stuck and goes on": [STALL, still(600.0), moved(3700.0)],
    "a job that was told to end is only written down": [ALL_TOLD],
    "of the death of a job of one rank Python has told": [does("alone"), death((0,))],
    # A death that follows from a stall leaves its verdict.
    "somebody ended a job that stood": [*GPU_STALL, does("finds", "rank 0 died"), ALL_TOLD],
    "a watchdog ended a rank that waited": [*GPU_STALL, *RANK_0],
    "the rank that stood died": [*GPU_STALL, *RANK_2],
    "all died": [*GPU_STALL, does("finds", "rank 0 died"), death((0, 1, 2, 3))],
    "a rank died while another moved on": [does("finds", MOVING), STALL, *RANK_0],
    "once a stall is over a death is judged anew": [STALL, moved(80.0), *RANK_0],
    "a stuck rank that is killed stays named as stuck": [STALL, KILLED, *RANK_2],
    "a stuck rank was killed for memory": [STALL, KILLED, OF_MEMORY, *RANK_2],
    # A verdict on a death is corrected by what came later.
    "another rank died first": [DEATH, does("finds", OTHER), END],
    "the same rank died by the same cause": [DEATH, does("finds", "rank 2 died, too"), END],
    "perhaps another rank died first": [DEATH, does("finds", PERHAPS), END],
    "less was read later": [DEATH, does("finds", OTHER), does("has", records=3), END],
    "the ends of all correct the second verdict, too":
        [DEATH, does("finds", OTHER), does("corrects"), does("finds", finding()), END],
    "a stall after the death keeps its verdict":
        [DEATH, does("finds", OTHER), STALL, does("finds", finding()), END],
    # The last line of the job is the sentence once more.
    "a death is said again at the end of the job": [DEATH, cascade((0, 1, 3)), *AT_LAST],
    "a corrected death is said again": [DEATH, does("finds", OTHER), *AT_LAST],
    "a stall that somebody ended is said again": [STALL, ALL_TOLD, *AT_LAST],
    "a stall that is over is not said again": [STALL, moved(80.0), ENDED_WELL, *AT_LAST],
    "an end that somebody wanted is not said": [ALL_TOLD, *AT_LAST],
    "a job that ended well says nothing": [ENDED_WELL, *AT_LAST],
    "a launcher that starts the ranks again has more to say": [does("restarts"), DEATH, *AT_LAST],
    "deaths that follow are folded": [DEATH, cascade((0, 1)), cascade((3,))],
    "how a rank ended is not known": [ENDED_WELL, does("lost", 3), END],
    "all ended well": [ENDED_WELL, END],
    # Late ranks.
    "a rank that stays late is said once and kept in a healthy report":
        [does("late", *[0.02] * 6), ENDED_WELL, *AT_LAST],
    "a rank is late once": [does("late", 0.02, 0.02, 0.02, 0.0, 0.0, 0.0)],
    "a stall is told as without late ranks": [does("late", 0.02, 0.02), STALL],
    "a death is told as without late ranks": [does("late", 0.02, 0.02), does("finds"), death((1,))],
    # What to do at a stall.
    "one guard of each host collects":
        [does("on_stall", "collect", r0=b"a warning\n" + SAVED + b"\n", r2=SAVED), STALL],
    "the guard of a living rank collects, and a death ends nobody":
        [KILLED, does("lost", 0, 1), does("on_stall", "kill", r3=SAVED), DEATH],
    "a collector broke": [does("on_stall", "collect", r0=SAVED, r2=BROKE), STALL],
    "a collector said nothing": [does("on_stall", "collect", r0=SAVED, r2=b""), STALL],
    "a collector had no room": [does("on_stall", "collect", r0=SAVED, r2=NO_ROOM), STALL],
    "kill ends all ranks after the evidence and their ends decide nothing":
        [does("on_stall", "kill", r0=SAVED, r2=SAVED), STALL, ALL_TOLD],
    "nor does what ranks do in their end":
        [does("on_stall", "kill", r0=SAVED), STALL, does("finds", OTHER), moved(80.0), STALL, LAST],
    "kill ends no moving job": [does("finds", MOVING), does("on_stall", "kill"), LAST],
    "kill ends no job in which no rank waits": [does("finds"), does("on_stall", "kill"), LAST],
    "kill ends a job whose ranks all wait though nobody is named":
        [does("finds"), does("has", waiting=range(4)), does("on_stall", "kill"), LAST],
    "kill ends a job whose ranks issued different calls":
        [does("finds"), does("has", culprits=range(4), cause="mismatch"),
         does("on_stall", "kill"), LAST],
    "a job that goes on while it is collected is left alone":
        [does("on_stall", "kill"), does("has", at_question={"stage": "moving"}), STALL],
    # Nodes to leave out, and attempts.
    "a fault of a node excludes it": GPU_STALL,
    "a later verdict excludes none": [*GPU_STALL, does("finds", finding()), DEATH],
    "no rank told a step or a collective": [TOLD_NOTHING, DEATH],
    "the second attempt that ends alike": [does("failed_before", 1), DEATH],
    "the third attempt that ends alike": [does("failed_before", 2), DEATH],
    "somebody ended the third attempt": [does("failed_before", 2), death((2,), told=True)],
    "a rank told a collective and no step": [TOLD_NOTHING, does("state", 1, progress=40), DEATH],
}  # fmt: skip


def test_what_is_said_asked_and_written(tmp_path, golden):
    found = [
        f"== {name}\n{story(tmp_path / str(number), steps)}\n"
        for number, (name, steps) in enumerate(STORIES.items())
    ]
    golden("\n".join(found))


def test_guards_that_were_cut_off_are_told_again_to_end_their_ranks(judged, monkeypatch):
    judged.takes(does("on_stall", "kill"), STALL)
    assert judged.judge.kill_again > time.monotonic()
    judged.judge.kill_again, looks, states = 0.0, itertools.count(), judged.snapshot

    def ends_later():
        if next(looks) == 5:
            judged.ended_well()
        return states()

    monkeypatch.setattr(judged, "snapshot", ends_later)
    judged.judge.run()
    assert judged.asked.count(("kill", "")) == 2


@pytest.mark.parametrize("event", [LAST, still(1200.0)])
def test_a_pause_on_purpose_is_not_told_and_nothing_is_done(judged, monkeypatch, event):
    judged.cause, excused = causes.PAUSED.name, []
    monkeypatch.setattr(judged.watch, "excuse", excused.append)
    assert judged.takes(does("on_stall", "kill"), does("finds"), event).shown() == "no report"
    assert len(excused) == 1


def test_many_late_ranks_are_few_lines():
    found = [replace(finding(f"rank {r} is late"), who=Who("rank", (r,))) for r in range(7)]
    lines = [f"rank {r} is late" for r in range(4)]
    assert say.late(found) == [*lines, "late, too: ranks 4-6"]
    assert say.late(found[:4]) == lines


def test_a_command_is_told_of_each_verdict_and_of_nothing_else(judged):
    told = judged.folder / "told"
    judged.options["on_verdict"] = f"cat {{report}} >> {told}; echo >> {told}"
    judged.takes(STALL, still(600.0), moved(3700.0))
    until(told.exists)
    until(lambda: told.read_text().endswith("\n\n"))
    judged.takes(DEATH)
    until(
        lambda: told.read_text().count('"event": "death"') and told.read_text().count("\n\n") == 2
    )


def test_ranks_that_live_on_are_watched_after_the_end_of_rank_0(judged):
    judge, states = judged.judge, judged.judge._states()
    gone = [replace(states[0], state="dead", exit_code=0), *states[1:]]
    assert not judge._may_be_over(states)
    assert not judge._may_be_over(gone)
    assert judge._may_be_over([gone[0], *(replace(s, contact="silent") for s in states[1:])])


def only_the_report(judged, file):
    """Lets the judge write to `file` and nowhere else."""
    judged.options.update(json=str(file), exclude=None, history=None)


def test_a_file_that_cannot_be_written_is_said_once(judged):
    only_the_report(judged, judged.json)
    shutil.rmtree(judged.folder)
    judged.takes(DEATH, cascade((0,)), cascade((1,)))
    assert len(judged.lines) == 2
    assert "report.json" in judged.lines[1][0]


def test_a_file_that_cannot_be_written_keeps_no_other_from_it(judged, golden):
    judged.options["json"] = str(judged.folder / "no such folder" / "report.json")
    judged.takes(DEATH)
    assert (judged.nodes(), len(judged.attempts())) == ([], 1)
    golden("\n".join(lines[0] for lines in judged.lines).replace(str(judged.folder), "FOLDER"))


@pytest.mark.needs("fuse")
@pytest.mark.parametrize("takes", [False, True], ids=["stopped", "cannot be killed"])
def test_a_report_whose_file_system_does_not_answer_is_written_once_it_does(
    judged, monkeypatch, takes
):
    # A child can't be left behind before it has begun to write.
    seconds = max(5.0, PATIENCE.seconds(2)) if takes else 0.3
    monkeypatch.setattr(outputs, "_SECONDS", seconds)
    dead = judged.folder / "dead"
    dead.mkdir()
    only_the_report(judged, dead / "report.json")
    with dead_file_system(dead, takes=takes):
        judged.takes(DEATH, cascade((0,)), cascade((1,)))
        (sentence, *_), (trouble,) = judged.lines
        assert sentence == finding().what
        said = f"{dead}/report.json was not written: no answer within {seconds:.3g} s"
        assert trouble.startswith(said)
        # No process for each event: the first one still hangs.
        assert ("left behind" in trouble) == takes
    monkeypatch.setattr(outputs, "_SECONDS", PATIENCE.limit)
    until(lambda: judged.takes(cascade((3,))) and (dead / "report.json").exists())
    assert json.loads((dead / "report.json").read_text())["summary"] == finding().what


@pytest.mark.needs("fuse")
def test_a_folder_that_does_not_answer_holds_no_command_up(judged):
    dead = judged.folder / "dead"
    dead.mkdir()
    judged.judge.settings = replace(judged.judge.settings, cwd=str(dead))
    with dead_file_system(dead):
        judged.options["on_verdict"] = "true"
        judged.takes(STALL)
    assert judged.lines[0][0] == finding().what


def test_a_job_that_went_on_and_stands_again_is_told_so_with_the_rank(judged):
    judged.takes(STALL, moved(80.0), STALL)
    (first, *points), _, (again, *same) = judged.lines
    went_on, _, what = again.partition(" since ")
    assert went_on == "went on after 80 s, and stands again"
    assert (what.partition(" UTC: ")[2], same) == (first, points)
    judged.takes(moved(80.0))
    judged.judge.history[-1]["time"] -= 36_000.0
    assert judged.takes(STALL).lines[-1] == [first, *points]


def test_a_death_of_which_nothing_is_known_is_told(judged, monkeypatch):
    monkeypatch.undo()  # triage's own judge
    monkeypatch.setattr(say, "lines", judged.lines.append)
    judged.take = lambda *_, **how: snapshot.Snapshot({}, 9.0, 9.01)
    judged.takes(DEATH)
    assert judged.lines == [["rank 2 died, and nothing says why"]]
    assert judged.report()["verdict"] == "incomplete"


@pytest.mark.parametrize(("world", "taken"), [(0, [4]), (4, [4, 0, 0])])
def test_guards_that_were_turned_away_count_while_no_group_is_made(
    judged, monkeypatch, world, taken
):
    dead, found = (1, False, "", 4, 1 << 24, "node1"), []
    claims = [(0, False, "", 4, os.getpid(), "node1"), (0, False, "", 4, 7, "node2"), dead]
    monkeypatch.setattr(judged, "notes", lambda: ("", claims, 0, ""))
    known = Identity(Process(4, "node1", 7), Source("f"), world=world)
    monkeypatch.setattr(judge_.record, "held", lambda *what: [known])
    monkeypatch.setattr(
        judge_.triage, "judge",
        lambda facts, *_: found.append(facts[""]) or SimpleNamespace(view=judged, suspects=[]),
    )  # fmt: skip
    judged.takes(DEATH)
    assert [fact.process.rank for fact in found[0]] == taken


PAYLOAD = {
    "realtime_ns": 5_000_000_000, "letter": "S", "wait_status": -1, "start_time": 7,
    "oom_kills": 0, "cpu_ns": 2_000_000_000, "io_bytes": 3,
    "threads": [(11, "S", "futex_do_wait", 0.0)], "record": b"", "workers": (),
}  # fmt: skip
RANK = RankState(2, host="node1", pid=11, contact="ok")
IN_DISK_SLEEP = {"letter": "D", "threads": [(11, "D", "nfs_wait", 0.0)]}
STATES = [
    ({}, "running", None, None),
    ({"letter": "T"}, "stopped", None, None),
    ({"letter": "D"}, "running", None, None),  # its thread sleeps: it was for a moment
    (IN_DISK_SLEEP, "uninterruptible", None, None),
    ({"letter": "Z", "wait_status": 9}, "zombie", 9, None),
    ({"letter": "Z", "wait_status": 3 << 8}, "zombie", None, 3),
    ({"letter": ""}, "dead", 15, None),  # its guard has seen how
]


def test_states_of_processes_are_those_of_triage():
    for changes, *expected in STATES:
        seen = snapshot.seen_of(replace(RANK, signal=15), PAYLOAD | changes)
        assert [seen.state, seen.signal, seen.code] == expected, changes
        assert (seen.pid, seen.started, seen.time) == (11, 7, 5.0)


ANSWER = PAYLOAD | {"record": b"its record"}
LOST = {"rank": 2, "host": "node9", "pid": 11, "contact": "closed", "state": "dead", "signal": 9}


def guards(monkeypatch, ranks, *answers):
    """A taker whose guards give these answers one after the other, each rank -> its payload."""
    left = list(answers)
    hub = SimpleNamespace(
        begin=lambda *stage: None, result_count=lambda: 9, snapshot=lambda: ranks,
        results=lambda: left.pop(0),
    )  # fmt: skip
    core = SimpleNamespace(run_unpack_snapshot=lambda payload: payload)
    monkeypatch.setattr(snapshot._native, "core", lambda: core)
    return snapshot.Taker(hub, "node1", [])


def test_a_rank_that_is_gone_and_of_whose_end_nobody_heard_ended_last(monkeypatch):
    """Else a victim that the launcher ended meanwhile would look like the first death."""
    killed = LOST | {"host": "node1", "contact": "ok"}
    victim = {"rank": 0, "host": "node1", "pid": 12, "contact": "ok"}
    gone = PAYLOAD | {"letter": ""}
    taker = guards(monkeypatch, [victim, killed], {0: gone, 2: gone})
    taken = taker.take(1.0, look=0.0, ended={2: time.monotonic() - 100.0})
    by_rank = {each.rank: each for each in taken.seen}
    assert by_rank[0].ended - by_rank[2].ended >= 100.0 - 1e-3  # rounded
    assert (by_rank[2].signal, by_rank[0].signal) == (9, None)


@pytest.mark.parametrize("moved", [0, 1])
def test_a_rank_that_is_gone_is_known_by_its_last_answer_unless_it_went_on_since(
    monkeypatch, moved
):
    ranks = [{"rank": 2, "host": "node9", "pid": 11, "contact": "ok", "progress": 5}]
    taker = guards(monkeypatch, ranks, {2: ANSWER}, {}, {})
    taker.take(1.0, look=0.0, ended={})
    ranks[0] = LOST | {"progress": 5 + moved}
    for _ in range(2):
        taken = taker.take(1.0, look=0.0, ended={2: time.monotonic() - 100.0})
        (one,) = taken.seen
        assert (one.state, one.signal, taken.work) == ("dead", 9, {})
        assert [*taken.contents.values()] == [b"its record"] * (not moved)


@pytest.mark.parametrize(("number", "code"), [(9, None), (None, 0)])
def test_a_rank_whose_guard_is_gone_and_that_left_no_answer_is_known_by_its_end(
    monkeypatch, number, code
):
    taker = guards(monkeypatch, [LOST | {"oom_kills": 0, "signal": number, "exit_code": code}], {})
    taken = taker.take(1.0, look=0.0, ended={})
    monkeypatch.undo()
    facts = judge_.record.held(taken.contents, taken.seen, Notes())
    (death,) = [fact for fact in facts if isinstance(fact, FactOfDeath)]
    assert (death.process, death.signal, death.code) == (Process(2, "node9", 11), number, code)


def test_records_of_ranks_that_live_are_forgotten_before_those_of_the_dead(monkeypatch):
    monkeypatch.setattr(snapshot, "MOST_KEPT", 2 * len(ANSWER["record"]))
    ranks = [
        {"rank": rank, "host": "node9", "pid": 11 + rank, "contact": "ok"} for rank in range(4)
    ]
    answers = {rank: ANSWER | {"letter": "" if rank == 3 else "S"} for rank in range(4)}
    taker = guards(monkeypatch, ranks, answers, {})
    assert len(taker.take(1.0, look=0.0, ended={}).contents) == 4
    ranks[:] = [LOST | {"rank": rank, "pid": 11 + rank} for rank in range(4)]
    taken = taker.take(1.0, look=0.0, ended={})
    assert [*taken.records] == [2, 3]
    assert len(taken.seen) == 4


def test_who_is_awaited_is_who_is_suspected_or_everybody_that_lives():
    def awaited(*processes, seen=(), leaf_class=None, states=None):
        suspects = [{"processes": [{"rank": rank} for rank in processes], "leaf_class": leaf_class}]
        return snapshot.awaited(suspects[: len(processes)], states or [RANK, dead], seen)

    dead = RankState(1, contact="ok", state="dead")
    seen = [Activity(Process(r), Source("x"), last=7.0, seen=9.0) for r in (1, 2)]
    runs = [replace(each, runs=True) for each in seen]
    assert awaited(3, None) == {3: Awaited(spins=False)}
    assert awaited(3, None, leaf_class="gpu") == {3: Awaited(spins=True)}
    assert awaited(seen=seen) == {2: Awaited(spins=False, rests=2.0)}
    assert awaited(seen=runs) == {2: Awaited(spins=False, rests=0.0)}
    turns = [replace(each, turns=True) for each in seen]
    assert awaited(2, seen=turns) == {2: Awaited(spins=False, rests=0.0)}
    assert awaited(2, seen=turns, leaf_class="gpu") == {2: Awaited(spins=True, rests=2.0)}
    # How long ago its last snapshot was taken is not known.
    assert awaited(1, seen=seen) == {1: Awaited(spins=False)}
    # Ranks that the script starts itself work where their only guard sees it: at the script.
    alone = [RankState(0, contact="ok")]
    assert awaited(1, seen=runs, states=alone) == {0: Awaited(spins=False, rests=0.0)}
    assert awaited(3, leaf_class="gpu", states=alone) == {0: Awaited(spins=True)}
    assert awaited(states=alone) == {0: Awaited(spins=False)}
    assert awaited(states=[replace(dead, rank=0)]) == {}


def test_a_judge_whose_stderr_nobody_reads_goes_on_and_its_words_are_there_once_somebody_does():
    code = (
        "import sys; from oddrank.run import say; say.lines(['rank 2 died', 'next: look']);"
        " say.lines(['still']); print('goes on', flush=True); sys.stdin.read();"
        f" sys.exit(not say.wait_written({PATIENCE.seconds(60)}))"
    )
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    filled = 0
    with suppress(BlockingIOError):
        while True:
            filled += os.write(writes, b"x" * 4096)
    os.set_blocking(writes, True)
    with (
        open(reads, "rb") as stderr,
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=writes,
        ) as process,
    ):  # fmt: skip
        os.close(writes)
        assert process.stdout.readline() == b"goes on\n"
        process.stdin.close()
        read = stderr.read()
    # What reads a pipe may show an open line: a line of its own is begun.
    words = b"\noddrank: rank 2 died\n  next: look\n\noddrank: still\n"
    assert read == b"x" * filled + words
    assert process.returncode == 0


SAYS = texts(__file__)["says"]


@pytest.mark.parametrize("others", [False, True])
def test_a_sentence_stands_in_two_lines_only_if_something_is_between(tmp_path, others):
    with (tmp_path / "err").open("ab") as err:
        words = ["says"] * others
        err.write(b"50%|#####")  # a progress bar
        err.flush()
        subprocess.run([sys.executable, "-c", SAYS, *words], stderr=err, check=True)
    bar, *lines = filter(None, (tmp_path / "err").read_text().splitlines())
    assert bar == "50%|#####"
    again = "oddrank: rank 2 died"
    more = ["torchrun: 1 failed", again] * others
    assert lines == [again, "  next: look", again, *more, again]


@pytest.mark.parametrize("own", [True, False])
def test_torchruns_own_report_gets_the_sentence_where_no_rank_left_its_words(
    judged, monkeypatch, own
):
    files = [judged.folder / "attempt_0" / str(rank) / "error.json" for rank in range(3)]
    for file in files:
        file.parent.mkdir(parents=True)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "7")
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(files[0]))
    judged.takes(*(does("state", rank, host="node1", local_rank=rank) for rank in range(4)))
    judged.finds(finding(), finding(ranks=(1,)))
    if own:
        files[2].write_text("its own")
    began = time.time()
    judged.takes(DEATH)
    until(lambda: files[0].exists() and files[2].exists())
    until(lambda: [path.name for path in judged.folder.rglob(".*")] == [])
    assert not files[1].exists()

    def told(rank):
        message = json.loads(files[rank].read_text())["message"]
        return message["message"], int(message["extraInfo"]["timestamp"])

    text, when = told(0)
    assert text == f"{finding().what} (and 1 more finding)"
    assert when >= int(began) + 1  # torchrun's root cause is the first: not rank 0
    if own:
        assert files[2].read_text() == "its own"
    else:
        assert told(2) == (text, when - 2)


def test_a_judge_begins_with_the_last_attempts_of_the_history(tmp_path):
    made = [Attempt("run-7", float(began), 0, "dead", 100, "it died") for began in range(5)]
    for attempt in made:
        note(tmp_path / "history", attempt)
    assert outputs.earlier(tmp_path / "history") == (made[-ATTEMPTS:], "")


@pytest.mark.needs("fuse")
def test_a_history_that_does_not_answer_keeps_no_judge_from_beginning(tmp_path, monkeypatch):
    monkeypatch.setattr(outputs, "_SECONDS", 0.3)
    with dead_file_system(tmp_path):
        found, why = outputs.earlier(tmp_path)
    assert found == []
    assert why.startswith(f"the attempts in {tmp_path} were not read: no answer within 0.3 s")
