"""What to do after a verdict: each rule of the table, and the history of attempts."""

import json
from dataclasses import replace

import pytest

from oddrank import exclude
from oddrank.finding import Who
from oddrank.report import Report
from oddrank.run.decide import ATTEMPTS, REFUSED, Attempt, attempts, decide, note, signature
from oddrank.switches.agreement import RefusedError
from oddrank.triage.facts import Process, Source, Suspect, Trouble
from oddrank.triage.findings import finding as finding_of
from reports import finding

HOSTS = {0: "node1", 1: "node1", 2: "node2", 3: "node2"}
NOW = Attempt("run-7", 1000.0, 0, "dead: raised KeyError", 100, "rank 2 raised KeyError")


def report(*findings):
    return Report.of("run", {"size": 4}, {}, findings, complete=True)


def decided(*findings, told=False, earlier=(), now=NOW):
    return decide(report(*findings), HOSTS, told=told, earlier=earlier, now=now)


def named(cause, condition="stuck", rank=2, **changes):
    return finding(rank, condition, cause, who=Who("rank", (rank,), HOSTS[rank]), **changes)


@pytest.mark.parametrize(
    ("cause", "drains", "action", "nodes"),
    [
        ("device", True, "exclude", ("node2",)),
        ("gpu-stopped", True, "exclude", ("node2",)),
        ("not-entered", False, "same-nodes", ()),
        ("mismatch", False, "same-nodes", ()),
        ("moving", False, "wait", ()),
    ],
)
def test_a_cause_decides(cause, drains, action, nodes):
    made = decided(named(cause, drains_node=drains))
    assert (made.action, made.nodes) == (action, nodes)


def test_a_job_that_a_switch_refuses_is_not_queued_again():
    assert f"{RefusedError.__module__}.{RefusedError.__qualname__}" == REFUSED
    refused = named(
        "dead", "dead", what=f"rank 0 (node1) raised {REFUSED} at <module> (train.py:8)"
    )
    assert decided(refused).action == "do-not-restart"


def test_an_end_from_outside_and_an_unknown_cause_leave_no_node_out():
    assert decided(named("device", drains_node=True), told=True).action == "same-nodes"
    assert decided().action == "same-nodes"
    assert decided(named("device", "unknown", drains_node=True)).action == "same-nodes"


def earlier(*steps, **changes):
    return [replace(NOW, began=float(i), step=step, **changes) for i, step in enumerate(steps)]


def test_the_same_end_without_progress_is_not_tried_a_fourth_time():
    dead = named("dead", "dead")
    assert decided(dead, earlier=earlier(100, 100)).action == "do-not-restart"
    assert "3 attempts" in decided(dead, earlier=earlier(100, 100)).why
    # One that came further, or ended by something else, or too few: try again.
    assert decided(dead, earlier=earlier(40, 80)).action == "same-nodes"
    assert decided(dead, earlier=earlier(100)).action == "same-nodes"
    assert decided(dead, earlier=earlier(100, 100, signature="oom")).action == "same-nodes"
    # A job that tells no steps may have made some.
    unknown = replace(NOW, step=None)
    assert decided(dead, earlier=earlier(None, None), now=unknown).action == "same-nodes"
    assert ATTEMPTS == 3


def test_a_signature_has_no_ranks_and_no_numbers():
    one = named("dead", "dead", what="rank 2 (node2) raised KeyError: 4711; ranks 0-1 wait for it")
    other = named("dead", "dead", 0, what="rank 0 (node1) raised KeyError: 12; ranks 1-3 wait")
    assert signature(report(one)) == signature(report(other)) == "dead: raised KeyError: #"
    assert signature(report()) == ""


def test_attempts_are_read_again_in_order_and_broken_files_decide_nothing(tmp_path):
    for attempt in (replace(NOW, job="run-8", began=2000.0), NOW):
        note(tmp_path / "history", attempt)
    (tmp_path / "history" / "attempt-1-1.json").write_text('{"schema": "oddrank.attempt/1"}')
    (tmp_path / "history" / "attempt-2-1.json").write_text("[1]")
    (tmp_path / "history" / "attempt-3-1.json").write_text(json.dumps({"schema": "x"}))
    found = attempts(tmp_path / "history")
    assert found == [NOW, replace(NOW, job="run-8", began=2000.0)]
    assert attempts(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    ("suspect", "drains"),
    [
        (Suspect("gpu-stopped", (Process(2, "node2"),), "r", 2), True),
        (Suspect("host-stuck", (Process(2, "node2"),), "held", 2), True),
        (Suspect("host-stuck", (Process(2, "node2"),), "stacks-awaited", 2), False),
        (Suspect("host-stopped", (Process(2, "node2"),), "held", 2), False),
        (Suspect("unreachable", (Process(2, "node2"),), "no-answer", 2), True),
    ],
)
def test_triage_says_which_findings_are_of_a_node(suspect, drains):
    made = finding_of(suspect)
    assert made.drains_node == drains
    listed = exclude.text(report(made), HOSTS).splitlines()
    assert [line for line in listed if line[0] != "#"] == (["node2"] if drains else [])


def test_a_gpu_that_is_broken_drains_its_node_and_an_error_of_the_program_does_not():
    xid = Trouble("xid", "Xid 79", Source("k"), "node2", "GPU 0000:9b:00", "79", fatal=True)
    who = (Process(2, "node2"),)
    assert finding_of(Suspect("device", who, "fault-of-its-gpu", 2, trouble=(xid,))).drains_node
    own = replace(xid, whose="application")
    made = finding_of(Suspect("application", who, "error-of-its-program", 2, trouble=(own,)))
    assert not made.drains_node
