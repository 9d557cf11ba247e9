"""Clock offsets to the root: real exchanges with a known true offset, and disturbances."""

import json
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from control import wire_peer as wire
from control.wire_peer import Hub

CLOCK = {"TEST_CLOCK": "1.0"}
AFTER = {"TEST_CLOCK_AFTER": "stopped"}
AHEAD = 12_345  # seconds


def clock(ranks, rank: int):
    """Returns what rank_program's compare_clocks wrote: (with the shortcut, without it)."""
    short, _, measured, _ = json.loads(ranks.wait_for(ranks.folder / f"clock{rank}").read_text())
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


@contextmanager
def relay(port: int, seconds: float) -> Iterator[int]:
    """Relays to `port` and delays the replies by `seconds`; yields the relay's port."""

    def carry(source: socket.socket, sink: socket.socket, delay: float) -> None:
        with suppress(OSError):  # at the end of the job either side may close first
            while data := source.recv(65536):
                time.sleep(delay)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)

    def serve(near: socket.socket) -> None:
        with near, suppress(OSError), socket.create_connection(("127.0.0.1", port)) as far:
            back = threading.Thread(target=carry, args=(far, near, seconds))
            back.start()
            carry(near, far, 0)
            back.join()

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=listener.accept()[:1]).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def test_a_way_that_is_slower_back_than_there_stays_within_the_error(job, port):
    with relay(port, 0.03) as detour:
        ways = {r: {"ODDRANK_CONTROL_ADDR": f"127.0.0.1:{way}#a-secret-word"}
                for r, way in enumerate((port, detour))}  # fmt: skip
        ranks = job(2, environ=CLOCK, environ_of=ways)
        assert set(ranks.codes().values()) == {0}
        offset, error = clock(ranks, 1)[1]
    assert error >= 15_000_000
    assert error / 2 < -offset <= error  # the reading is early by nearly half the round trip


def clock_beside_one_stopped(ranks, rank: int, stopped: int):
    """Returns what compare_clocks of `rank` wrote once the process `stopped` is stopped."""
    ranks.in_stage("first", 0, 1)
    ranks.signal(stopped, signal.SIGSTOP)
    (ranks.folder / "stopped").touch()
    return json.loads(ranks.wait_for(ranks.folder / f"clock{rank}").read_text())


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
