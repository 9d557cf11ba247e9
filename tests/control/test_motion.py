"""Who still moved when the deadline came is slow, and not called stuck."""

import pytest

from oddrank.control.culprits import Culprit
from oddrank.control.motion import Motion
from oddrank.control.root import RankState

STUCK = Culprit("no-progress", (1,), "device")
ALL_WAIT = Culprit("all-wait", (), "8 MiB", victims=(0, 1))
KILLED = Culprit("killed", (1,), "device")


def excused(culprit, *, still, since):
    """Whether `culprit` is excused `since` seconds after the last move of all but rank `still`,
    which the others did every second."""
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
        (STUCK, None, 1.0, True),  # no longer than it was still before
        (STUCK, None, 2.0, False),
        (STUCK, 1, 0.1, False),  # the others moved: it did not
        (ALL_WAIT, None, 2.0, True),
        (ALL_WAIT, 1, 2.0, True),
        (ALL_WAIT, None, 6.0, False),
        (KILLED, None, 0.0, False),
    ],
)
def test_only_who_lately_came_further_is_excused(culprit, still, since, result):
    assert excused(culprit, still=still, since=since) is result


def test_a_stay_of_minutes_that_was_overcome_excuses_no_later_one():
    now = [0.0]
    motion = Motion(clock=lambda: now[0])
    for at in (0.0, 120.0):
        now[0] = at
        motion.see([RankState(1, contact="ok", progress=int(at))])
    now[0] = 126.0
    assert motion.excuse([STUCK]) == [STUCK]


def test_nobody_seen_is_nobody_who_moves():
    assert not Motion().goes_on()
    assert Motion().excuse([STUCK, ALL_WAIT]) == [STUCK, ALL_WAIT]
