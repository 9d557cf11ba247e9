"""The judge without guards: what it tells of events, and what it writes."""

import json
import time
from dataclasses import replace
from types import SimpleNamespace

import jsonschema
import pytest

from oddrank import job
from oddrank.control.root import RankState
from oddrank.errors import OddrankError
from oddrank.finding import Confidence, Evidence, Finding, Who
from oddrank.report import SCHEMA_FILE, Report
from oddrank.run import judge as judge_
from oddrank.run import say, snapshot
from oddrank.run.decide import attempts
from oddrank.run.start import Settings
from oddrank.run.watch import Cascade, Death, Moved, Stall, Still, Watch, Work

RESTING = Work(1, 10.0, 1.0, 0, 0)


def finding(what="rank 2 (node1) is stuck in f() at train.py:3"):
    return Finding(
        condition="stuck",
        who=Who("rank", (2,), "node1"),
        cause="host-stuck",
        what=what,
        evidence=tuple(Evidence(f"evidence {i}", "rank2.trace") for i in range(5)),
        confidence=Confidence("high", "why not"),
        next=("look there", "and there"),
    )


class FakeTaker:
    """Gives what ranks did at one look after the other."""

    def __init__(self, folder):
        self.folder, self.works = folder, []

    def take(self, patience, *, look, ended):
        work = self.works.pop(0) if self.works else dict.fromkeys(range(4), RESTING)
        return snapshot.Snapshot(self.folder, work)


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

    def __init__(self, folder, monkeypatch):
        self.json, self.lines, self.findings = folder / "report.json", [], [finding()]
        settings = Settings(
            pid=1, started=0, world={"size": 4}, host="node1", folders=[str(folder)], file="",
            stall=60.0, json=str(self.json), restart=2, publish=False,
            exclude=str(folder / "nodes"), history=str(folder / "history"),
        )  # fmt: skip
        self.hub, self.taker = FakeHub(), FakeTaker(folder)
        self.watch = Watch(0.0, 60.0)
        self.judge = judge_.Judge(settings, self.hub, self.taker, self.watch)
        monkeypatch.setattr(judge_, "_WORK_SECONDS", 0.0)
        monkeypatch.setattr(judge_.triage, "read", lambda paths: None)
        monkeypatch.setattr(judge_.triage, "made", lambda found: self.made())
        monkeypatch.setattr(say, "lines", lambda texts: self.lines.append(list(texts)))

    def made(self):
        processes = [{"rank": 2, "host": "node1", "pid": 7}]
        suspects = [{"processes": processes, "leaf_class": self.leaf_class}]
        data = {"evidence": [], "folder": None, "skipped": [], "heard": [], "suspects": suspects}
        return Report.of("triage", {"size": 4}, data, self.findings, complete=True)

    def report(self):
        made = json.loads(self.json.read_text())
        jsonschema.validate(made, json.loads(SCHEMA_FILE.read_text()))
        return made

    def takes(self, *events):
        for event in events:
            self.judge.take(event)
        return self


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


def test_while_the_awaited_rank_works_nobody_is_named(judged):
    works = {2: Work(1, 12.0, 3.0, 0, 0)}
    judged.taker.works = [{2: RESTING}, works]
    judged.takes(Stall(61.0, last=False))
    assert judged.lines == []
    assert not judged.json.exists()
    judged.taker.works = [{2: RESTING}, works]
    judged.takes(Stall(600.0, last=True))
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


def test_deaths_that_follow_are_folded(judged):
    judged.takes(Death((2,)), Cascade((0, 1)), Cascade((3,)))
    assert len(judged.lines) == 1
    assert judged.report()["data"]["run"]["cascade"] == [0, 1, 3]


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
    taken = taker.take(1.0, look=0.0, ended={2: time.monotonic() - 0.05})
    read = json.loads((taken.folder / "states.json").read_text())["processes"]
    by_rank = {each["rank"]: each for each in read}
    assert by_rank[0]["ended"] - by_rank[2]["ended"] == pytest.approx(0.05, abs=0.04)
    assert (by_rank[2]["signal"], by_rank[0]["signal"]) == (9, None)


def test_who_is_awaited_is_who_is_suspected_or_everybody_that_lives():
    suspect = {"processes": [{"rank": 3}, {"rank": None}], "leaf_class": None}
    assert snapshot.awaited([suspect], [RANK]) == {3: False}
    assert snapshot.awaited([{**suspect, "leaf_class": "gpu"}], [RANK]) == {3: True}
    dead = RankState(1, contact="ok", state="dead")
    assert snapshot.awaited([], [RANK, dead]) == {2: False}


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
        judged.judge.earlier = attempts(judged.json.parent / "history", judged.judge.settings.job)
    judged.judge.began = 3.0
    judged.takes(Death((2,)))
    assert judged.report()["data"]["decision"]["action"] == "do-not-restart"
    # Somebody ended it: that is no end of its own.
    judged.takes(Death((2,), told=True))
    assert judged.report()["data"]["decision"]["action"] == "same-nodes"
