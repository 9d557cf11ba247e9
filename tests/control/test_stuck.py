"""The stage's deadline comes and no process has ended: who is stuck, and who is only slow."""

import pytest

from control.test_culprits import RAISED, blamed, rank
from oddrank.control.culprits import Culprit, Motion
from oddrank.control.root import RankState


def test_the_rank_that_waits_for_nobody_and_came_least_far_is_stuck():
    assert blamed(rank(2, progress=7), reason="deadline") == [("no-progress", (2,))]


def test_a_slower_rank_that_waits_is_not_blamed_for_the_one_that_does_not():
    late = rank(1, progress=7, waiting=True)
    assert blamed(rank(2, progress=7), late, reason="deadline") == [("no-progress", (2,))]


def test_of_two_that_wait_for_nobody_the_one_behind_is_named():
    ahead, behind = rank(1, progress=9), rank(3, progress=4)
    assert blamed(ahead, behind, reason="deadline") == [("no-progress", (3,))]
    assert blamed(rank(1, progress=4), behind, reason="deadline") == [
        ("no-progress", (1,)),
        ("no-progress", (3,)),
    ]


def test_the_only_rank_without_a_result_is_stuck():
    assert blamed(rank(2), through=(0, 1, 3), reason="deadline") == [("no-progress", (2,))]


def test_all_waiting_for_each_other_is_unknown_and_names_nobody():
    assert blamed(reason="deadline") == [("all-wait", ())]


def test_a_waiter_behind_everybody_who_works_is_unknown_and_names_nobody():
    behind = rank(1, progress=5, waiting=True)
    assert blamed(rank(2, progress=8), behind, reason="deadline") == [("all-wait", ())]


def test_ranks_that_all_raise_the_same_differ_in_nothing_and_need_no_deadline():
    all_of_them = [rank(r, waiting=True, **RAISED) for r in range(4)]
    assert blamed(*all_of_them) == [("all-raised", ())]
    lost = [rank(r, waiting=True, failed=f"connection to {r} lost") for r in range(4)]
    assert blamed(*lost) == []
    assert blamed(*all_of_them[:3]) == []


def test_a_minority_in_another_place_is_not_blamed_for_being_few():
    """Three ranks hang in step 7, one waits in step 9: the one is ahead."""
    assert blamed(rank(2, progress=9, waiting=True), reason="deadline") == [("all-wait", ())]


def test_nobody_is_named_before_the_deadline_for_being_behind():
    assert blamed(rank(2, progress=7), rank(1, waiting=True, **RAISED)) == []


def test_a_stuck_rank_explains_those_that_gave_up_waiting_for_it():
    gave_up = [rank(r, waiting=True, **RAISED) for r in (0, 1, 3)]
    assert blamed(rank(2, progress=7), *gave_up, reason="deadline") == [("no-progress", (2,))]


def test_the_only_one_that_left_the_collective_is_waited_for_and_waits_for_nobody():
    left = rank(2, waiting=True, **RAISED)
    assert blamed(left) == []  # another rank may still explain it
    assert blamed(left, reason="deadline") == [("raised", (2,))]


def test_several_that_left_the_collective_for_no_visible_reason_name_nobody():
    left = [rank(r, waiting=True, **RAISED) for r in (1, 2)]
    assert blamed(*left, reason="deadline") == [("all-wait", ())]


def test_uninterruptible_counts_only_at_the_deadline():
    assert blamed(rank(2, state="uninterruptible")) == []
    stuck = rank(2, state="uninterruptible", waiting=True)
    assert blamed(stuck, reason="deadline") == [("uninterruptible", (2,))]
    reading = rank(2, state="uninterruptible")
    assert blamed(reading, through=(0, 1, 2, 3), reason="deadline") == []


# A rank that still moves at the deadline is slow, not stuck.

STUCK = Culprit("no-progress", (1,), "device")
ALL_WAIT = Culprit("all-wait", (), "8 MiB", victims=(0, 1))
KILLED = Culprit("killed", (1,), "device")


def excused(culprit, *, still, since):
    """Returns whether `culprit` is excused `since` seconds after the last move.

    All ranks but `still` moved every second.
    """
    now = [100.0]
    motion = Motion(clock=lambda: now[0])
    for second in range(8):
        now[0] += 1
        motion.see(
            RankState(rank, contact="ok", progress=1 if rank == still else second)
            for rank in range(2)
        )
    now[0] += since
    return motion.excuse([culprit]) == []


@pytest.mark.parametrize(
    ("culprit", "still", "since", "result"),
    [
        (STUCK, None, 0.1, True),
        (STUCK, None, 1.0, True),  # it stood as long before
        (STUCK, None, 2.0, False),
        (STUCK, 1, 0.1, False),  # the others moved, it did not
        (ALL_WAIT, None, 2.0, True),
        (ALL_WAIT, 1, 2.0, True),
        (ALL_WAIT, None, 6.0, False),
        (KILLED, None, 0.0, False),
    ],
)
def test_only_who_lately_came_further_is_excused(culprit, still, since, result):
    assert excused(culprit, still=still, since=since) is result


@pytest.mark.parametrize(
    ("moves", "now", "result"),
    [
        ((0, 8), 12, False),  # one long pause may be the import of torch
        ((0, 8, 16), 20, True),
        ((0, 120, 240), 246, False),  # earlier pauses were longer, but 6 s are too long
    ],
)
def test_who_was_as_still_twice_before_is_excused(moves, now, result):
    clock = [0.0]
    motion = Motion(clock=lambda: clock[0])
    for at in moves:
        clock[0] = at
        motion.see([RankState(1, contact="ok", progress=at)])
    clock[0] = now
    assert (motion.excuse([STUCK]) == []) is result


def test_nobody_seen_is_nobody_who_moves():
    assert not Motion().goes_on()
    assert Motion().excuse([STUCK, ALL_WAIT]) == [STUCK, ALL_WAIT]
