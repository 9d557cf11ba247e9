"""Without judge, guard or launcher nothing hangs, and the loss is reported once."""

import os
import signal
import time
from contextlib import suppress
from itertools import pairwise

import pytest

from patience import until

# The job lasts until its deadline.
LASTS = {"at": "second", "deadline": 14, "stage": 13}


def partial_views(ranks):
    views = [line for line in ranks.stderr.read_text().splitlines() if "partial view" in line]
    return sorted(view.partition(" from ")[2] for view in views)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_without_its_judge_each_node_says_what_it_sees(job, number):
    ranks = job(4, nodes=2, sleep=2, **LASTS)
    ranks.in_stage("second", 0, 1, 3)
    ranks.signal(ranks.workers[3].pid, signal.SIGSTOP)
    ranks.signal(ranks.judge(), number)
    assert ranks.codes() == {0: 1, 1: 1, 2: 1, 3: -signal.SIGKILL}
    first, second = partial_views(ranks)
    assert first.startswith("host0: lost the root")
    assert "in stage second; ranks here: 0-1 running" in first
    assert second.startswith("host1: lost the root")
    assert "in stage second; ranks here: 2 running, 3 stopped" in second


def test_ranks_whose_root_never_started_say_so_once_per_node(job):
    ranks = job(4, nodes=2, never=(0,), environ={"TEST_JOIN": "1.5"})
    assert set(ranks.codes().values()) == {1}
    (view,) = partial_views(ranks)  # host0 is the root's node and prints none
    assert view.startswith("host1: never reached the root")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_lost_guard_is_told_as_such_and_its_worker_ends(job, rank, number):
    ranks = job(3, sleep=2, **LASTS)
    guard = ranks.guard(rank)
    ranks.in_stage("second", 0, 1)
    ranks.signal(guard, number)
    ranks.codes()
    assert ranks.faults()[rank] == ("closed" if number == signal.SIGKILL else "silent")
    assert ranks.ended() == ("second", "fault")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_launchers_signal_is_an_event_and_not_an_end(job, number):
    ranks = job(3, gil=1, at="second")
    ranks.in_stage("second", 0, 2)
    for rank in (0, 1):
        ranks.signal(ranks.workers[rank].pid, number)
    assert set(ranks.codes().values()) == {1}
    assert ranks.ended() == ("second", "terminated")
    states = ranks.verdict()["states"]
    assert [states[rank]["sigterm"] for rank in range(3)] == [number, number, 0]
    assert not ranks.faults()


def test_a_death_explains_the_signals_that_follow_it(job):
    ranks = job(3, kill=1, at="second")
    ranks.guard(1)
    # WNOWAIT does not reap: a kernel that reports the exit code once must report it to the guard.
    os.waitid(os.P_PID, ranks.workers[1].pid, os.WEXITED | os.WNOWAIT)
    ranks.signal(ranks.workers[2].pid, signal.SIGTERM)  # as torchrun does
    ranks.codes()
    assert ranks.ended() == ("second", "fault")
    assert ranks.faults() == {1: "signal 9"}


def test_everything_stopped_is_gone_2_s_after_the_guards_deadline(job):
    ranks = job(3, sleep=1, at="second", deadline=14, stage=13.5)
    deadline = max(ranks.guards_deadline(rank) for rank in range(3))
    ranks.in_stage("second", 0, 2)
    for pid in ranks.processes():
        with suppress(ProcessLookupError):
            ranks.signal(pid, signal.SIGSTOP)
    looks = [time.monotonic()]

    def are_gone():
        looks.append(time.monotonic())  # what is seen is no older
        return not ranks.processes()

    until(are_gone)
    seen = looks[-2]
    paused = max(after - before for before, after in pairwise(looks))
    assert deadline < seen < deadline + 2 + paused  # on a busy machine all are late
    assert set(ranks.codes().values()) == {-signal.SIGKILL}
