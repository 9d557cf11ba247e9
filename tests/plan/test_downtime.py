"""Intervals of checkpoints, against the chronicles and Daly's paper."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oddrank import plan
from plan.refused import lines

DAY, HOUR, MINUTE = 86400, 3600, 60


def test_dalys_intervals_are_those_of_his_figures():
    """Daly 2006, figures 3 to 5: dumps of 5 minutes."""
    for mtbf, minutes in ((24 * HOUR, 117), (6 * HOUR, 57), (900, 9.1)):
        interval = plan.daly_interval(5 * MINUTE, mtbf) / MINUTE
        assert interval == pytest.approx(minutes, abs=0.5 if minutes > 10 else 0.05)


def test_bloom_saved_a_little_less_often_than_best():
    """40 s for a save, a failure every week, 100 iterations of 105 s between saves."""
    best = plan.young_interval(40, 7 * DAY)
    assert best / 105 == pytest.approx(66, abs=1)
    lost = [plan.lost_share(interval, 40, 7 * DAY) for interval in (best, 100 * 105)]
    assert lost[0] < lost[1] < 1.2 * lost[0]


@given(save=st.floats(0.1, 1e4), ratio=st.floats(4, 1e6), restart=st.floats(0, 1e4))
def test_no_other_interval_loses_much_less_than_dalys(save, ratio, restart):
    mtbf = save * ratio
    best = plan.daly_interval(save, mtbf)
    lost = plan.lost_share(best, save, mtbf, restart)
    for factor in (0.5, 0.8, 0.95, 1.05, 1.25, 2):
        assert lost <= plan.lost_share(factor * best, save, mtbf, restart) + 2e-3


@given(save=st.floats(1e-3, 1e6), mtbf=st.floats(1, 1e9), interval=st.floats(1e-3, 1e9))
def test_the_lost_share_is_a_share(save, mtbf, interval):
    assert 0 <= plan.lost_share(interval, save, mtbf, 60) <= 1


def test_intervals_where_failures_are_rare_and_where_they_come_faster_than_saves():
    young, daly = (f(10, 30 * DAY) for f in (plan.young_interval, plan.daly_interval))
    assert daly == pytest.approx(young, rel=0.01)
    assert plan.daly_interval(100, 40) == 40
    assert plan.lost_share(1e9, 1, 1) == 1.0


def test_what_cannot_be_is_refused(golden):
    golden(lines({
        "save 0": lambda: plan.young_interval(0, 1),
        "save nan": lambda: plan.young_interval(math.nan, 1),
        "restart -1": lambda: plan.lost_share(1, 1, 1, -1),
    }))  # fmt: skip
