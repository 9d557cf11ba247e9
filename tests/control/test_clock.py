"""Clock offsets to the root: real exchanges with a known true offset, and disturbances."""

import json
import os
import select
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
        assert error > 0
        assert abs(offset) <= error  # the true offset is 0


@pytest.mark.needs("time-namespace")
def test_another_clock_is_found_within_the_error(job):
    elsewhere = ["unshare", "--time", "--fork", "--monotonic", str(AHEAD)]
    ranks = job(2, environ=CLOCK, prefix_of={1: elsewhere})
    assert set(ranks.codes().values()) == {0}
    assert clock(ranks, 0)[0] == [0, 0]
    for offset, error in clock(ranks, 1):
        assert 0 < error < 1e9
        assert abs(offset + AHEAD * 1_000_000_000) <= error


@contextmanager
def relay(port: int, seconds: float) -> Iterator[int]:
    """Relays to `port` and delays the replies by `seconds`; yields the relay's port."""
    listener = socket.create_server(("127.0.0.1", 0))
    stop, wake = socket.socketpair()
    carriers: list[threading.Thread] = []

    def run() -> None:
        while True:
            if stop in select.select([listener, stop], [], [])[0]:
                return
            near = listener.accept()[0]
            carriers.append(threading.Thread(target=carry, args=(near,)))
            carriers[-1].start()

    def carry(near: socket.socket) -> None:
        # At the end of the job either side may close first.
        with near, suppress(OSError), socket.create_connection(("127.0.0.1", port)) as far:
            late: list[tuple[float, bytes]] = []
            while True:
                left = max(0.0, late[0][0] - time.monotonic()) if late else None
                ready = select.select([near, far, stop], [], [], left)[0]
                while late and late[0][0] <= time.monotonic():
                    near.sendall(late.pop(0)[1])
                for one in ready:
                    data = b"" if one is stop else one.recv(65536)
                    if not data:
                        return
                    if one is near:
                        far.sendall(data)
                    else:
                        late.append((time.monotonic() + seconds, data))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        wake.close()
        for one in (thread, *carriers):
            one.join()
        stop.close()
        listener.close()


def test_a_way_that_is_slower_back_than_there_stays_within_the_error(job, port):
    with relay(port, 0.03) as detour:
        address = {r: f"127.0.0.1:{port if r == 0 else detour}#a-secret-word" for r in range(2)}
        environ_of = {rank: {"ODDRANK_CONTROL_ADDR": address[rank]} for rank in range(2)}
        ranks = job(2, environ=CLOCK, environ_of=environ_of)
        assert set(ranks.codes().values()) == {0}
        offset, error = clock(ranks, 1)[1]
    assert error >= 15_000_000
    assert abs(offset) <= error
    assert -offset > error / 2  # the reading is early by nearly half the round trip


def test_a_root_that_is_stopped_is_told_in_time(job):
    # Both answers come before the guards give the root up, after 5 s.
    ranks = job(2, environ={"TEST_CLOCK": "1.5"}, environ_of={0: AFTER})
    ranks.in_stage("first", 0, 1)
    judge = ranks.judge()
    ranks.signal(judge, signal.SIGSTOP)
    (ranks.folder / "stopped").touch()
    said = json.loads(ranks.wait_for(ranks.folder / "clock0").read_text())
    why = "cannot compare this rank's clock with the root's: the root is silent"
    assert said[::2] == [why, why]
    ranks.signal(judge, signal.SIGKILL)
    ranks.codes()


def test_a_guard_that_is_stopped_is_told_in_time(job):
    ranks = job(2, environ={"TEST_CLOCK": "0.5"}, environ_of={1: AFTER}, deadline=14, stage=13)
    ranks.in_stage("first", 0, 1)
    guard = ranks.guard(1)
    ranks.signal(guard, signal.SIGSTOP)
    (ranks.folder / "stopped").touch()
    said, seconds, *_ = json.loads(ranks.wait_for(ranks.folder / "clock1").read_text())
    assert seconds < 14 / 2  # it does not wait for the deadline
    assert f"no answer from this rank's guard (pid {guard}) in time" in said
    ranks.codes()


def ask(number: int) -> bytes:
    return wire.frame(wire.ASK_CLOCK, struct.pack("<I", number))


def test_the_hub_answers_each_question_with_its_clock_at_that_moment():
    hub = Hub(2)
    peer = hub.join(0)
    for number in (1, 7, 0xFFFFFFFF):
        before = time.monotonic_ns()
        answer = peer.send(ask(number)).expect(wire.CLOCK)
        said, reading, size = struct.unpack_from("<IqI", answer)
        assert said == number
        assert before <= reading <= time.monotonic_ns()
        boot, _, space = answer[16:].decode().partition(" ")
        assert len(answer) == 16 + size
        with open("/proc/sys/kernel/random/boot_id") as file:
            assert boot == file.read().strip()
        assert space == os.readlink("/proc/self/ns/time")


def test_a_malformed_question_costs_its_sender_and_nobody_else():
    hub = Hub(3)
    good = hub.join(0)
    broken = [hub.join(1), hub.join(2)]
    broken[0].send(wire.frame(wire.ASK_CLOCK, b"\1\0\0"))
    broken[1].send(wire.frame(wire.CLOCK, bytes(40)))  # only the root may send this
    for peer in broken:
        peer.is_closed()
    good.send(ask(3)).expect(wire.CLOCK)
    assert hub.contacts() == ["ok", "closed", "closed"]


def test_a_stranger_is_told_no_time():
    hub = Hub(1)
    wire.Peer(hub.port).send(ask(1)).is_closed()
    hub.join(0).send(ask(1)).expect(wire.CLOCK)
