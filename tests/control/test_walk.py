"""An internal error of the judge ends the walk over stages, and keeps the measurements."""

import json
import subprocess
import sys
from typing import Any

import pytest

from patience import PATIENCE

pytestmark = pytest.mark.needs("torch")
BEGIN = """
import json, sys, time
from oddrank import launch
from oddrank.control import runner
from oddrank.control.stages import Stage
from oddrank.errors import OddrankError
from oddrank.finding import Confidence, Finding, Who
from oddrank.report import Report

where, *more = sys.argv[1:]

def call(name, act):
    "Replaces a stage's plan, judgement or announcement; acts in the second stage."
    def made(*given):
        if where == name and (name != "on_stage" or given[0].name == "second"):
            act()
        return []
    return made

def odd(condition, level):
    return Finding(condition=condition, who=Who("rank", (0,)), cause="x", what="rank 0",
                   stage="first", confidence=Confidence(level, ""))

def run(stages, conclude, **options):
    runner.run(stages, launch.current(), deadline=120, conclude=conclude, **options)
"""


def walk(program: str, *arguments: str) -> Any:
    return subprocess.run(
        [sys.executable, "-c", BEGIN + program, *arguments],
        capture_output=True, text=True, timeout=PATIENCE.seconds(200), check=False,
    )  # fmt: skip


REFUSES = """
def refuse():
    raise OddrankError("no stage is like this: ask for another")

def conclude(outcome):
    print(json.dumps([outcome.run.results, outcome.complete, outcome.why, outcome.not_begun]))
    return 0

first = Stage("first", 60, lambda context: "measured")
second = Stage("second", 60, lambda context: "too", call("judge", refuse), call("plan", refuse))
third = Stage("third", 60, lambda context: "never", keeps_results=False)
unseen = Stage("unseen", 60, lambda context: "never", keeps_results=False, shown=False)
again = Stage("again", 60, lambda context: "never", keeps_results=False, confirms="first")
run([first, second, third, unseen, again], conclude, on_stage=call("on_stage", refuse),
    partial=more == ["partial"])
"""


@pytest.mark.parametrize("where", ["plan", "judge", "on_stage"])
def test_an_error_in_a_stage_ends_the_walk_with_what_was_measured_and_exit_code_2(where):
    done = walk(REFUSES, where, "partial")
    results, complete, why, not_begun = json.loads(done.stdout)
    assert results["first"] == {"0": "measured"}
    assert "third" not in results
    assert not_begun == (["second"] if where == "plan" else []) + ["third"]
    assert (complete, why) == (False, "no stage is like this: ask for another")
    assert done.returncode == 2, done.stderr


def test_a_command_to_which_a_part_is_nothing_says_the_error_alone():
    done = walk(REFUSES, "plan", "whole")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == "oddrank: no stage is like this: ask for another"
    assert "Traceback" not in done.stderr


def test_results_that_are_not_kept_go_with_their_stage():
    results, complete, _, not_begun = json.loads(walk(REFUSES, "nowhere", "partial").stdout)
    assert (complete, not_begun) == (True, [])
    assert list(results) == ["first", "second"]


FAILS = """
def fail():
    {}["nothing"]

def conclude(outcome):
    report = Report.of("test", {}, {}, outcome.findings, complete=outcome.complete)
    print(json.dumps([[f.cause for f in report.findings], list(outcome.came), outcome.skipped]))
    return report.exit_code()

second = Stage("second", 60, lambda context: 1, call("judge", fail), call("plan", fail))
run([
    Stage("first", 60, lambda context: 1, lambda run, results: [odd("slow", "high")]),
    second,
    second,  # as a sweep walks its stages many times: said once
    Stage("confirms", 60, lambda context: 1, confirms="second"),
    Stage("third", 60, lambda context: 1),
], conclude, on_stage=call("on_stage", fail))
"""


@pytest.mark.parametrize("where", ["plan", "judge", "on_stage"])
def test_an_error_of_our_own_in_a_stage_is_a_finding_and_the_walk_goes_on(where):
    done = walk(FAILS, where)
    causes, came, skipped = json.loads(done.stdout)
    assert causes == ["x", "stage-failed"]
    assert came == ["join", "first", *["second"] * (where != "plan"), "third"]
    assert skipped == ({"second": "its plan failed"} if where == "plan" else {})
    assert done.stderr.count("KeyError: 'nothing'") == 1  # the traceback is shown once
    assert done.returncode == 1


ENOUGH = """
def conclude(outcome):
    print(json.dumps([list(outcome.came), outcome.skipped, outcome.complete]))
    return 0

run([
    Stage("apart", 60, lambda context: time.sleep(0.6), counted=False),
    Stage("first", 60, lambda context: time.sleep(0.6), lambda run, results: [odd("odd", "low")]),
    Stage("second", 60, lambda context: 1),
    Stage("confirms", 60, lambda context: 1, confirms="first"),
], conclude, enough=0.5)
"""


def test_once_enough_time_is_spent_only_what_was_found_is_confirmed():
    came, skipped, complete = json.loads(walk(ENOUGH, "nowhere").stdout)
    assert came == ["join", "apart", "first", "confirms"]
    assert skipped == {"second": "no time left"}
    assert not complete  # a requested stage was not tested
