"""The hub, and the judge that asks it, with guards made by the test: strangers, limits, silence."""

import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

from control import wire_peer as wire
from control.wire_peer import TOKEN, Hub, Peer
from oddrank.control import walk as walk_
from oddrank.control.stages import Stage
from oddrank.control.walk import Outcome, Walk
from patience import PATIENCE, until
from texts import texts


def test_500_ranks_join_and_publish_a_stage():
    world = 500
    hub = Hub(world)
    hub.root.go("join", 100)
    peers = [hub.join(rank, node=rank // 8) for rank in range(world)]
    assert hub.root.await_stage("join").reason == "complete"
    hub.root.go("s", 100, "parameters")
    for rank, peer in enumerate(peers):
        number, size = struct.unpack_from("<II", peer.expect(wire.GO))
        assert (number, size) == (1, 1)
        peer.send(wire.state(number)).send(wire.result(number, b"%d" % rank))
    round_ = hub.root.await_stage("s")
    assert round_.reason == "complete"
    assert round_.results == {rank: b"%d" % rank for rank in range(world)}
    hub.root.end(7)
    assert all(peer.expect(wire.END) == struct.pack("<i", 7) for peer in peers)


HELLO = wire.hello(TOKEN, 1, 2)
SIGINT, UNINTERRUPTIBLE = 2, 4
FROM_STRANGERS = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "zeros": bytes(4096),
    "huge length": b"\xff\xff\xff\xff\x01",
    "random": os.urandom(4096),
    "a wrong proof": wire.knock() + wire.hello("a guess!" * 4, 1, 2),
    "the token itself": wire.knock() + HELLO,
    "no knock": HELLO,
    "two knocks": wire.knock() + wire.knock(),
    "another version": wire.knock(version=2),
    "a result before hello": wire.result(1, b"x" * 1000),
    "a cut hello": wire.knock() + wire.frame(wire.HELLO, HELLO[5:30]),
    "a hello too long": wire.knock() + wire.frame(wire.HELLO, HELLO[5:] + bytes(3000)),
    "a question for the time": wire.ask_clock(1),
    "nothing": b"",
}
FROM_GUARDS = {
    "huge length": b"\xff\xff\xff\x7f\x07",
    "no kind": wire.frame(99),
    "no state": wire.frame(wire.STATE),
    "a cut question": wire.frame(wire.ASK_CLOCK, b"\1\0\0"),
    "what only the root may send": wire.frame(wire.CLOCK, bytes(40)),
}


def test_strangers_and_guards_that_break_the_rules_are_closed_and_disturb_nobody():
    hub = Hub(2 + len(FROM_GUARDS))
    first = hub.join(0)
    for what, sent in FROM_STRANGERS.items():
        Peer(hub.port).send(sent).is_closed(wire.PROOF, why=what)
    _, _, dropped, _ = hub.native.notes()
    assert dropped == len(FROM_STRANGERS)
    for rank, (what, sent) in enumerate(FROM_GUARDS.items(), 2):
        hub.join(rank).send(sent).is_closed(wire.PONG, why=what)
    assert hub.contacts() == ["ok", "never", *["closed"] * len(FROM_GUARDS)]
    for peer in (first, hub.join(1)):
        peer.is_served()


def test_a_rank_claimed_twice_and_another_world_are_told():
    hub = Hub(2)
    first = hub.join(0)
    hub.knock(0).is_closed()  # its guard on a second path: an end would be for the worker
    assert hub.root.odd == ()
    for other in (hub.knock(0, pid=77), hub.knock(1, world=3)):
        assert other.expect(wire.END) == struct.pack("<i", 1)
    taken, stranger = hub.root.odd
    assert (taken.rank, taken.other_world) == (0, False)
    assert "was already here" in taken.text
    assert (stranger.rank, stranger.other_world) == (1, True)
    assert "says that the world has 3 ranks; the root says 2" in stranger.text
    first.is_served()


def test_a_guard_that_gives_up_the_root_says_so_on_another_connection():
    hub = Hub(2)
    hub.root.go("join", 5)
    _guards = [hub.join(0), hub.join(1)]
    hub.root.await_stage("join")
    hub.knock(1, parting="silent for 5000 ms").is_closed()
    assert hub.root.snapshot()[1].parting == "silent for 5000 ms"
    hub.knock(0, pid=77, parting="another's").is_closed()
    assert hub.contacts() == ["ok", "gave-up"]


def test_a_silent_guard_is_told_and_forgiven_when_it_speaks_again():
    hub = Hub(2, silence_ms=3000, heartbeat_ms=100)
    hub.root.go("join", 5)
    loud, quiet = hub.join(0), hub.join(1)

    def speaks(peer, *contacts):
        peer.is_served()
        return hub.contacts() == [*contacts]

    def is_forgiven():
        return hub.root.snapshot()[1].first_fault_ns == 0

    # Not at once: if this process is paused, all that it plays are silent for a moment.
    until(lambda: speaks(loud, "ok", "silent") and speaks(quiet, "ok", "ok") and is_forgiven())


def test_a_guard_that_was_lost_may_come_back_on_another_connection():
    hub = Hub(3, silence_ms=2000, heartbeat_ms=100)
    hub.root.go("join", 5)
    lost, reset, closed = (hub.join(rank) for rank in range(3))
    # A connection that is reset is no proof of death, as one that is closed is.
    reset.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    reset.socket.close()
    closed.send(wire.state(1, progress=7)).socket.close()
    until(lambda: hub.contacts() == ["silent", "silent", "closed"])
    since = [state.first_fault_ns for state in hub.root.snapshot()]
    assert since[1] < since[0]  # the reset was seen at once
    back = [hub.join(rank) for rank in range(3)]
    lost.is_closed()

    def are_back():
        for peer in back:
            peer.is_served()
        return [(s.contact, s.progress) for s in hub.root.snapshot()] == [
            ("ok", 0), ("ok", 0), ("ok", 7)
        ]  # fmt: skip

    until(are_back)
    assert hub.root.odd == ()
    hub.native.begin(1, "s", "", 20.0)
    for peer in back:
        peer.expect(wire.GO)


def test_states_are_asked_for_once_more_when_a_stage_fails(monkeypatch):
    monkeypatch.setattr("oddrank.control.session._REFRESH_SECONDS", PATIENCE.limit)
    hub = Hub(2)
    hub.root.go("join", 5)
    dead, alive = hub.join(0), hub.join(1)
    hub.root.await_stage("join")
    hub.root.go("s", 60)
    alive.expect(wire.GO)
    dead.send(wire.state(1, life=3))

    def answer():
        for peer, life, progress in ((alive, 0, 41), (dead, 3, 7)):
            (question,) = struct.unpack("<I", peer.expect(wire.REPORT))
            peer.send(wire.state(1, life=life, report=question, progress=progress))

    thread = threading.Thread(target=answer)
    thread.start()
    round_ = hub.root.await_stage("s")
    thread.join()
    assert round_.reason == "fault"
    seen = [(state.state, state.signal, state.progress) for state in round_.states.values()]
    assert seen == [("dead", 9, 7), ("running", None, 41)]


def test_a_rank_that_joins_late_and_goes_does_not_end_the_wait_for_states():
    hub = Hub(3)
    hub.root.go("join", 60)
    answers, owes = hub.join(0), hub.join(1)
    asks = threading.Thread(target=hub.native.refresh, args=(60.0,))
    asks.start()
    (question,) = struct.unpack("<I", answers.expect(wire.REPORT))
    owes.expect(wire.REPORT)
    answers.send(wire.state(report=question)).is_served()
    hub.join(2).socket.close()
    until(lambda: hub.contacts()[2] == "closed")
    asks.join(0.5)
    assert asks.is_alive()
    owes.send(wire.state(report=question, progress=41))
    asks.join(PATIENCE.limit)
    assert not asks.is_alive()
    assert hub.root.snapshot()[1].progress == 41


_LIMITED = texts(__file__)["limited"]


@contextmanager
def few_files(name):
    """Runs this program with a hub and at most 100 open files; yields its port and its output."""
    program = _LIMITED + texts(__file__)[name]
    command = [sys.executable, "-c", program, Path(__file__).parents[1]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield int(child.stdout.readline()), child.stdout
        finally:
            child.kill()


def test_an_open_file_limit_below_the_world_is_told_at_once():
    with few_files("few files") as (port, output):
        # Once it has no room, the root waits half a second for those that are on their way.
        peers = [Peer(port).join(TOKEN, rank, 200) for rank in range(67)]
        for peer in peers:
            peer.expect(wire.WELCOME)
        peers += [Peer(port).join_later(TOKEN, rank, 200) for rank in range(67, 120)]
        reason, came, limits = output.readline().split(" ", 2)
    assert (reason, came) == ("fault", "68")
    assert limits.startswith("the open-file limit on roothost (100, hard) lets at most 68 of 200")


def test_a_root_that_lacks_files_for_a_moment_goes_on():
    with few_files("files for a moment") as (port, output):
        _peers = [Peer(port).join_later(TOKEN, rank, 4) for rank in range(4)]
        assert output.readline() == "complete '' deadline\n"  # no rank has a fault


def judge(hub: Hub, *stages: str) -> Callable[[], Outcome]:
    """Walks over stages in a thread; returns a function that waits for the outcome."""
    table = [Stage(name, 100, lambda context: 1) for name in stages]
    walk, seen = Walk(hub.root, table, time.monotonic() + 100, None), []
    thread = threading.Thread(target=walk.judge, args=(lambda over: seen.append(over) or 0,))
    thread.start()

    def outcome() -> Outcome:
        thread.join(PATIENCE.limit)
        (over,) = seen
        return over

    return outcome


def test_a_rank_inside_the_kernel_does_not_make_the_judge_deaf_to_a_signal():
    hub = Hub(2)
    outcome = judge(hub, "first", "second")
    peers = [hub.join(rank) for rank in range(2)]
    for rank, peer in enumerate(peers):
        peer.expect(wire.GO)
        life = UNINTERRUPTIBLE if rank == 1 else 0
        peer.send(wire.state(1, life=life, terminated=SIGINT)).send(wire.result(1, b"1"))
    over = outcome()
    assert list(over.came) == ["join", "first"]
    assert over.why.startswith("SIGINT ended the job after stage first")


def test_a_result_that_comes_while_the_judge_waits_for_silent_guards_counts(monkeypatch):
    hub = Hub(3)
    outcome = judge(hub, "first")
    quick, lost, slow = (hub.join(rank, node=rank) for rank in range(3))
    for peer in (quick, lost, slow):
        peer.expect(wire.GO)
        peer.send(wire.state(1))
    judged = walk_.blame

    def then_the_slow_one_comes(round):
        slow.send(wire.result(1, b"1"))
        until(lambda: hub.native.result_count() == 2)
        monkeypatch.setattr(walk_, "blame", judged)
        return judged(round)

    monkeypatch.setattr(walk_, "blame", then_the_slow_one_comes)
    quick.send(wire.result(1, b"1"))
    until(lambda: hub.native.result_count() == 1)
    lost.socket.close()
    over = outcome()
    assert [(f.cause, f.who.ranks) for f in over.findings] == [("node-lost", (1,))]
    assert over.came["first"] == 2
    assert not any("rank 2" in one.text for one in over.findings[0].evidence)
