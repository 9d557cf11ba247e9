"""The hub alone, with guards made by the test: strangers, limits, silence, many ranks."""

import os
import resource
import socket
import struct
import subprocess
import sys
import threading

import pytest

from control import wire_peer as wire
from control.wire_peer import Peer
from oddrank import _native
from oddrank.control.root import Root
from patience import until

TOKEN = "a-secret"


class Hub:
    def __init__(self, world, *, deadline=120.0, silence_ms=60_000, heartbeat_ms=0):
        core = _native.core()
        listener, self.port = core.control_listen(0)
        self.native = core.Hub(
            listener, world, TOKEN, "roothost", deadline, heartbeat_ms, silence_ms
        )
        self.root = Root(self.native, world, deadline)
        self.world = world

    def join(self, rank, **options):
        peer = Peer(self.port).join(TOKEN, rank, self.world, **options)
        peer.expect(wire.WELCOME)
        return peer


def test_500_ranks_join_and_publish_a_stage():
    world = 500
    hub = Hub(world)
    hub.root.open_join(100)
    peers = [hub.join(rank, node=rank // 8) for rank in range(world)]
    assert hub.root.collect("join").reason == "complete"
    hub.root.go("s", 100, "parameters")
    for rank, peer in enumerate(peers):
        number, size = struct.unpack_from("<II", peer.expect(wire.GO))
        assert (number, size) == (1, 1)
        peer.send(wire.state(number)).send(wire.result(number, b"%d" % rank))
    round_ = hub.root.collect("s")
    assert round_.reason == "complete"
    assert round_.results == {rank: b"%d" % rank for rank in range(world)}
    hub.root.end(7)
    assert all(peer.expect(wire.END) == struct.pack("<i", 7) for peer in peers)


GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "zeros": bytes(4096),
    "huge length": b"\xff\xff\xff\xff\x01",
    "random": os.urandom(4096),
    "a wrong proof": wire.knock() + wire.hello("a guess!" * 4, 1, 2),
    "the token itself": wire.knock() + wire.hello(TOKEN, 1, 2),
    "no knock": wire.hello(TOKEN, 1, 2),
    "two knocks": wire.knock() + wire.knock(),
    "another version": wire.knock(version=2),
    "a result before hello": wire.result(1, b"x" * 1000),
    "a cut hello": wire.knock() + wire.frame(wire.HELLO, wire.hello(TOKEN, 1, 2)[5:30]),
    "a hello too long": wire.knock()
    + wire.frame(wire.HELLO, wire.hello(TOKEN, 1, 2)[5:] + bytes(3000)),
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_strangers_are_dropped_and_disturb_nobody(kind):
    hub = Hub(2)
    hub.root.open_join(10)
    first = hub.join(0)
    stranger = Peer(hub.port).send(GARBAGE[kind])
    while (got := stranger.receive()) is not None:
        assert got[0] == wire.PROOF
    second = hub.join(1)
    assert hub.root.collect("join").reason == "complete"
    _, _, dropped, _ = hub.native.notes()
    assert dropped == 1
    for peer in (first, second):
        peer.send(wire.frame(wire.PING)).expect(wire.PONG)


def test_a_stranger_that_says_nothing_is_closed_after_some_seconds():
    hub = Hub(1)
    stranger = Peer(hub.port)
    assert stranger.receive() is None


@pytest.mark.parametrize(
    "broken", [b"\xff\xff\xff\x7f\x07", wire.frame(99), wire.frame(wire.STATE)]
)
def test_a_guard_that_breaks_the_rules_is_closed_and_only_that(broken):
    hub = Hub(2)
    hub.root.open_join(10)
    good, bad = hub.join(0), hub.join(1)
    bad.send(broken)
    while bad.receive() is not None:
        pass
    assert [state.contact for state in hub.root.snapshot()] == ["ok", "closed"]
    good.send(wire.frame(wire.PING)).expect(wire.PONG)


def test_a_guard_that_comes_on_a_second_path_is_no_second_process():
    hub = Hub(2)
    first = hub.join(0)
    again = Peer(hub.port).join(TOKEN, 0, 2)
    assert again.receive() is None  # closed; an end would be for the worker
    assert hub.root.odd == ()
    first.send(wire.frame(wire.PING)).expect(wire.PONG)


def test_a_rank_claimed_twice_and_another_world_are_told():
    hub = Hub(2)
    first = hub.join(0)
    again = Peer(hub.port).join(TOKEN, 0, 2, pid=77)
    assert again.expect(wire.END) == struct.pack("<i", 1)
    other = Peer(hub.port).join(TOKEN, 1, 3)
    assert other.expect(wire.END) == struct.pack("<i", 1)
    taken, stranger = hub.root.odd
    assert (taken.rank, taken.other_world) == (0, False)
    assert "was already here" in taken.text
    assert (stranger.rank, stranger.other_world) == (1, True)
    assert "says that the world has 3 ranks; the root says 2" in stranger.text
    first.send(wire.frame(wire.PING)).expect(wire.PONG)


def test_a_guard_that_gives_up_the_root_says_so_on_another_connection():
    hub = Hub(2)
    hub.root.open_join(5)
    guards = [hub.join(0), hub.join(1)]
    hub.root.collect("join")
    assert Peer(hub.port).join(TOKEN, 1, 2, parting="silent for 5000 ms").receive() is None
    state = hub.root.snapshot()[1]
    assert (state.contact, state.parting) == ("gave-up", "silent for 5000 ms")
    assert Peer(hub.port).join(TOKEN, 0, 2, pid=77, parting="another's").receive() is None
    assert hub.root.snapshot()[0].contact == "ok"
    del guards


def test_a_reset_connection_is_no_proof_of_death():
    hub = Hub(2)
    hub.root.open_join(5)
    reset, closed = hub.join(0), hub.join(1)
    reset.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    reset.socket.close()
    closed.socket.close()
    until(lambda: "ok" not in [state.contact for state in hub.root.snapshot()])
    assert [state.contact for state in hub.root.snapshot()] == ["silent", "closed"]


def test_results_of_another_stage_do_not_count():
    hub = Hub(1)
    peer = hub.join(0)
    hub.root.go("s", 0.5)
    peer.expect(wire.GO)
    peer.send(wire.result(7, b"of the future")).send(wire.result(0, b"of join"))
    round_ = hub.root.collect("s")
    assert round_.reason == "deadline"
    assert round_.results == {}


def test_a_silent_guard_is_told_and_forgiven_when_it_speaks_again():
    hub = Hub(2, silence_ms=3000, heartbeat_ms=100)
    hub.root.open_join(5)
    loud, quiet = hub.join(0), hub.join(1)

    def speaks(peer, *contacts):
        peer.send(wire.frame(wire.PING)).expect(wire.PONG)
        return tuple(state.contact for state in hub.root.snapshot()) == contacts

    def is_forgiven():
        return hub.root.snapshot()[1].first_fault_ns == 0

    # Not at once: if this process is paused, all that it plays are silent for a moment.
    until(lambda: speaks(loud, "ok", "silent") and speaks(quiet, "ok", "ok") and is_forgiven())


def test_a_guard_that_was_lost_may_come_back_on_another_connection():
    hub = Hub(2, silence_ms=1000, heartbeat_ms=100)
    hub.root.open_join(5)
    lost, closed = hub.join(0), hub.join(1)
    closed.send(wire.state(1, progress=7)).socket.close()
    until(lambda: [one.contact for one in hub.root.snapshot()] == ["silent", "closed"])
    back = [hub.join(0), hub.join(1)]
    assert lost.receive() is None

    def are_back():
        for peer in back:
            peer.send(wire.frame(wire.PING)).expect(wire.PONG)
        return [(s.contact, s.progress) for s in hub.root.snapshot()] == [("ok", 0), ("ok", 7)]

    until(are_back)
    assert hub.root.odd == ()
    hub.native.begin(1, "s", "", 20.0)
    for peer in back:
        peer.expect(wire.GO)


def test_states_are_asked_for_once_more_when_a_stage_fails(monkeypatch):
    monkeypatch.setattr("oddrank.control.root._REFRESH_SECONDS", 6.0)  # a thread answers
    hub = Hub(2)
    hub.root.open_join(5)
    dead, alive = hub.join(0), hub.join(1)
    hub.root.collect("join")
    hub.root.go("s", 60)
    alive.expect(wire.GO)
    dead.send(wire.state(1, life=3))

    def answer():
        (question,) = struct.unpack("<I", alive.expect(wire.REPORT))
        alive.send(wire.state(1, report=question, progress=41))

    thread = threading.Thread(target=answer)
    thread.start()
    round_ = hub.root.collect("s")
    thread.join()
    assert round_.reason == "fault"
    assert round_.states[1].progress == 41
    assert (round_.states[0].state, round_.states[0].signal) == ("dead", 9)


def test_a_rank_that_joins_late_and_goes_does_not_end_the_wait_for_states():
    hub = Hub(3)
    hub.root.open_join(60)
    answers, owes = hub.join(0), hub.join(1)
    asks = threading.Thread(target=hub.native.refresh, args=(60.0,))
    asks.start()
    (question,) = struct.unpack("<I", answers.expect(wire.REPORT))
    owes.expect(wire.REPORT)
    answers.send(wire.state(report=question)).send(wire.frame(wire.PING)).expect(wire.PONG)
    hub.join(2).socket.close()
    until(lambda: hub.root.snapshot()[2].contact == "closed")
    asks.join(0.5)
    assert asks.is_alive()
    owes.send(wire.state(report=question, progress=41))
    asks.join(50)
    assert not asks.is_alive()
    assert hub.root.snapshot()[1].progress == 41


_FEW_FILES = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
sys.path.insert(0, sys.argv[1])
from control.test_hub import Hub, TOKEN, wire, Peer
from oddrank.control.culprits import culprits
from oddrank.control.findings import of_round
from oddrank.control.stages import RunState
hub = Hub(200)
print(hub.port, flush=True)
hub.root.open_join(100)
round_ = hub.root.collect("join")
came = sum(state.contact == "ok" for state in round_.states.values())
print(round_.reason, came, round_.limits, flush=True)
told = of_round(round_, culprits(round_), RunState(200, round_.states))
print(*[finding.cause for finding in told], flush=True)
"""


def test_an_open_file_limit_below_the_world_is_told_at_once():
    tests = os.path.dirname(os.path.dirname(__file__))
    child = subprocess.Popen(
        [sys.executable, "-c", _FEW_FILES, tests], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    port = int(child.stdout.readline())
    # Once it has no room, the root waits half a second for those that are on their way.
    peers = [Peer(port).join(TOKEN, rank, 200) for rank in range(67)]
    for peer in peers:
        peer.expect(wire.WELCOME)
    peers += [Peer(port).join_later(TOKEN, rank, 200) for rank in range(67, 120)]
    reason, came, limits = child.stdout.readline().split(" ", 2)
    assert (reason, came) == ("fault", "68")
    assert limits.startswith("the open-file limit on roothost (100, hard) lets at most 68 of 200")
    assert child.stdout.readline() == "open-files\n"
    del peers
    child.kill()
    child.wait()


_FILES_FOR_A_MOMENT = """
import os, resource, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
sys.path.insert(0, sys.argv[1])
from control.test_hub import Hub
hub = Hub(4)
hub.root.open_join(100)
taken = []
try:
    while True:
        taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    print(hub.port, flush=True)
while not hub.root.limits:
    time.sleep(0.01)
for one in taken:
    os.close(one)
round_ = hub.root.collect("join")
print(round_.reason, repr(round_.limits), flush=True)
hub.root.go("s", 1.5)
print(hub.root.collect("s").reason, flush=True)
"""


def test_a_root_that_lacks_files_for_a_moment_goes_on():
    tests = os.path.dirname(os.path.dirname(__file__))
    child = subprocess.Popen(
        [sys.executable, "-c", _FILES_FOR_A_MOMENT, tests], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    port = int(child.stdout.readline())
    peers = [Peer(port).join_later(TOKEN, rank, 4) for rank in range(4)]
    assert child.stdout.readline() == "complete ''\n"
    assert child.stdout.readline() == "deadline\n"  # no rank has a fault
    del peers
    child.kill()
    child.wait()


def test_the_soft_limit_of_open_files_is_raised():
    script = (
        "import resource as r\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (64, r.getrlimit(r.RLIMIT_NOFILE)[1]))\n"
        "from oddrank import _native; c = _native.core(); fd, _ = c.control_listen(0)\n"
        "hub = c.Hub(fd, 60, 't', 'h', 5.0)\n"
        "print(r.getrlimit(r.RLIMIT_NOFILE)[0], hub.notes()[0])"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.split() == [str(resource.getrlimit(resource.RLIMIT_NOFILE)[1])]
