"""Stage reach: real connections between nodes, and findings about those that fail."""

import errno
import itertools
import json
import os
import resource
import selectors
import socket
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from job import job
from made_up import causes_and_hosts, run_by_node
from netns import network, two_hosts
from oddrank.control.stages import Skip
from oddrank.selftest import Options, connections
from oddrank.selftest.connections import NCCL, RENDEZVOUS, Attempts, Listeners, unpack
from oddrank.selftest.reach_matrix import both, peers
from oddrank.selftest.stages import reach

ONLY = ("selftest", "--only", "reach")


def listening(node, *, asked=None, ways=(RENDEZVOUS,)):
    place = {
        "interface": "eth0",
        "address": f"10.0.{node // 256}.{node % 256}",
        "port": 40_000 + node,
    }
    return {
        "ways": {way: {**place, "port": place["port"] + n} for n, way in enumerate(ways)},
        "failed": {}, "asked": asked or {}, "interfaces": ["eth0", "lo"],
        "ephemeral": "32768-60999",
    }  # fmt: skip


def attempted(nodes, broken, letter):
    return [
        {
            "rows": {RENDEZVOUS: "".join(letter if broken(n, p) else "." for p in peers(n, nodes))},
            "errors": {"u": "No route to host"},
        }
        for n in range(nodes)
    ]


def judged(nodes, broken=lambda i, j: False, letter="t", listen=None):
    listen = listen or [listening(node) for node in range(nodes)]
    run = run_by_node("reach", attempted(nodes, broken, letter), listen=listen)
    return reach.stage(Options()).conclude(run)


def test_a_deaf_node_is_named_with_who_tried_where_and_what_to_type():
    (finding,) = judged(8, lambda i, j: j == 3)
    assert (finding.who.host, finding.who.ranks, finding.cause) == (
        "node3", (6, 7), "unreachable-node",
    )  # fmt: skip
    assert finding.confidence.level == "high"
    first = finding.evidence[0].text
    assert first == (
        "node0 (eth0 10.0.0.0) to node3 (eth0 10.0.0.3) port 40003:"
        " no answer, the packets are dropped"
    )
    assert any("nc -vz 10.0.0.3 40003" in line for line in finding.next)


def test_the_kernels_own_word_stands_beside_ours():
    (finding,) = judged(4, lambda i, j: i == 1, letter="u")
    assert finding.cause == "node-reaches-nobody"
    assert "unreachable (No route to host)" in finding.evidence[0].text


@pytest.mark.parametrize("nodes", [2, 5])
def test_a_broken_pair_names_the_link_with_both_ends(nodes):
    (finding,) = judged(nodes, lambda i, j: {i, j} == {0, 1})
    assert (finding.who.kind, finding.who.ranks) == ("link", (0, 1, 2, 3))
    assert (finding.cause, finding.confidence.level) == ("closed-link", "medium")


def test_a_way_that_is_open_in_one_direction_only_says_which():
    (finding,) = judged(2, lambda i, j: i == 1)
    assert finding.cause == "one-way-link"
    assert "node1 (ranks 2-3) can't connect to node node0" in finding.what


def test_a_firewall_between_all_nodes_names_nobody_and_the_ports():
    (finding,) = judged(3, lambda i, j: True)
    assert (finding.condition, finding.who.ranks, finding.cause) == ("unknown", (), "all-closed")
    assert "TCP ports 32768-60999" in finding.next[0]


def test_a_bridge_with_one_address_everywhere_is_told():
    listen = [listening(0) for _ in range(3)]
    (finding,) = judged(3, lambda i, j: True, letter="r", listen=listen)
    assert "3 nodes have the address 10.0.0.0" in finding.evidence[-1].text


def test_failures_between_groups_of_nodes_name_nobody():
    (finding,) = judged(6, lambda i, j: (i < 3) != (j < 3))
    assert (finding.condition, finding.cause) == ("unknown", "no-pattern")
    assert "node0, node1, node2; node3, node4, node5" in finding.evidence[0].text


def test_a_node_without_the_interface_that_nccl_shall_use_is_named():
    asked = {NCCL: "eth"}
    listen = [
        listening(node, asked=asked, ways=(RENDEZVOUS,) if node == 2 else (RENDEZVOUS, NCCL))
        for node in range(4)
    ]
    assert causes_and_hosts(judged(4, listen=listen)) == [("no-interface", "node2")]


def test_a_variable_that_fits_no_node_names_none():
    listen = [listening(node, asked={NCCL: "ib"}) for node in range(4)]
    assert causes_and_hosts(judged(4, listen=listen)) == [("no-interface-anywhere", None)]


def test_what_comes_through_at_the_second_attempt_is_forgotten():
    def broken(i, j):
        return j == 1

    listen = [listening(node) for node in range(4)]
    first = attempted(4, broken, "s")
    run = run_by_node(
        "reach", first, listen=listen, reach_recheck=attempted(4, lambda i, j: False, "s")
    )
    assert len(reach.stage(Options()).conclude(run)) == 1
    assert reach.recheck(Options()).conclude(run) == []
    run = run_by_node("reach", first, listen=listen, reach_recheck=attempted(4, broken, "t"))
    assert causes_and_hosts(reach.recheck(Options()).conclude(run)) == [
        ("unreachable-node", "node1")
    ]
    assert both("s", "t") == "t"


def test_the_judgement_of_ten_thousand_nodes_ends():
    """Takes about a second; a judge that looks at all pairs would exceed the test's time limit."""
    listen = [listening(node) for node in range(10_000)]
    run = run_by_node(
        "reach", attempted(10_000, lambda i, j: j == 77, "t"), listen=listen, per_node=1
    )
    assert causes_and_hosts(reach.stage(Options()).conclude(run)) == [
        ("unreachable-node", "node77")
    ]


def test_the_plan_is_short_and_has_no_way_twice():
    ways = (RENDEZVOUS, NCCL)
    listen = [listening(node, ways=ways) for node in range(1000)]
    for said in listen[:500]:
        said["ways"][NCCL] = said["ways"][RENDEZVOUS]
    told = reach.stage(Options()).plan(run_by_node("listen", listen))
    assert told["ways"] == [*ways]
    assert len(json.dumps(told)) < 65_000
    for said in listen:
        said["ways"][NCCL] = said["ways"][RENDEZVOUS]
    told = reach.stage(Options()).plan(run_by_node("listen", listen))
    assert told["ways"] == [RENDEZVOUS]
    assert unpack(told["places"], 1000)[0][7] == ("10.0.0.7", 40007)


def test_on_one_host_there_is_nothing_to_try():
    run = run_by_node("environment", [None], per_node=4)
    assert isinstance(reach.listen(Options()).plan(run), Skip)
    assert isinstance(reach.stage(Options()).plan(run), Skip)


def test_real_attempts_tell_open_closed_and_silent_ports():
    listeners = Listeners(["127.0.0.1", "192.0.2.1"], 110)
    assert set(listeners.failed) == {"192.0.2.1"}
    with socket.socket() as mute, socket.socket() as closed:
        mute.bind(("127.0.0.1", 0))
        mute.listen(8)  # the kernel accepts, nobody replies
        closed.bind(("127.0.0.1", 0))
        places = [
            ("127.0.0.1", listeners.ports["127.0.0.1"]),
            ("127.0.0.1", closed.getsockname()[1]),
            ("127.0.0.1", mute.getsockname()[1]),
            None,
        ]
        # The listener's thread may have to wait for a core: only the mute port gets little time.
        tried = Attempts([*places[1:], None], 0.5)
        assert tried.letters == "rs--"
        assert tried.errors == {"r": "Connection refused"}
        assert Attempts([*places[:2], None], 60).letters == ".r-"
        # More than are tried at once, and than may be open at once.
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (400 + max(map(int, os.listdir("/proc/self/fd"))), hard)
        )
        try:
            assert Attempts(places[:2] * 600, 60).letters == ".r" * 600
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def answering_after(seconds):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            with connection:
                token = connection.recv(99)
                time.sleep(seconds)
                connection.sendall(token)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield server.getsockname()
        thread.join(10)


@pytest.mark.parametrize("looks", [True, False], ids=["before it looks", "after it looked"])
def test_a_process_that_stood_still_finds_nobody_silent_for_that(monkeypatch, looks):
    turns, stood_still = itertools.count(), 0.0

    class Stalled(selectors.DefaultSelector):
        def select(self, timeout=None):
            nonlocal stood_still
            if next(turns) > 0:
                return super().select(timeout)
            there = super().select(timeout)
            stood_still = 72.0
            return there if looks else []

    events = {name: getattr(selectors, name) for name in ("EVENT_READ", "EVENT_WRITE")}
    monkeypatch.setattr(
        connections, "selectors", SimpleNamespace(DefaultSelector=Stalled, **events)
    )
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + stood_still)
    monkeypatch.setattr(connections, "time", clock)
    with answering_after(0.1) as place:
        assert Attempts([place], 60.0).letters == "."


def test_a_want_of_this_process_is_nobodys_fault(monkeypatch):
    def none_left(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(connections, "socket", SimpleNamespace(socket=none_left, AF_INET=2))
    assert Attempts([("127.0.0.1", 1)], 0.5).letters == "-"


@pytest.mark.needs("torch", "netns", "nft")
def test_a_node_behind_a_firewall_is_named_with_its_port():
    with network(3) as net:
        net.hosts[2].firewall("ct state established accept", "tcp flags syn drop")
        verdict = job(3, nodes=3, hosts=net.hosts, deadline=90, command=ONLY)
    assert verdict.names(rank=2, stage="reach"), str(verdict)
    assert verdict.causes == {"unreachable-node"}
    assert "no answer" in verdict.report["findings"][0]["evidence"][0]["text"]


@pytest.mark.needs("torch", "netns", "nft")
def test_of_two_nodes_the_link_is_named_and_the_way_that_is_closed():
    with two_hosts() as hosts:
        hosts[1].firewall("ct state established accept", "tcp flags syn reject with tcp reset")
        verdict = job(2, nodes=2, hosts=hosts, deadline=90, command=ONLY)
    assert verdict.causes == {"one-way-link"}, str(verdict)
    assert verdict.names(rank=[0, 1], stage="reach")
    assert "node0 (rank 0) can't connect to node node1" in verdict.report["summary"]


def test_a_listener_without_a_free_descriptor_waits_and_then_answers():
    """accept() fails with EMFILE while the listener stays readable: no busy loop."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    listeners = Listeners(["127.0.0.1"], 110)
    client = socket.socket()
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        client.connect(("127.0.0.1", listeners.ports["127.0.0.1"]))
        began = time.process_time()
        time.sleep(1.0)
        spent = time.process_time() - began
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert spent < 0.3
    with client:
        client.settimeout(60)
        client.sendall(b"x" * 16)
        assert client.recv(16) == b"x" * 16
