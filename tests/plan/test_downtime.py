"""The end of a training and its checkpoints, against the chronicles and Daly's paper."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oddrank import plan
from plan.refused import lines

DAY, HOUR, MINUTE = 86400, 3600, 60


def test_how_long_bloom_176b_and_tr1_13b_need():
    """(115311-12695)*105/(3600*24)=124.7; 145_000_000/(20*60*60*24.5), and at twice the speed."""
    assert round(plan.run_seconds(115311 - 12695, 105) / DAY, 1) == 124.7
    for per_sample, days in ((32 / 784, 82), (16 / 784, 41)):
        assert int(plan.run_seconds(145e6, per_sample, hours_per_day=20) / DAY) == days


def test_evaluation_costs_bloom_0_7_percent():
    """An evaluation takes 12 minutes every 1000 iterations of 105 s: about 7 iterations."""
    overhead = 12 * MINUTE / (1000 * 105)
    assert overhead == pytest.approx(0.007, abs=0.0002)
    slower = plan.run_seconds(1000, 105, overhead=overhead) - plan.run_seconds(1000, 105)
    assert slower == pytest.approx(12 * MINUTE)


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
        "25 hours": lambda: plan.run_seconds(10, 1, hours_per_day=25),
        "overhead -1": lambda: plan.run_seconds(10, 1, overhead=-1),
        "iterations nan": lambda: plan.run_seconds(math.nan, 1),
        "save 0": lambda: plan.young_interval(0, 1),
        "restart -1": lambda: plan.lost_share(1, 1, 1, -1),
    }))  # fmt: skip
