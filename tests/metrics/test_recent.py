"""Pace, throughput and time left follow the last rows, and pauses do not distort them."""

import pytest

from metrics.training_log import judged, line, stamp

STEP = "elapsed time per iteration (ms)"


def figures(steps, pauses=None, clock=False):
    """Returns the figures of a log. steps: seconds of each iteration; pauses: before iterations.

    clock: its lines state no time of an iteration.
    """
    now, log = 0.0, []
    for n, step in enumerate(steps, 1):
        now += step + (pauses or {}).get(n, 0)
        given = {STEP: 1000 * step, "TFLOPs": 1000 / step}
        stated = line(n, 2.5 + n % 3 / 100, time=stamp(now), **given)
        bare = f"[{stamp(now)},000] [titan] step: {n}  loss:  2.5  memory: 1GiB(1%)"
        log.append(bare if clock else stated)
    return judged(log).figures()


def test_they_follow_a_job_that_became_slow():
    made = figures([5.0] * 200 + [6.5] * 100)
    assert (made["pace"], made["speed"]) == (6.5, pytest.approx(1000 / 6.5))
    assert figures([5] * 200 + [7] * 100, clock=True)["pace"] == 7


def test_pauses_distort_nothing_and_count_for_the_time_that_is_left_if_they_repeat():
    made = figures([5.0] * 200, {120: 2400})
    assert (made["pace"], made["speed"], made["pauses"]) == (5.0, 200.0, 0)
    assert figures([5] * 200, {190: 2400}, clock=True)["pace"] == 5
    made = figures([5.0] * 256, {n: 50 for n in range(50, 256, 50)})
    assert (made["pace"], made["pauses"]) == (5, pytest.approx(5 * 50 / 255, rel=0.1))


def test_a_clock_of_whole_seconds_is_read_over_a_minute():
    made = figures([0.3] * 600, clock=True)
    assert made["pace"] == pytest.approx(0.3, rel=0.05)
    assert made["speed"] == pytest.approx(1 / 0.3, rel=0.05)


def test_few_rows_are_shown_and_the_warm_up_is_left_out():
    assert figures([60.0])["pace"] == 60
    made = figures([60.0, 5.0, 5.0])
    assert (made["pace"], made["speed"]) == (5, 200)


def test_the_rows_of_a_new_start_count_by_themselves():
    before = [line(n, **{STEP: 5000.0}) for n in range(1, 100)]
    after = [line(n, 2.6, **{STEP: step}) for n, step in enumerate([60e3, 8e3, 8e3, 8e3], 50)]
    assert judged(before + after).figures()["pace"] == 8
