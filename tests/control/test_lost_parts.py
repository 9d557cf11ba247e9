"""Without judge, guard or launcher nothing hangs, and the loss is reported once."""

import os
import signal
from contextlib import suppress

import pytest


def partial_views(ranks):
    return [line for line in ranks.words().splitlines() if "partial view" in line]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_without_its_judge_each_node_says_what_it_sees(job, number):
    ranks = job(4, nodes=2, sleep=2, at="second", deadline=14, stage=13)
    ranks.in_stage("second", 0, 1, 3)
    ranks.signal(ranks.workers[3].pid, signal.SIGSTOP)
    ranks.signal(ranks.judge(), number)
    codes = ranks.codes()
    views = sorted(partial_views(ranks))
    assert len(views) == 2, ranks.words()
    assert views[0].startswith("oddrank: partial view from host0: lost the root")
    assert views[1].startswith("oddrank: partial view from host1: lost the root")
    assert "in stage second; ranks here: 0-1 running" in views[0]
    assert "in stage second; ranks here: 2 running, 3 stopped" in views[1]
    assert codes == {0: 1, 1: 1, 2: 1, 3: -signal.SIGKILL}


def test_ranks_whose_root_never_started_say_so_once_per_node(job):
    ranks = job(4, nodes=2, never=(0,), environ={"TEST_JOIN": "1.5"})
    codes = ranks.codes()
    assert set(codes.values()) == {1}
    (view,) = partial_views(ranks)  # host0 is the root's node and prints none
    assert view.startswith("oddrank: partial view from host1: never reached the root")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_lost_guard_is_told_as_such_and_its_worker_ends(job, rank, number):
    ranks = job(3, sleep=2, at="second", deadline=14, stage=13)
    guard = ranks.guard(rank)
    ranks.in_stage("second", 0, 1)
    ranks.signal(guard, number)
    ranks.assert_gone()
    wanted = "closed" if number == signal.SIGKILL else "silent"
    assert ranks.faults()[rank] == wanted
    assert ranks.verdict()["reason"] == "fault"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_launchers_signal_is_an_event_and_not_an_end(job, number):
    ranks = job(3, gil=1, at="second")
    ranks.in_stage("second", 0, 2)
    for rank in (0, 1):
        ranks.signal(ranks.workers[rank].pid, number)
    codes = ranks.codes()
    verdict = ranks.verdict()
    assert (verdict["stage"], verdict["reason"]) == ("second", "terminated")
    assert [verdict["states"][rank]["sigterm"] for rank in range(3)] == [number, number, 0]
    assert not ranks.faults()
    assert set(codes.values()) == {1}


def test_a_death_explains_the_signals_that_follow_it(job):
    ranks = job(3, kill=1, at="second")
    ranks.guard(1)
    # WNOWAIT does not reap: a kernel that reports the exit code once must report it to the guard.
    os.waitid(os.P_PID, ranks.workers[1].pid, os.WEXITED | os.WNOWAIT)
    ranks.signal(ranks.workers[2].pid, signal.SIGTERM)  # as torchrun does
    ranks.assert_gone()
    assert ranks.verdict()["reason"] == "fault"
    assert ranks.faults() == {1: "signal 9"}


def test_everything_stopped_is_gone_by_the_deadline_all_the_same(job):
    ranks = job(3, sleep=1, at="second", deadline=8, stage=7.5)
    ranks.in_stage("second", 0, 2)
    for pid in ranks.processes():
        with suppress(ProcessLookupError):
            ranks.signal(pid, signal.SIGSTOP)
    ranks.assert_gone()


def test_a_whole_node_that_is_lost_shows_in_all_its_ranks(job):
    ranks = job(4, nodes=2, sleep=0, at="second", deadline=14, stage=13)
    guards = [ranks.guard(2), ranks.guard(3)]
    ranks.in_stage("second", 1, 2, 3)
    for pid in [*guards, ranks.workers[2].pid, ranks.workers[3].pid]:
        ranks.signal(pid, signal.SIGSTOP)
    verdict = ranks.verdict()
    assert verdict["reason"] == "fault"
    assert ranks.faults() == {2: "silent", 3: "silent"}
    ranks.assert_gone()
