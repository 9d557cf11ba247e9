"""A rank that still moves at the deadline is slow, not stuck."""

import pytest

from oddrank.control.culprits import Culprit, Motion
from oddrank.control.root import RankState

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
