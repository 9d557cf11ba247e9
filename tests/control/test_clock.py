"""Clock offsets to the root: real exchanges with a known true offset, and disturbances."""

import json
import os
import signal
import struct
import time

import pytest

from control import wire_peer as wire
from control.wire_peer import Hub

CLOCK = {"TEST_CLOCK": "20"}
AFTER = {"TEST_CLOCK_AFTER": "stopped"}
AHEAD = 12_345  # seconds


def clock(ranks, rank: int):
    """Returns what rank_program's compare_clocks wrote: (with the shortcut, without it)."""
    short, _, measured, _ = json.loads(ranks.wait_for(f"clock{rank}"))
    return short, measured


def test_on_the_roots_own_host_there_is_nothing_to_add(job):
    ranks = job(3, environ=CLOCK)
    assert set(ranks.codes().values()) == {0}
    for rank in range(3):
        short, (offset, error) = clock(ranks, rank)
        assert short == [0, 0]
        assert 0 < error >= abs(offset)  # the true offset is 0


@pytest.mark.needs("time-namespace")
def test_another_clock_is_found_within_the_error(job):
    elsewhere = ["unshare", "--time", "--fork", "--monotonic", str(AHEAD)]
    ranks = job(2, environ=CLOCK, prefix_of={1: elsewhere})
    assert set(ranks.codes().values()) == {0}
    assert clock(ranks, 0)[0] == [0, 0]
    for offset, error in clock(ranks, 1):
        assert abs(offset + AHEAD * 1_000_000_000) <= error < 1e9


def clock_beside_one_stopped(ranks, rank: int, stopped: int):
    """Returns what compare_clocks of `rank` wrote once the process `stopped` is stopped."""
    ranks.in_stage("first", 0, 1)
    ranks.signal(stopped, signal.SIGSTOP)
    (ranks.folder / "stopped").touch()
    return json.loads(ranks.wait_for(f"clock{rank}"))


def test_a_root_that_is_stopped_is_told_in_time(job):
    # Both answers come before the guards give the root up, after 5 s.
    ranks = job(2, environ={"TEST_CLOCK": "0.6"}, environ_of={0: AFTER})
    judge = ranks.judge()
    said = clock_beside_one_stopped(ranks, 0, judge)
    why = "cannot compare this rank's clock with the root's: the root is silent"
    assert said[::2] == [why, why]


def test_a_guard_that_is_stopped_is_told_in_time(job):
    ranks = job(2, environ={"TEST_CLOCK": "0.5"}, environ_of={1: AFTER}, deadline=14, stage=13)
    guard = ranks.guard(1)
    said, seconds, *_ = clock_beside_one_stopped(ranks, 1, guard)
    assert seconds < 14 / 2  # it does not wait for the deadline
    assert f"no answer from this rank's guard (pid {guard}) in time" in said


def test_the_hub_answers_each_question_with_its_clock_at_that_moment():
    hub = Hub(2)
    peer = hub.join(0)
    for number in (1, 7, 0xFFFFFFFF):
        before = time.monotonic_ns()
        answer = peer.send(wire.ask_clock(number)).expect(wire.CLOCK)
        said, reading, size = struct.unpack_from("<IqI", answer)
        assert said == number
        assert before <= reading <= time.monotonic_ns()
        boot, _, space = answer[16:].decode().partition(" ")
        assert len(answer) == 16 + size
        with open("/proc/sys/kernel/random/boot_id") as file:
            assert boot == file.read().strip()
        assert space == os.readlink("/proc/self/ns/time")
