"""The judge without guards: what it tells of events, and what it writes."""

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest

from dead_fuse import dead_file_system
from oddrank import job
from oddrank.control.root import RankState
from oddrank.errors import OddrankError
from oddrank.finding import Confidence, Evidence, Finding, Who
from oddrank.report import SCHEMA_FILE, Report
from oddrank.run import judge as judge_
from oddrank.run import outputs, say, snapshot
from oddrank.run.decide import ATTEMPTS, Attempt, attempts, note
from oddrank.run.start import Options, Settings
from oddrank.run.watch import (
    AllEnded,
    Awaited,
    Cascade,
    Death,
    Moved,
    Stall,
    Still,
    Watch,
    Work,
)
from oddrank.triage import on_purpose
from oddrank.triage.facts import Activity, Process, Source
from patience import PATIENCE, until
from run.made_job import MadeJob

RESTING = Work(1, 10.0, 1.0, 0, 0)
REAL_READ = judge_.triage.read


def finding(what="rank 2 (node1) is stuck in f() at train.py:3", ranks=(2,), level="high"):
    return Finding(
        condition="stuck",
        who=Who("rank", ranks, "node1"),
        cause="host-stuck",
        what=what,
        evidence=tuple(Evidence(f"evidence {i}", "rank2.trace") for i in range(5)),
        confidence=Confidence(level, "why not"),
        next=("look there", "and there"),
    )


class FakeTaker:
    """Gives what ranks did at one look after the other."""

    ranks = 4  # with records

    def __init__(self, folder):
        self.folder, self.works = folder, []
        self.asked, self.results = [], {}
        (folder / "states.json").write_text("states of ranks")

    def ask(self, stage, parameters, expected, seconds, *, over=lambda: False, poll=0.0):
        self.asked.append((stage, parameters))
        return {} if over() else self.results

    def take(self, patience, *, look, ended):
        work = self.works.pop(0) if self.works else dict.fromkeys(range(4), RESTING)
        records = dict.fromkeys(range(self.ranks), self.folder / "no.trace")
        return snapshot.Snapshot(self.folder, work, records, 9.0, 9.01)


class FakeHub:
    def __init__(self):
        self.states = [
            {
                "rank": rank,
                "host": f"node{rank // 2}",
                "contact": "ok",
                "stage": "quiet",
                "step": "7",
            }
            for rank in range(4)
        ]
        self.at_refresh = {}

    def refresh(self, seconds):
        self.states[1] |= self.at_refresh

    def snapshot(self):
        return self.states


class Judged:
    """A judge whose guards, snapshots and triage are the test's."""

    leaf_class: str | None = None
    cause = "host-stuck"

    def __init__(self, folder, monkeypatch):
        self.json, self.lines, self.findings = folder / "report.json", [], [finding()]
        options = Options(
            60.0, str(self.json), str(folder / "nodes"), str(folder / "history"),
            on_stall="report", output=str(folder / "evidence"),
        )  # fmt: skip
        settings = Settings(
            pid=1, started=0, world={"size": 4}, host="node1", folders=[str(folder)], file="",
            options=asdict(options), restart=2, publish=False, cwd=str(folder),
        )  # fmt: skip
        self.hub, self.taker = FakeHub(), FakeTaker(folder)
        self.watch = Watch(0.0, 60.0)
        self.judge = judge_.Judge(settings, self.hub, self.taker, self.watch)
        monkeypatch.setattr(judge_, "_WORK_SECONDS", 0.0)
        self.activities = {}
        view = SimpleNamespace(activities=self.activities)
        monkeypatch.setattr(judge_.triage, "read", lambda paths: SimpleNamespace(view=view))
        monkeypatch.setattr(judge_.triage, "made", lambda found: self.made())
        monkeypatch.setattr(say, "lines", lambda texts: self.lines.append(list(texts)))

    def made(self):
        processes = [{"rank": 2, "host": "node1", "pid": 7}]
        suspects = [{"cause": self.cause, "processes": processes, "leaf_class": self.leaf_class}]
        data = {"evidence": [], "folder": None, "skipped": [], "heard": [], "suspects": suspects}
        return Report.of("triage", {"size": 4}, data, self.findings, complete=True)

    def report(self):
        made = json.loads(self.json.read_text())
        jsonschema.validate(made, json.loads(SCHEMA_FILE.read_text()))
        return made

    def on_stall(self, action):
        self.judge.settings.options["on_stall"] = action
        return self

    def takes(self, *events):
        for event in events:
            self.judge.take(event)
        return self


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Waits for the children that write files also where they get no core for seconds."""
    monkeypatch.setattr(outputs, "_SECONDS", 60.0)


@pytest.fixture
def judged(tmp_path, monkeypatch):
    return Judged(tmp_path, monkeypatch)


def test_a_stall_is_one_sentence_two_points_and_a_step(judged):
    judged.takes(Stall(61.0, last=False))
    assert judged.lines == [
        [finding().what, "evidence 0", "evidence 1", "next: look there"],
    ]
    made = judged.report()
    assert (made["tool"], made["verdict"], made["summary"]) == ("run", "odd", finding().what)
    run = made["data"]["run"]
    assert (run["restart"], run["event"], run["after"]) == (2, "stall", 61.0)


def test_the_same_sentence_is_not_said_twice(judged):
    judged.takes(Stall(61.0, last=False), Death((2,)))
    assert len(judged.lines) == 1
    judged.findings = [finding("rank 3 has died")]
    judged.takes(Stall(61.0, last=True))
    assert [lines[0] for lines in judged.lines] == [finding().what, "rank 3 has died"]


def test_a_stall_and_a_death_that_nothing_explains_are_told_without_a_name(judged):
    judged.findings = []
    judged.takes(Stall(61.0, last=True), Death((1, 2)))
    assert [lines[0] for lines in judged.lines] == [
        "no rank has moved for 61 s, and nothing says why",
        "ranks 1-2 died, and nothing says why",
    ]
    assert judged.report()["verdict"] == "incomplete"


def test_a_job_without_records_is_told_of_too(judged, monkeypatch):
    def refuses(paths):
        raise OddrankError("nothing in what was given")

    monkeypatch.setattr(judge_.triage, "read", refuses)
    judged.takes(Death((2,)))
    assert judged.lines == [["rank 2 died, and nothing says why"]]
    assert judged.report()["verdict"] == "incomplete"


@pytest.mark.parametrize("event", [Stall(600.0, last=True), Still(1200.0)])
def test_a_pause_on_purpose_is_not_told_and_nothing_is_done(judged, monkeypatch, event):
    judged.on_stall("kill").findings = []
    judged.cause = on_purpose.CAUSE
    excused = []
    monkeypatch.setattr(judged.watch, "excuse", excused.append)
    judged.takes(event)
    assert len(excused) == 1
    assert (judged.lines, judged.taker.asked) == ([], [])
    assert not judged.json.exists()


def test_while_the_awaited_rank_works_nobody_is_named(judged):
    works = {2: Work(1, 12.0, 3.0, 0, 0)}
    judged.taker.works = [{2: RESTING}, works]
    judged.takes(Stall(61.0, last=False))
    assert judged.lines == []
    assert not judged.json.exists()
    judged.taker.works = [{2: RESTING}, works]
    judged.takes(Stall(600.0, last=True))
    assert len(judged.lines) == 1


def test_an_awaited_rank_that_runs_a_line_now_and_then_is_not_named_yet(judged):
    rank = Process(2, "node1", 7)
    judged.activities[rank] = Activity(rank, Source("rank2.trace"), last=97.0, seen=100.0)
    judged.takes(Stall(61.0, last=False))
    assert judged.lines == []
    judged.activities[rank] = Activity(rank, Source("rank2.trace"), last=40.0, seen=100.0)
    judged.takes(Stall(122.0, last=False))
    assert judged.lines == []
    judged.takes(Stall(122.0, last=True))
    assert len(judged.lines) == 1


def test_before_the_first_step_who_works_is_not_named_even_at_last(judged):
    judged.taker.works = [{2: RESTING}, {2: Work(1, 12.0, 3.0, 0, 0)}]
    judged.takes(Stall(600.0, last=True, started=False))
    assert judged.lines == []
    judged.takes(Stall(1200.0, last=True, started=False))
    assert len(judged.lines) == 1


def test_a_rank_that_waits_in_a_loop_is_not_at_work(judged):
    judged.leaf_class = "gpu"
    judged.taker.works = [{2: RESTING}, {2: Work(1, 12.0, 3.0, 0, 0)}]
    judged.takes(Stall(61.0, last=False))
    assert len(judged.lines) == 1


def test_work_of_ranks_that_wait_says_nothing(judged):
    judged.taker.works = [{0: RESTING}, {0: Work(1, 12.0, 3.0, 0, 0)}]
    judged.takes(Stall(61.0, last=False))
    assert len(judged.lines) == 1


@pytest.mark.parametrize("now", [{"stage": "moving"}, {"progress": 1}])
def test_a_stall_that_is_over_by_now_is_not_told(judged, now):
    judged.hub.at_refresh = now
    judged.takes(Stall(61.0, last=True), Moved(62.0))
    assert judged.lines == []
    assert not judged.json.exists()


def test_a_stall_of_which_nobody_is_to_blame_is_told_only_at_last(judged):
    judged.findings = []
    judged.takes(Stall(61.0, last=False))
    assert judged.lines == []
    judged.takes(Stall(600.0, last=True))
    assert len(judged.lines) == 1


def test_it_says_that_a_job_went_on_and_that_one_is_still_stuck(judged):
    judged.takes(Stall(61.0, last=False), Still(600.0), Moved(3700.0))
    assert [lines[0] for lines in judged.lines[1:]] == [
        f"still stuck after 10 min: {finding().what}",
        "went on after 62 min",
    ]
    events = [each["event"] for each in judged.report()["data"]["run"]["history"]]
    assert events == ["stall", "still-stuck", "went-on"]


def test_a_job_that_was_told_to_end_is_only_written_down(judged):
    judged.takes(Death((0, 1, 2, 3), told=True))
    assert judged.lines == []
    assert judged.report()["data"]["run"]["event"] == "death"


@pytest.mark.parametrize(
    ("cause", "death", "follows"),
    [
        ("gpu-stopped", Death((0, 1, 2, 3), told=True), True),  # somebody ended it: it stood
        ("gpu-stopped", Death((0,)), True),  # a watchdog of a rank that waited
        ("gpu-stopped", Death((2,)), False),
        ("gpu-stopped", Death((0, 1, 2, 3)), False),
        ("moving", Death((0,)), False),
    ],
)
def test_a_death_that_follows_from_a_stall_leaves_its_verdict(judged, cause, death, follows):
    judged.findings = [replace(finding(), cause=cause, drains_node=True)]
    judged.takes(Stall(61.0, last=False))
    judged.findings = [finding("rank 0 died")]
    judged.takes(death)
    made = judged.report()
    assert made["data"]["run"]["event"] == "death"
    assert (made["summary"] == finding().what) is follows
    assert (made["data"]["decision"]["action"] == "exclude") is follows
    assert len(judged.lines) == (1 if follows else 2)


def test_a_stuck_rank_that_is_killed_afterwards_stays_named_as_stuck(judged):
    for of_memory in (1, 0):
        judged.findings = [finding()]
        judged.takes(Stall(61.0, last=False))
        judged.hub.states[2] |= {"signal": 9, "state": "dead", "oom_kills": of_memory}
        judged.findings = [finding("rank 2 died")]
        judged.takes(Death((2,)))
        told = "rank 2 died" if of_memory else finding().what
        assert judged.report()["summary"] == told


@pytest.mark.parametrize(
    ("found", "records", "corrected"),
    [
        (lambda: finding("rank 1 died", ranks=(1,)), 4, True),
        (lambda: finding("rank 2 died, they say"), 4, False),  # the same rank, by the same cause
        (lambda: finding("rank 1 died", ranks=(1,), level="low"), 4, False),
        (lambda: finding("rank 1 died", ranks=(1,)), 3, False),  # it has seen less
    ],
)
def test_a_verdict_on_a_death_is_corrected_by_what_came_later(judged, found, records, corrected):
    judged.takes(Death((2,)))
    judged.findings = [found()]
    judged.taker.ranks = records
    judged.takes(AllEnded())
    assert [row["event"] for row in judged.report()["data"]["run"]["history"]] == [
        "death", *["corrected"] * corrected, "end"
    ]  # fmt: skip
    assert judged.lines[1:] == [["corrected: rank 1 died"]] * corrected


def test_once_a_stall_is_over_a_death_is_judged_anew(judged):
    judged.takes(Stall(61.0, last=False), Moved(80.0))
    judged.findings = [finding("rank 0 died")]
    judged.takes(Death((0,)))
    assert judged.report()["summary"] == "rank 0 died"


def test_deaths_that_follow_are_folded(judged):
    judged.takes(Death((2,)), Cascade((0, 1)), Cascade((3,)))
    assert len(judged.lines) == 1
    assert judged.report()["data"]["run"]["cascade"] == [0, 1, 3]


def come_late(judged, monkeypatch, *reports):
    """Lets the ranks' records show a job with these seconds of lateness of rank 2, by report."""
    job = MadeJob(4)
    for seconds in reports:
        histories = job.runs(64, late={2: seconds})
        monkeypatch.setattr(judge_.late, "read", lambda snapshot, found=histories: found)
        judged.judge.report_late()
    return judged


LATE = "rank 2 (node1) is late: it spends "


def test_a_rank_that_stays_late_is_said_once_and_kept_in_a_healthy_report(judged, monkeypatch):
    judged.hub.states = [state | {"host": "node1"} for state in judged.hub.states]
    come_late(judged, monkeypatch, 0.0, 0.02)
    assert judged.lines == []
    assert not judged.json.exists()
    come_late(judged, monkeypatch, *[0.02] * 4)
    ((line,),) = judged.lines
    assert line.startswith(LATE)
    assert line.endswith("all_reduces of default")
    made = judged.report()
    assert (made["verdict"], made["summary"]) == ("odd", line)
    assert made["data"]["decision"]["action"] == "same-nodes"
    judged.hub.states = [state | {"state": "dead", "exit_code": 0} for state in judged.hub.states]
    judged.takes(AllEnded())
    made = judged.report()
    assert (made["verdict"], made["summary"]) == ("odd", line)
    assert [f["cause"] for f in made["findings"]] == ["late-arrival"]
    assert [e["event"] for e in made["data"]["run"]["history"]] == ["late", "end"]
    # It ended well: that is no cause to stop trying.
    (attempt,) = attempts(judged.json.parent / "history")
    assert attempt.signature == ""


def test_a_rank_that_is_no_longer_late_is_said_to_be_so(judged, monkeypatch):
    judged.hub.states = [state | {"host": "node1"} for state in judged.hub.states]
    come_late(judged, monkeypatch, 0.02, 0.02, 0.02, 0.0, 0.0, 0.0)
    assert judged.lines[1:] == [["rank 2 is no longer late"]]
    made = judged.report()
    assert [e["event"] for e in made["data"]["run"]["history"]] == ["late", "no-longer-late"]
    assert made["summary"].startswith(LATE)


def test_a_stall_and_a_death_are_told_as_without_late_ranks(judged, monkeypatch):
    judged.hub.states = [state | {"host": "node1"} for state in judged.hub.states]
    come_late(judged, monkeypatch, 0.02, 0.02)
    judged.takes(Stall(61.0, last=False))
    assert judged.lines[1][0] == finding().what
    made = judged.report()
    assert [f["condition"] for f in made["findings"]] == ["stuck", "late"]
    judged.findings = []
    judged.takes(Moved(80.0), Death((1,)))
    assert judged.lines[3] == ["rank 1 died, and nothing says why"]
    made = judged.report()
    assert (made["verdict"], made["findings"]) == ("incomplete", [])
    assert made["data"]["run"]["history"][0]["summary"].startswith(LATE)


def test_nobody_is_late_once_a_rank_has_died(judged, monkeypatch):
    judged.hub.states = [state | {"host": "node1"} for state in judged.hub.states]
    judged.hub.states[1] |= {"state": "dead", "signal": 9}
    come_late(judged, monkeypatch, 0.02, 0.02, 0.02)
    assert judged.lines == []


def test_many_late_ranks_are_few_lines():
    found = [replace(finding(f"rank {r} is late"), who=Who("rank", (r,))) for r in range(7)]
    lines = [f"rank {r} is late" for r in range(4)]
    assert say.late(found) == [*lines, "late, too: ranks 4-6"]
    assert say.late(found[:4]) == lines


SAVED = json.dumps({"saved": "4 files", "lines": ["no nvidia-smi"]}).encode()


def test_a_stall_is_collected_by_one_guard_of_each_host(judged):
    judged.taker.results = {0: b"a warning\n" + SAVED + b"\n", 2: SAVED}
    judged.on_stall("collect").takes(Stall(61.0, last=False))
    assert judged.taker.asked == [("collect", "0,2")]
    folder = str(judged.json.parent / "evidence" / "restart-2" / judged.judge.settings.job)
    assert judged.lines[1] == [f"the evidence of 2 hosts is saved: oddrank triage {folder}"]
    assert (Path(folder) / "states.json").read_text() == "states of ranks"
    run = judged.report()["data"]["run"]
    told = {"saved": "4 files", "lines": ["no nvidia-smi"]}
    assert run["evidence"] == {"folder": folder, "hosts": {"node0": told, "node1": told}}


def test_the_guard_of_a_living_rank_collects(judged):
    judged.hub.states[2] |= {"state": "dead", "signal": 9}
    judged.hub.states[0]["contact"] = judged.hub.states[1]["contact"] = "lost"
    judged.taker.results = {3: SAVED}
    judged.on_stall("kill").takes(Death((2,)))
    assert judged.taker.asked == [("collect", "3")]  # a death ends nobody
    assert judged.lines[1][1:] == ["no evidence of node0 was saved: its guards are silent"]


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (b"Traceback\nKeyError: 3\n", "KeyError: 3"),
        (b"", "the collector printed nothing"),
        (json.dumps({"saved": None, "lines": ["no room"]}).encode(), "no room"),
    ],
)
def test_a_host_that_saved_nothing_is_said_with_the_reason(judged, result, why):
    judged.taker.results = {0: SAVED, 2: result}
    judged.on_stall("collect").takes(Stall(61.0, last=False))
    assert judged.lines[1][0].startswith("the evidence of node0 is saved: ")
    assert judged.lines[1][1:] == [f"no evidence of node1 was saved: {why}"]


def test_kill_ends_all_ranks_after_the_evidence_and_their_ends_decide_nothing(judged):
    judged.taker.results = {0: SAVED, 2: SAVED}
    judged.on_stall("kill").takes(Stall(61.0, last=False), Death((0, 1, 2, 3), told=True))
    assert [stage for stage, _ in judged.taker.asked] == ["collect", "kill"]
    assert judged.lines[2] == ["ends all ranks, as --on-stall kill asks"]
    made = judged.report()
    assert (made["summary"], made["verdict"]) == (finding().what, "odd")
    run = made["data"]["run"]
    assert (run["killed"], run["cascade"], run["event"]) == (True, [0, 1, 2, 3], "stall")


def test_kill_ends_no_rank_of_a_job_that_moves(judged):
    judged.findings = [replace(finding(), cause="moving")]
    judged.on_stall("kill").takes(Stall(600.0, last=True))
    assert [stage for stage, _ in judged.taker.asked] == ["collect"]
    assert judged.lines[-1][0].startswith("ends no rank: ")


def test_a_job_that_goes_on_while_it_is_collected_is_left_alone(judged):
    class Goes(FakeTaker):
        def ask(self, *stage, **how):
            judged.hub.states[1] |= {"stage": "moving"}
            return super().ask(*stage, **how)

    judged.judge.taker = taker = Goes(judged.json.parent)
    judged.on_stall("kill").takes(Stall(61.0, last=False))
    assert [stage for stage, _ in taker.asked] == ["collect"]


def test_a_command_gets_the_report(judged):
    copy = judged.json.parent / "a copy.json"
    judged.on_stall(f"cp {{report}} '{copy}'").takes(Stall(61.0, last=False))
    until(copy.exists)
    until(lambda: copy.read_text() == judged.json.read_text())
    assert [stage for stage, _ in judged.taker.asked] == ["collect"]


def test_ranks_whose_ends_nobody_saw_are_not_called_healthy(judged):
    for state in judged.hub.states[:3]:
        state |= {"state": "dead", "exit_code": 0}
    judged.hub.states[3]["contact"] = "silent"
    judged.takes(AllEnded())
    made = judged.report()
    assert made["verdict"] == "incomplete"
    assert made["summary"] == "3 ranks ended with exit code 0; how rank 3 ended is not known"


def test_ranks_that_live_on_are_watched_after_the_end_of_rank_0(judged):
    judge, states = judged.judge, judged.judge._states()
    gone = [replace(states[0], state="dead", exit_code=0), *states[1:]]
    assert not judge._may_be_over(states)
    assert not judge._may_be_over(gone)
    assert judge._may_be_over([gone[0], *(replace(s, contact="silent") for s in states[1:])])


def only_the_report(judged, file):
    """Lets the judge write to `file` and nowhere else."""
    judged.judge.settings.options.update(json=str(file), exclude=None, history=None)


def test_a_file_that_cannot_be_written_is_said_once(judged):
    only_the_report(judged, judged.json)
    shutil.rmtree(judged.json.parent)
    judged.takes(Death((2,)), Cascade((0,)), Cascade((1,)))
    assert len(judged.lines) == 2
    assert "report.json" in judged.lines[1][0]


def test_a_file_that_cannot_be_written_keeps_no_other_from_it(judged, tmp_path):
    judged.judge.settings.options["json"] = str(tmp_path / "no such folder" / "report.json")
    judged.takes(Death((2,)))
    assert [lines[0] for lines in judged.lines] == [
        finding().what, f"cannot write {tmp_path}/no such folder/report.json: No such file or"
        " directory; give --json a file in a folder you can write, or -",
    ]  # fmt: skip
    assert nodes(judged) == []
    assert len(attempts(tmp_path / "history")) == 1


@pytest.mark.needs("fuse")
@pytest.mark.parametrize("takes", [False, True], ids=["stopped", "cannot be killed"])
def test_a_report_whose_file_system_does_not_answer_is_written_once_it_does(
    judged, monkeypatch, tmp_path, takes
):
    # A child can't be left behind before it has begun to write.
    seconds = 5.0 if takes else 0.3
    monkeypatch.setattr(outputs, "_SECONDS", seconds)
    dead = tmp_path / "dead"
    dead.mkdir()
    only_the_report(judged, dead / "report.json")
    with dead_file_system(dead, takes=takes):
        judged.takes(Death((2,)), Cascade((0,)), Cascade((1,)))
        (sentence, *_), (trouble,) = judged.lines
        assert sentence == finding().what
        said = f"{dead}/report.json was not written: no answer within {seconds:.3g} s"
        assert trouble.startswith(said)
        # No process for each event: the first one still hangs.
        assert ("left behind" in trouble) == takes
    monkeypatch.setattr(outputs, "_SECONDS", 60.0)

    def written():
        judged.takes(Cascade((3,)))
        return (dead / "report.json").exists()

    until(written)
    assert json.loads((dead / "report.json").read_text())["summary"] == finding().what


@pytest.mark.needs("fuse")
def test_a_folder_that_does_not_answer_holds_no_command_up(judged, tmp_path):
    dead = tmp_path / "dead"
    dead.mkdir()
    judged.judge.settings = replace(judged.judge.settings, cwd=str(dead))
    with dead_file_system(dead):
        judged.on_stall("true").takes(Stall(61.0, last=False))
    assert judged.lines[0][0] == finding().what


def test_an_attempt_of_which_no_rank_told_a_step_or_a_collective_made_no_progress(judged):
    for state in judged.hub.states:
        state |= {"step": "", "progress": 0}
    judged.takes(Death((2,)))
    folder = judged.json.parent / "history"
    assert [attempt.step for attempt in attempts(folder)] == [0]
    judged.hub.states[1]["progress"] = 40
    judged.takes(Cascade((1,)))
    assert [attempt.step for attempt in attempts(folder)] == [None]


def test_snapshots_go_to_another_file_system_if_one_is_full(judged, tmp_path, monkeypatch):
    """What fills /dev/shm kills ranks, too."""
    folders = [tmp_path / "shm" / "job", tmp_path / "disk" / "job"]
    hub = SimpleNamespace(
        begin=lambda *stage: None, result_count=lambda: 4, results=dict, snapshot=lambda: []
    )
    first = snapshot.first_folder([tmp_path / "shm" / "job"])
    judged.judge.taker = snapshot.Taker(hub, first, "node1", folders)
    writes = Path.write_text

    def full(path, *text):
        if path.is_relative_to(tmp_path / "shm"):
            raise OSError(errno.ENOSPC, "no space left")
        return writes(path, *text)

    monkeypatch.setattr(Path, "write_text", full)
    taken = judged.judge._snapshot(0.0, look=0.0)
    assert taken.folder.is_relative_to(folders[1])
    assert (taken.folder / "states.json").exists()
    snapshot.remove_folders(folders)
    assert not [*folders[0].parent.iterdir(), *folders[1].parent.iterdir()]


def test_a_death_is_told_where_no_folder_takes_a_snapshot(judged, tmp_path, monkeypatch):
    hub = SimpleNamespace(
        begin=lambda *stage: None, result_count=lambda: 4, results=dict, snapshot=lambda: []
    )
    (tmp_path / "file").touch()
    taker = judged.judge.taker = snapshot.Taker(hub, None, "node1", [tmp_path / "file" / "job"])
    taker.use_next_folder()
    monkeypatch.setattr(judge_.triage, "read", REAL_READ)
    judged.takes(Death((2,)))
    (trouble,), (sentence, *_) = judged.lines
    assert trouble.startswith("judges without the ranks' records: no folder takes copies of them")
    assert "File exists" in trouble
    assert sentence == "rank 2 died, and nothing says why"
    assert judged.report()["summary"] == sentence


def test_where_all_folders_fill_up_a_death_is_told(judged, tmp_path, monkeypatch):
    hub = SimpleNamespace(
        begin=lambda *stage: None, result_count=lambda: 4, results=dict, snapshot=lambda: []
    )
    folders = [tmp_path / name / "job" for name in ("shm", "disk")]
    taker = judged.judge.taker = snapshot.Taker(hub, None, "node1", folders)
    taker.use_next_folder()

    def full(path, *text):
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(Path, "write_text", full)
    taken = judged.judge._snapshot(0.0, look=0.0)
    assert not taken.folder.exists()
    assert judged.lines == [
        [
            "judges without the ranks' records: no folder takes copies of them"
            f" ([Errno {errno.ENOSPC}] no space left)"
        ]
    ]


def test_the_first_folder_that_can_be_made_is_taken(tmp_path):
    (tmp_path / "file").touch()
    made = snapshot.first_folder([tmp_path / "file" / "job", tmp_path / "other" / "job"])
    assert made.parent == tmp_path / "other" / "job"
    with pytest.raises(FileExistsError):
        snapshot.first_folder([tmp_path / "file" / "job"])


def test_a_folder_of_a_judge_that_was_killed_is_removed_by_the_next_one(tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    left, other = folder / ".judge-1-0", folder / "notes"
    left.mkdir()
    (left / "rank0-1-1.trace").write_text("")
    other.mkdir()
    made = snapshot.private_folder(folder)
    assert not left.exists()
    assert other.exists()
    assert made.stat().st_mode & 0o777 == 0o700
    assert str(job.start_time(int(made.name.split("-")[1]))) == made.name.split("-")[2]


PAYLOAD = {
    "realtime_ns": 5_000_000_000, "letter": "S", "wait_status": -1, "start_time": 7,
    "oom_kills": 0, "cpu_ns": 2_000_000_000, "io_bytes": 3, "events": 4,
    "threads": [(11, "asleep", 0.0)], "syscall": "202", "record": b"",
}  # fmt: skip
RANK = RankState(2, host="node1", pid=11, contact="ok")


@pytest.mark.parametrize(
    ("changes", "state", "signal", "code"),
    [
        ({}, "running", None, None),
        ({"letter": "T"}, "stopped", None, None),
        ({"letter": "D"}, "running", None, None),  # its thread sleeps: it was for a moment
        (
            {"letter": "D", "threads": [(11, "in uninterruptible sleep (D)", 0.0)]},
            "uninterruptible", None, None,
        ),
        ({"letter": "Z", "wait_status": 9}, "zombie", 9, None),
        ({"letter": "Z", "wait_status": 3 << 8}, "zombie", None, 3),
        ({"letter": ""}, "dead", 15, None),  # its guard has seen how
    ],
)  # fmt: skip
def test_states_of_processes_are_those_of_triage(changes, state, signal, code):
    rank = RankState(2, host="node1", pid=11, contact="ok", signal=15)
    seen = snapshot.seen_of(rank, PAYLOAD | changes)
    assert (seen.state, seen.signal, seen.code) == (state, signal, code)
    assert (seen.pid, seen.started, seen.time) == (11, 7, 5.0)


def test_a_rank_that_is_gone_and_of_whose_end_nobody_heard_ended_last(tmp_path, monkeypatch):
    """Else a victim that the launcher ended meanwhile would look like the first death."""
    killed = {"rank": 2, "host": "node1", "pid": 11, "contact": "ok", "state": "dead", "signal": 9}
    victim = {"rank": 0, "host": "node1", "pid": 12, "contact": "ok"}
    hub = SimpleNamespace(
        begin=lambda *stage: None, result_count=lambda: 2, snapshot=lambda: [victim, killed],
        results=lambda: {0: b"", 2: b""},
    )  # fmt: skip
    core = SimpleNamespace(run_unpack_snapshot=lambda payload: PAYLOAD | {"letter": ""})
    monkeypatch.setattr(snapshot._native, "core", lambda: core)
    taker = snapshot.Taker(hub, tmp_path, "node1", [])
    taken = taker.take(1.0, look=0.0, ended={2: time.monotonic() - 100.0})
    read = json.loads((taken.folder / "states.json").read_text())["processes"]
    by_rank = {each["rank"]: each for each in read}
    assert by_rank[0]["ended"] - by_rank[2]["ended"] >= 100.0 - 1e-3  # rounded
    assert (by_rank[2]["signal"], by_rank[0]["signal"]) == (9, None)


def test_who_is_awaited_is_who_is_suspected_or_everybody_that_lives():
    suspect = {"processes": [{"rank": 3}, {"rank": None}], "leaf_class": None}
    gpu = {**suspect, "leaf_class": "gpu"}
    assert snapshot.awaited([suspect], [RANK], []) == {3: Awaited(spins=False)}
    assert snapshot.awaited([gpu], [RANK], []) == {3: Awaited(spins=True)}
    dead = RankState(1, contact="ok", state="dead")
    seen = [Activity(Process(r), Source("x"), last=7.0, seen=9.0) for r in (1, 2)]
    assert snapshot.awaited([], [RANK, dead], seen) == {2: Awaited(spins=False, rests=2.0)}
    runs = [replace(each, runs=True) for each in seen]
    assert snapshot.awaited([], [RANK, dead], runs) == {2: Awaited(spins=False, rests=0.0)}
    # How long ago its last snapshot was taken is not known.
    one = {"processes": [{"rank": 1}], "leaf_class": None}
    assert snapshot.awaited([one], [RANK, dead], seen) == {1: Awaited(spins=False)}


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
    assert read == b"x" * filled + b"oddrank: rank 2 died\n  next: look\noddrank: still\n"
    assert process.returncode == 0


def test_durations():
    assert [say.duration(s) for s in (3.2, 95, 600, 9000)] == ["3 s", "95 s", "10 min", "2.5 h"]


def nodes(judged):
    lines = (judged.json.parent / "nodes").read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_a_fault_of_a_node_is_a_decision_and_a_list_of_nodes(judged):
    judged.findings = [replace(finding(), cause="gpu-stopped", drains_node=True)]
    judged.takes(Stall(61.0, last=False))
    decision = judged.report()["data"]["decision"]
    assert (decision["action"], decision["nodes"]) == ("exclude", ["node1"])
    assert nodes(judged) == ["node1"]
    judged.findings = [finding()]
    judged.takes(Death((2,)))
    assert judged.report()["data"]["decision"]["action"] == "same-nodes"
    assert nodes(judged) == []


def test_the_third_attempt_that_ends_alike_is_the_last_one(judged):
    for began in (1.0, 2.0):
        judged.judge.began = began
        judged.takes(Death((2,)))
        assert judged.report()["data"]["decision"]["action"] == "same-nodes"
        judged.judge.earlier = attempts(judged.json.parent / "history")
    judged.judge.began = 3.0
    judged.takes(Death((2,)))
    assert judged.report()["data"]["decision"]["action"] == "do-not-restart"
    # Somebody ended it: that is no end of its own.
    judged.takes(Death((2,), told=True))
    assert judged.report()["data"]["decision"]["action"] == "same-nodes"


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
