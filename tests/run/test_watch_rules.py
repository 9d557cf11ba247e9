"""When a job has died or stands still: the rules, without processes."""

import signal
from dataclasses import replace

import pytest

from oddrank.control.root import RankState
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
    anybody_works,
    is_at_work,
)

STALL = 60.0
TICK = 1.0
QUIET = 5.0


class Job:
    """Ranks whose guards report as real ones do: transitions, and how long nothing has moved."""

    def __init__(self, ranks=4, stall=STALL, joined=True):
        self.now = 1000.0
        self.watch = Watch(self.now, stall)
        contact = "ok" if joined else "never"
        self.states = [
            RankState(rank, contact=contact, host="node1", stage="starting")
            for rank in range(ranks)
        ]
        self.moved = dict.fromkeys(range(ranks), 0.0)

    def set(self, ranks, **fields):
        for rank in ranks if isinstance(ranks, (list, range)) else [ranks]:
            self.states[rank] = replace(self.states[rank], **fields)

    def everyone(self):
        return range(len(self.states))

    def goes_on(self, seconds, ranks=None):
        """Ranks make steps for so long."""
        for rank in self.everyone() if ranks is None else ranks:
            self.set(rank, stage="moving", progress=self.states[rank].progress + 1, quiet_ms=0)
            self.moved[rank] = self.now + seconds
        return self.waits(seconds)

    def stands(self, seconds):
        """No rank makes a step; their guards say so when it has been so long."""
        found = self.waits(QUIET)
        for rank, state in enumerate(self.states):
            if state.stage == "moving" and state.state == "running":
                quiet = int((self.now - self.moved[rank]) * 1000)
                self.set(rank, stage="quiet", quiet_ms=quiet)
        return found + self.waits(seconds - QUIET)

    def waits(self, seconds):
        """Time passes and no guard reports anything."""
        found, end = [], self.now + seconds
        while self.now < end:
            self.now += TICK
            found += self.watch.feed(self.now, self.states)
        return found

    def dies(self, ranks, **how):
        self.set(ranks, state="dead", **how)


@pytest.fixture
def job():
    job = Job()
    assert job.goes_on(30) == []
    return job


def kinds(events):
    return [type(event) for event in events]


def test_a_job_that_goes_on_and_ends_well_has_no_event_but_its_end(job):
    assert job.goes_on(600) == []
    job.dies(job.everyone(), exit_code=0)
    assert job.waits(3) == [AllEnded()]


def test_nothing_moves_for_the_time_of_a_stall(job):
    assert job.stands(STALL - 2) == []
    (stall,) = job.waits(4)
    assert isinstance(stall, Stall)
    assert stall.seconds == pytest.approx(STALL, abs=2 * TICK)
    assert not stall.last


def test_one_rank_that_moves_is_no_stall(job):
    job.stands(10)
    assert job.goes_on(1000, [2]) == []


def pauses(job, seconds, ranks):
    """Ranks wait on purpose for so long; returns what happened."""
    job.set(list(ranks), stage="paused", quiet_ms=0)
    return job.waits(seconds)


def test_a_pause_on_purpose_makes_later_stalls_no_longer(job):
    found = pauses(job, STALL / 2, job.everyone())
    assert found == []
    job.goes_on(20)
    assert job.watch.longest == 0
    (stall,) = job.stands(STALL + 4)
    assert isinstance(stall, Stall)


def test_after_a_pause_the_time_of_a_stall_counts_anew(job):
    pauses(job, STALL - 10, job.everyone())
    job.set(job.everyone(), stage="quiet", quiet_ms=0)
    assert job.waits(STALL - 4) == []
    assert kinds(job.waits(8)) == [Stall]


def test_a_stall_that_is_a_pause_is_excused_and_looked_at_again(job):
    (stall,) = pauses(job, STALL + 4, job.everyone())
    assert not stall.last
    for _ in range(12):  # never the last one, which is told whatever it is
        job.watch.excuse(job.now)
        assert job.waits(STALL - 4) == []
        (stall,) = job.waits(8)
        assert not stall.last
    job.watch.excuse(job.now)
    assert job.goes_on(20) == []
    assert job.watch.longest == 0


def test_a_told_stall_is_over_once_the_rank_comes_to_its_pause(job):
    pauses(job, 1, [0, 1])
    (stall,) = job.stands(STALL + 10)
    assert isinstance(stall, Stall)
    job.watch.tell()
    assert kinds(pauses(job, 3, [2, 3])) == [Moved]


def test_the_end_of_a_paused_rank_is_no_movement(job):
    pauses(job, 10, job.everyone())
    job.dies(2, signal=signal.SIGKILL)
    assert kinds(job.waits(3)) == [Death]
    assert job.watch.goes_well is False


def test_a_job_goes_well_while_a_rank_moves_and_none_has_died(job):
    assert job.watch.goes_well
    job.stands(10)
    assert not job.watch.goes_well
    job.goes_on(5, [1])
    assert job.watch.goes_well
    job.dies(2, signal=signal.SIGKILL)
    job.goes_on(5, [1])
    assert not job.watch.goes_well


def test_a_longer_healthy_pause_of_this_job_makes_its_stalls_longer(job):
    job.stands(30)
    job.goes_on(60)
    assert job.watch.limit == pytest.approx(300, abs=20)
    assert job.stands(250) == []
    assert kinds(job.waits(100)) == [Stall]


def test_a_pause_that_was_told_makes_no_stall_longer(job):
    job.stands(STALL + 2)
    job.watch.tell()
    job.waits(600)
    assert kinds(job.goes_on(5)) == [Moved]
    assert job.watch.limit == STALL


def test_before_the_first_step_a_job_may_take_ten_times_as_long():
    job = Job()
    assert job.waits(9.9 * STALL) == []
    (stall,) = job.waits(10)
    assert stall.last


def test_before_the_first_step_a_rank_that_works_is_never_named():
    """It may be a job without steps, or one whose steps nobody records."""
    stalls = Job().waits(30 * STALL + 2)
    assert kinds(stalls) == [Stall] * 3
    assert {(stall.last, stall.started) for stall in stalls} == {(True, False)}
    told = Job()
    assert kinds(told.waits(10 * STALL + 2)) == [Stall]
    told.watch.tell()
    assert kinds(told.waits(11 * STALL)) == [Still]


def test_ranks_that_never_came_do_not_hide_that_the_others_wait():
    job = Job()
    job.set(3, contact="never")
    assert kinds(job.waits(10 * STALL + 2)) == [Stall]


def test_a_job_of_which_no_rank_has_come_has_no_event():
    assert Job(joined=False).waits(100 * STALL) == []


def test_the_time_until_the_first_step_is_no_pause_of_the_job():
    job = Job()
    job.waits(300)
    job.goes_on(10)
    assert job.watch.limit == STALL


def test_a_stall_in_which_somebody_works_is_looked_at_again_and_at_last_told(job):
    stalls = job.stands(11 * STALL)
    assert kinds(stalls) == [Stall] * 10
    assert [stall.last for stall in stalls] == [False] * 9 + [True]


def test_an_answer_that_is_read_late_makes_no_pause_shorter(job):
    job.stands(STALL - 30)
    job.set(job.everyone(), quiet_ms=int((STALL - 30) * 1000))  # asked, and then judged for 20 s
    job.now += 20
    assert kinds(job.waits(15)) == [Stall]


def test_calls_that_fail_as_a_rank_dies_in_a_stall_are_no_progress(job):
    job.stands(STALL + 1)
    job.watch.tell()
    job.dies(2, signal=signal.SIGKILL)
    job.set(1, stage="moving", progress=job.states[1].progress + 1)
    assert job.waits(TICK) == [Death((2,))]
    assert job.waits(5) == []


def test_a_stall_that_was_told_is_over_when_a_rank_moves(job):
    job.stands(STALL + 1)
    job.watch.tell()
    assert job.waits(30) == []
    (moved,) = job.goes_on(5)
    assert isinstance(moved, Moved)
    assert moved.seconds == pytest.approx(STALL + 31, abs=3 * TICK)
    assert kinds(job.stands(STALL + 2)) == [Stall]


def test_a_rank_that_went_on_and_ended_between_two_looks_has_gone_on(job):
    job.stands(STALL + 1)
    job.watch.tell()
    for rank in job.everyone():
        job.dies(rank, exit_code=0, progress=job.states[rank].progress + 7)
    assert kinds(job.waits(2)) == [Moved, AllEnded]


def test_a_stall_that_was_told_is_told_again_after_ten_minutes_and_then_more_seldom(job):
    job.stands(STALL + 1)
    job.watch.tell()
    still = job.waits(3000)
    assert kinds(still) == [Still] * 3
    assert still[0].seconds == pytest.approx(600, abs=2 * TICK)
    assert still[1].seconds == pytest.approx(1200, abs=4 * TICK)


def test_a_rank_whose_guard_is_lost_is_not_dead(job):
    job.set(2, contact="closed")
    assert job.goes_on(100, [0, 1, 3]) == []
    assert kinds(job.stands(STALL + 2)) == [Stall]


def test_a_job_of_which_no_guard_is_heard_is_not_judged(job):
    job.set(job.everyone(), contact="silent")
    assert job.waits(100 * STALL) == []
    job.set(job.everyone(), contact="closed")
    assert job.waits(1) == [AllEnded()]


@pytest.mark.parametrize(
    "how", [{"signal": signal.SIGKILL}, {"signal": signal.SIGSEGV}, {"exit_code": 3}]
)
def test_the_first_death_is_told_at_once_and_later_ones_follow_from_it(job, how):
    job.dies(2, **how)
    assert job.waits(TICK) == [Death((2,))]
    job.dies([0, 1], signal=signal.SIGTERM)
    assert job.waits(TICK) == [Cascade((0, 1))]
    job.dies(3, exit_code=1)
    assert job.waits(TICK) == [Cascade((3,)), AllEnded()]


def test_of_ranks_seen_dead_together_those_that_were_told_to_end_are_not_first(job):
    job.dies([0, 1], signal=signal.SIGTERM)
    job.dies(2, exit_code=1)
    assert job.waits(TICK) == [Death((2,)), Cascade((0, 1))]


def test_a_rank_that_ends_with_exit_code_0_has_not_died(job):
    job.dies(2, exit_code=0)
    assert job.waits(3) == []
    assert kinds(job.stands(STALL + 10)) == [Stall]


def test_a_job_that_was_told_to_end_has_no_first_death(job):
    job.dies([1], signal=signal.SIGTERM)
    assert job.waits(TICK) == []
    job.dies(job.everyone(), signal=signal.SIGTERM)
    assert job.waits(TICK) == [Death((0, 1, 2, 3), told=True), AllEnded()]


@pytest.mark.parametrize("how", [{"signal": signal.SIGINT}, {"exit_code": 130}])
def test_an_interrupt_is_for_the_whole_job_though_other_ranks_wait_on(job, how):
    job.dies(1, **how)
    assert job.waits(10) == [Death((1,), told=True)]
    assert job.waits(100 * STALL) == []


def test_one_rank_alone_that_was_told_to_end_has_died(job):
    job.dies(1, exit_code=128 + signal.SIGTERM)
    assert job.waits(10) == [Death((1,))]


def test_an_end_that_nobody_saw_is_a_death_only_if_the_others_live_on(job):
    job.dies(1)
    assert job.waits(10) == [Death((1,))]
    other = Job()
    other.goes_on(10)
    other.dies(0)
    other.dies([1, 2, 3], exit_code=0)
    assert other.waits(10) == [AllEnded()]


def test_a_death_is_progress_of_a_kind(job):
    job.stands(STALL - 10)
    job.dies(2, exit_code=0)
    assert job.waits(STALL - 2) == []
    assert kinds(job.waits(4)) == [Stall]


def test_the_time_of_an_end_is_its_guards_if_that_is_no_earlier_fault(job):
    assert job.watch.ended_at(job.states[1]) is None
    job.dies(1, exit_code=1, first_fault_ns=int((job.now + 0.5) * 1e9))
    job.dies(2, exit_code=1, first_fault_ns=int((job.now - 20) * 1e9))  # it was stopped
    job.waits(TICK)
    assert job.watch.ended_at(job.states[1]) == pytest.approx(job.now - 0.5)
    assert job.watch.ended_at(job.states[2]) == job.now


def test_nothing_is_said_after_the_end(job):
    job.dies(job.everyone(), exit_code=0)
    job.waits(1)
    assert job.waits(1000) == []


BEFORE = Work(started=1, seconds=10.0, cpu_seconds=5.0, io_bytes=1000, events=100)


@pytest.mark.parametrize(
    ("changes", "works"),
    [
        ({}, False),
        ({"cpu_seconds": 5.05}, False),
        ({"cpu_seconds": 7.0}, True),
        ({"io_bytes": 5000}, False),  # a heartbeat
        ({"io_bytes": 1 << 20}, True),
        ({"events": 104}, False),
        ({"events": 1000}, True),
        ({"cpu_seconds": 7.0, "started": 2}, False),  # another process
    ],
)
def test_a_process_that_uses_time_moves_bytes_or_runs_lines_is_at_work(changes, works):
    after = replace(BEFORE, seconds=12.0, **changes)
    assert is_at_work(BEFORE, after) is works
    ranks = {0: Awaited(spins=False), 1: Awaited(spins=False)}
    assert anybody_works(ranks, {1: BEFORE}, {0: BEFORE, 1: after}, STALL) is works


def test_a_process_whose_main_thread_has_run_a_line_in_the_stall_is_at_work():
    """As one that evaluates on its GPU: a few lines a second, of which a short look sees none."""

    def works(rests):
        return anybody_works({1: Awaited(True, rests)}, {1: BEFORE}, {1: BEFORE}, STALL)

    assert works(3.0)
    assert not works(STALL - 3.0)
    assert not works(None)


def test_a_process_that_waits_in_a_loop_is_at_work_only_by_what_it_moves():
    loop = replace(BEFORE, seconds=12.0, cpu_seconds=7.0)
    assert not is_at_work(BEFORE, loop, spins=True)
    assert is_at_work(BEFORE, replace(loop, io_bytes=1 << 20), spins=True)


def test_between_two_looks_at_the_same_time_nothing_is_known():
    assert not is_at_work(BEFORE, replace(BEFORE, events=1 << 20))
