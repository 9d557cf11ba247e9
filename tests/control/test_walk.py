"""An internal error of the judge ends the walk over stages, and keeps the measurements."""

import json
import sys
from types import SimpleNamespace

import pytest

from patience import PATIENCE
from processes import captured
from texts import texts

pytestmark = pytest.mark.needs("torch")
# Two stages have findings; the second one's is cleared by "confirms". An error may be raised in
# "broken": in its plan, its judgement or its announcement.
PROGRAM = texts(__file__)["program"]


def walk(**options):
    """Returns how the walk ended: code, stderr, and what the judge concluded, if it did."""
    done = captured(
        [sys.executable, "-c", PROGRAM, json.dumps(options)], limit=PATIENCE.seconds(200),
    )  # fmt: skip
    said = json.loads(done.stdout or "{}")
    return SimpleNamespace(code=done.returncode, stdout=done.stdout, stderr=done.stderr, **said)


def test_findings_are_kept_or_cleared_and_results_that_are_not_kept_go_with_their_stage():
    over = walk()
    assert (over.complete, over.not_begun, over.skipped) == (True, [], {})
    assert list(over.results) == ["apart", "first", "third", "confirms"]
    assert (over.causes, over.code) == (["slow-apart"], 1)


@pytest.mark.parametrize("where", ["plan", "judge", "on_stage"])
def test_a_refusal_ends_the_walk_with_what_was_measured_and_an_error_of_ours_is_a_finding(where):
    over = walk(where=where, error="refused")
    assert over.results["first"] == {"0": "measured"}
    assert over.not_begun == ["broken"] * 2 * (where == "plan") + ["third"]
    assert (over.complete, over.why) == (False, "no stage is like this: ask for another")
    assert over.code == 2, over.stderr
    over = walk(where=where)
    assert over.causes == ["slow-apart", "stage-failed"]
    came = ["join", "apart", "first", *["broken"] * (where != "plan"), "third", "confirms"]
    assert [name for name in over.came if name != "unseen"] == came
    assert over.skipped.get("broken") == ("its plan failed" if where == "plan" else None)
    assert over.stderr.count("KeyError: 'nothing'") == 1  # the traceback is shown once
    assert (over.complete, over.code) == (False, 1)


def test_a_command_to_which_a_part_is_nothing_says_the_error_alone():
    over = walk(where="plan", error="refused", partial=False)
    assert (over.code, over.stdout) == (2, "")
    assert over.stderr.splitlines()[-1] == "oddrank: no stage is like this: ask for another"
    assert "Traceback" not in over.stderr


def test_once_enough_time_is_spent_only_what_was_found_is_confirmed():
    over = walk(naps=0.6, enough=0.5)
    assert over.came == ["join", "apart", "first", "confirms"]
    assert {over.skipped[name] for name in ("broken", "third")} == {"no time left"}
    assert not over.complete  # a requested stage was not tested
