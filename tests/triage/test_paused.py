"""A pause on purpose explains why its ranks stand, and no other rank."""

from dataclasses import replace

import pytest

from oddrank.pauses import Pause
from oddrank.triage import report
from oddrank.triage.evidence import Notes
from oddrank.triage.facts import (
    Death,
    Frame,
    Paused,
    Process,
    Source,
    Stack,
    State,
    Thread,
    World,
)
from oddrank.triage.verdict import suspects
from oddrank.triage.view import view
from progress import done, inside, judged

NOW = 10_000.0
WHERE = "/shared/run17"
LOCK = (Frame("wait", "/usr/lib/python3.11/threading.py", 327), Frame("train", "train.py", 41))
ALL_REDUCE = (
    Frame("all_reduce", "/x/site-packages/torch/distributed/distributed_c10d.py", 2),
    Frame("train", "train.py", 41),
)


def pause(rank, kind="switch", what=WHERE, seconds=3600.0, seen=NOW, **more):
    made = Pause(kind, seconds, what, NOW - 312)
    return Paused(Process(rank), made, Source(f"rank{rank}"), seen, **more)


def at_breakpoint(debugged, *others):
    return [
        pause(debugged, "breakpoint", "train.py:41"),
        *(pause(rank, "waits", str(debugged)) for rank in others),
    ]


def stopped(rank):
    return State(Process(rank), "stopped", Source("states"), NOW)


def stack(rank, frames):
    return Stack(frames, (Thread(Process(rank), "MainThread", rank, "asleep", time=NOW),))


def told(*facts):
    """Returns verdict and summary of the report."""
    made = report.made(report.judge([World(4, Source("rank0")), *facts], [], Notes()))
    return made.verdict, made.summary


PAUSED_4 = [pause(rank) for rank in range(4)]
DONE_4 = [done(rank, 7, backend="gloo") for rank in range(4)]


def test_all_ranks_that_a_switch_has_paused_are_healthy():
    assert told(*DONE_4, *PAUSED_4) == (
        "healthy",
        f"all ranks are paused by the switch {WHERE}, on purpose, for 5 min;"
        f" to go on: oddrank switch resume {WHERE}",
    )


def test_some_of_them_are_told_by_their_ranks_and_later_with_the_time():
    gone = [replace(one, gone=True) for one in PAUSED_4[:2]]
    verdict, summary = told(*gone)
    assert verdict == "healthy"
    assert summary.startswith(
        f"ranks 0-1 are paused by the switch {WHERE}, on purpose, since 1970-01-01 02:"
    )


def test_a_rank_that_has_not_come_to_the_pause_is_told():
    assert told(*DONE_4, *PAUSED_4[1:]) == (
        "healthy",
        f"ranks 1-3 are paused by the switch {WHERE}, on purpose, for 5 min;"
        f" rank 0 has not come to the pause; to go on: oddrank switch resume {WHERE}",
    )


def test_ranks_wait_for_one_in_a_breakpoint():
    assert told(*DONE_4, *at_breakpoint(3, 0, 1, 2)) == (
        "healthy",
        "rank 3 stands in a breakpoint (train.py:41), on purpose, for 5 min; ranks 0-2 wait for it",
    )


def test_ranks_that_wait_in_a_call_for_one_in_a_breakpoint_are_not_stuck():
    waiting = [inside(rank, 8) for rank in range(3)]
    assert judged(*waiting, done(3, 7)) == [("not-entered", (3,), 2)]
    assert judged(*waiting, done(3, 7), *at_breakpoint(3)) == [("paused", (3,), 2)]


def test_another_rank_that_they_wait_for_is_named_alone():
    waiting = [inside(0, 8), inside(1, 8), done(2, 7), done(3, 7)]
    assert judged(*waiting) == [("not-entered", (2, 3), 2)]
    assert judged(*waiting, *at_breakpoint(3)) == [("not-entered", (2,), 2)]


def test_a_rank_that_is_stopped_while_the_others_are_paused_is_named():
    (found,) = suspects(view([*DONE_4, *PAUSED_4[:3], stopped(3)]))
    assert (found.cause, found.processes, found.waiting) == ("host-stopped", (Process(3),), ())
    assert f"paused by the switch {WHERE}: ranks 0-2" in [p.text for p in found.support]


def test_a_rank_that_is_stopped_in_its_pause_is_named():
    assert judged(*DONE_4, *PAUSED_4, stopped(3)) == [("host-stopped", (3,), 1)]


def test_a_rank_that_hangs_elsewhere_while_the_others_are_paused_is_named():
    stacks = [stack(rank, LOCK) for rank in range(3)]
    hangs = stack(3, (Frame("acquire", "/usr/lib/python3.11/threading.py", 9), *LOCK[1:]))
    (found,) = suspects(view([*stacks, hangs, *PAUSED_4[:3]]))
    assert (found.cause, found.processes, found.waiting) == ("host-stuck", (Process(3),), ())
    assert found.certainty == 1
    assert "ranks 0-2 in a pause on purpose at train (train.py:41)" in [
        p.text for p in found.support
    ]


def test_a_rank_that_may_run_while_the_others_are_paused_is_told_without_a_name():
    stacks = [stack(rank, LOCK) for rank in range(3)]
    facts = [*stacks, stack(3, LOCK[1:]), *PAUSED_4[:3]]
    assert judged(*facts) == [("host-stuck", (3,), 0)]
    verdict, summary = told(*facts)
    assert verdict == "unknown"
    assert summary.startswith("rank 3 may be stuck")


def test_a_rank_that_does_not_get_out_of_the_pause_by_the_switch_is_named():
    # All ranks leave it together: those who wait in a call have left it.
    left = [inside(rank, 8) for rank in range(3)]
    assert judged(*left, done(3, 7), pause(3)) == [("not-entered", (3,), 2)]
    # The same holds for a breakpoint that is over.
    assert judged(*left, done(3, 7), pause(3, "waits", "0")) == [("not-entered", (3,), 2)]


def test_a_pause_beyond_its_deadline_explains_nothing():
    waiting = [inside(rank, 8) for rank in range(3)]
    late = pause(3, "breakpoint", "train.py:41", seconds=100.0)
    assert judged(*waiting, done(3, 7), late) == [("not-entered", (3,), 2)]


def test_a_rank_that_died_in_its_pause_is_dead():
    killed = Death(Process(3), "signal", Source("states"), NOW, signal=9)
    assert [s.cause for s in suspects(view([*DONE_4, *PAUSED_4, killed]))] == ["dead"]


@pytest.mark.parametrize(
    ("pauses", "where"),
    [(PAUSED_4, "in a switch pause"), (at_breakpoint(3, 0, 1, 2), "in a breakpoint"),
     (at_breakpoint(0, 1, 2, 3), "while it waited for a rank in a breakpoint")],
)  # fmt: skip
def test_a_rank_that_was_killed_in_its_pause_is_told_so(pauses, where):
    killed = Death(Process(3), "signal", Source("states"), NOW, signal=9)
    summary = told(*DONE_4, *(stack(rank, LOCK) for rank in range(4)), *pauses, killed)[1]
    assert f"rank 3 was killed with SIGKILL {where}" in summary
    assert "threading.py" not in summary


@pytest.mark.parametrize("frames", [LOCK, ALL_REDUCE])
def test_paused_ranks_are_no_suspects_wherever_they_stand(frames):
    stacks = [stack(rank, frames) for rank in range(3)]
    everyone = at_breakpoint(3, 0, 1, 2)
    assert judged(*stacks, stack(3, LOCK), *everyone) == [("paused", (3, 0, 1, 2), 2)]


def test_several_breakpoints_and_waiting_ranks_alone_are_told():
    many = [pause(rank, "breakpoint", f"train.py:{rank}") for rank in range(5)]
    summary = told(*many)[1]
    assert summary.startswith("rank 0 stands in a breakpoint (train.py:0), rank 1 stands in ")
    assert " and more, on purpose" in summary
    assert told(pause(0, "waits", "3"))[1] == "rank 0 waits for rank 3 at a breakpoint"


def test_what_a_hostile_record_says_is_quoted():
    assert told(pause(0, what="x; rm -rf /"))[1].endswith("oddrank switch resume 'x; rm -rf /'")
