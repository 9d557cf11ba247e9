"""Pace, throughput and time left follow the last rows, and pauses do not distort them."""

import pytest

from metrics.training_log import judged, line

STEP = "elapsed time per iteration (ms)"


def stamp(seconds):
    hours, rest = divmod(int(seconds), 3600)
    return f"2026-01-{1 + hours // 24:02d} {hours % 24:02d}:{rest // 60:02d}:{rest % 60:02d}"


def figures(steps, pauses=None, **fields):
    """Returns the figures of a log. steps: seconds of each iteration; pauses: before iterations."""
    now, log = 0.0, []
    for n, step in enumerate(steps, 1):
        now += step + (pauses or {}).get(n, 0)
        given = {STEP: 1000 * step, "TFLOPs": 1000 / step, **fields}
        log.append(line(n, 2.5 + n % 3 / 100, time=stamp(now), **given))
    return judged(log).figures()


def by_the_clock(steps, pauses=None):
    """Returns the figures of a log whose lines state no time of an iteration."""
    now, log = 0.0, []
    for n, step in enumerate(steps, 1):
        now += step + (pauses or {}).get(n, 0)
        log.append(f"[{stamp(now)},000] [titan] step: {n}  loss:  2.5  memory: 1GiB(1%)")
    return judged(log).figures()


def test_they_follow_a_job_that_became_slow():
    made = figures([5.0] * 200 + [6.5] * 100)
    assert made["pace"] == 6.5
    assert made["speed"] == pytest.approx(1000 / 6.5)
    assert by_the_clock([5] * 200 + [7] * 100)["pace"] == 7


def test_a_long_pause_distorts_nothing():
    made = figures([5.0] * 200, {120: 2400})
    assert (made["pace"], made["speed"], made["pauses"]) == (5.0, 200.0, 0)
    assert by_the_clock([5] * 200, {190: 2400})["pace"] == 5


def test_pauses_that_repeat_count_for_the_time_that_is_left():
    made = figures([5.0] * 256, {n: 50 for n in range(50, 256, 50)})
    assert made["pace"] == 5
    assert made["pauses"] == pytest.approx(5 * 50 / 255, rel=0.1)


def test_a_clock_of_whole_seconds_is_read_over_a_minute():
    made = by_the_clock([0.3] * 600)
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
