"""Stage reach: real connections between nodes, and findings about those that fail."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from job import job
from made_up import run_by_node
from netns import network, two_hosts
from oddrank.control.stages import Skip
from oddrank.selftest import Options, connections
from oddrank.selftest.connections import NCCL, RENDEZVOUS, Listeners, attempts, unpack
from oddrank.selftest.stages import reach
from patience import PATIENCE, until
from processes import most_open_files
from selftest.said import check
from selftest.test_reach_matrix import rows

ONLY = ("selftest", "--only", "reach")


def listening(node, *, asked=None, ways=(RENDEZVOUS,)):
    place = {"interface": "eth0", "address": f"10.0.{node // 256}.{node % 256}"}
    return {
        "ways": {way: {**place, "port": 40_000 + node + n} for n, way in enumerate(ways)},
        "failed": {}, "asked": asked or {}, "interfaces": ["eth0", "lo"],
        "ephemeral": "32768-60999",
    }  # fmt: skip


def attempted(nodes, broken, letter):
    errors = {"u": "No route to host"}
    return [{"rows": {RENDEZVOUS: row}, "errors": errors} for row in rows(nodes, broken, letter)]


def judged(nodes, broken=lambda i, j: False, letter="t", listen=None):
    listen = listen or [listening(node) for node in range(nodes)]
    run = run_by_node("reach", attempted(nodes, broken, letter), listen=listen)
    return reach.stage(Options()).conclude(run)


def ALWAYS(i, j):
    return True


BOTH_WAYS = (RENDEZVOUS, NCCL)
NCCL_ON_TWO = [
    listening(node, asked={NCCL: "eth"}, ways=(RENDEZVOUS,) if node == 2 else BOTH_WAYS)
    for node in range(4)
]
NOWHERE = [listening(node, asked={NCCL: "ib"}) for node in range(4)]
SAID = {
    "broken unreachable-node: node 6-7": {"a node is deaf": judged(8, lambda i, j: j == 3)},
    "broken node-reaches-nobody: node 2-3": {
        "a node reaches nobody, in the kernel's words": judged(4, lambda i, j: i == 1, "u")
    },
    "broken closed-link: link 0-3": {
        "a pair": judged(5, lambda i, j: {i, j} == {0, 1}), "both nodes": judged(2, ALWAYS),
    },
    "broken one-way-link: link 0-3": {"one direction": judged(2, lambda i, j: i == 1)},
    "unknown all-closed: nobody": {
        "all nodes": judged(3, ALWAYS),
        "all nodes have one address": judged(3, ALWAYS, "r", [listening(0)] * 3),
    },
    "unknown no-pattern: nobody": {"two groups": judged(6, lambda i, j: (i < 3) != (j < 3))},
    "broken no-interface: node 4-5": {
        "a node lacks the interface for NCCL": judged(4, listen=NCCL_ON_TWO)
    },
    "unknown no-interface-anywhere: nobody": {"no node has it": judged(4, listen=NOWHERE)},
    "": {"all is open": judged(8)},
}  # fmt: skip


def test_what_does_not_come_through_is_a_nodes_a_links_or_nobodys(golden):
    check(SAID, golden)


def test_what_comes_through_at_the_second_attempt_is_forgotten():
    listen = [listening(node) for node in range(4)]
    first = attempted(4, lambda i, j: j == 1, "s")
    for again, said in (
        (attempted(4, lambda i, j: False, "s"), ""),
        (attempted(4, lambda i, j: j == 1, "t"), "broken unreachable-node: node 2-3"),
    ):
        run = run_by_node("reach", first, listen=listen, reach_recheck=again)
        assert len(reach.stage(Options()).conclude(run)) == 1
        check({said: {"again": reach.recheck(Options()).conclude(run)}})


def test_the_plan_is_short_and_has_no_way_twice():
    for alike, ways in ((500, BOTH_WAYS), (1000, (RENDEZVOUS,))):
        listen = [listening(node, ways=BOTH_WAYS) for node in range(1000)]
        for said in listen[:alike]:
            said["ways"][NCCL] = said["ways"][RENDEZVOUS]
        told = reach.stage(Options()).plan(run_by_node("listen", listen))
        assert told["ways"] == [*ways]
        assert len(json.dumps(told)) < 65_000
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
        ports = (*listeners.ports.values(), closed.getsockname()[1], mute.getsockname()[1])
        listening, refusing, silent = (("127.0.0.1", port) for port in ports)
        # The listener's thread may have to wait for a core: only the mute port gets little time.
        tried = attempts([refusing, silent, None, None], 0.5)
        assert tried == ("rs--", {"r": "Connection refused"})
        assert attempts([listening, refusing, None], PATIENCE.limit)[0] == ".r-"
        # More than are tried at once, and than may be open at once.
        with most_open_files(400 + max(map(int, os.listdir("/proc/self/fd")))):
            assert attempts([listening, refusing] * 600, PATIENCE.limit)[0] == ".r" * 600


def test_a_process_that_stood_still_finds_nobody_silent_for_that():
    code = "import sys; from oddrank.selftest.connections import attempts\n"
    code += "print(attempts([('127.0.0.1', int(sys.argv[1]))], 2.0)[0])"
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = [sys.executable, "-c", code, str(server.getsockname()[1])]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tried:
            connection, _ = server.accept()
            with connection:
                token = connection.recv(99)
                tried.send_signal(signal.SIGSTOP)
                stopped = time.monotonic()
                until(lambda: time.monotonic() > stopped + 2.5)
                connection.sendall(token)
                tried.send_signal(signal.SIGCONT)
                assert tried.communicate(timeout=PATIENCE.limit)[0] == ".\n"


def test_a_want_of_this_process_is_nobodys_fault(monkeypatch):
    none_left = Mock(side_effect=OSError(errno.EMFILE, "Too many open files"))
    monkeypatch.setattr(connections, "socket", SimpleNamespace(socket=none_left, AF_INET=2))
    assert attempts([("127.0.0.1", 1)], 0.5)[0] == "-"


@pytest.mark.needs("torch", "netns", "nft")
def test_a_node_behind_a_firewall_is_named():
    with network(3) as net:
        net.hosts[2].firewall("ct state established accept", "tcp flags syn drop")
        verdict = job(3, 3, hosts=net.hosts, deadline=90, command=ONLY)
    assert verdict.causes == {"unreachable-node"}, str(verdict)
    assert verdict.names(rank=2, stage="reach")
    assert "no answer" in verdict.report["findings"][0]["evidence"][0]["text"]
    assert verdict.gone()


@pytest.mark.needs("torch", "netns", "nft")
def test_of_two_nodes_the_link_is_named_and_the_way_that_is_closed():
    with two_hosts() as hosts:
        hosts[1].firewall("ct state established accept", "tcp flags syn reject with tcp reset")
        verdict = job(2, 2, hosts=hosts, deadline=90, command=ONLY)
    assert verdict.causes == {"one-way-link"}, str(verdict)
    assert verdict.names(rank=[0, 1], stage="reach")
    assert "node0 (rank 0) can't connect to node node1" in verdict.report["summary"]


def test_a_listener_without_a_free_descriptor_waits_and_then_answers(monkeypatch):
    """accept() fails with EMFILE while the listener stays readable: no busy loop."""
    slept, tried, accept = [], [], connections._Listener.get_request
    clock = {"monotonic": time.monotonic, "sleep": lambda s: slept.append(s) or time.sleep(s)}
    monkeypatch.setattr(connections, "time", SimpleNamespace(**clock))
    monkeypatch.setattr(
        connections._Listener, "get_request", lambda own: tried.append(len(slept)) or accept(own)
    )
    listeners = Listeners(["127.0.0.1"], 110)
    client = socket.socket()
    client.settimeout(PATIENCE.limit)
    lowest = os.dup(0)
    os.close(lowest)
    with most_open_files(lowest):
        client.connect(("127.0.0.1", listeners.ports["127.0.0.1"]))
        until(lambda: len(tried) > 5)
    assert tried[:6] == [*range(6)]
    assert min(slept) > 0.01
    with client:
        client.sendall(b"x" * 16)
        assert client.recv(16) == b"x" * 16
