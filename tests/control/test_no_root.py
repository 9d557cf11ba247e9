"""Without rank 0 each host says once why it is not found: the one line that a user gets."""

import os
import socket
import threading
from dataclasses import replace

import pytest

from oddrank.control import no_root
from oddrank.launch import Launch

TIMED_OUT = RuntimeError("The client socket has timed out after 2231ms\nframe #0")


@pytest.fixture
def listening():
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        yield server


@pytest.fixture
def said(capsys, monkeypatch):
    """said(port, rank=...): what a rank of a job of this test's own prints."""
    held = []
    monkeypatch.setattr(no_root, "_held", held)
    rank_5 = Launch("env", 5, 1, 8, 4, 1, 2, "node1", None, "job")

    def say(port, host="127.0.0.1", error=TIMED_OUT, reached=False, **changes):
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", f"{os.getpid()}-{port}")
        launch = replace(rank_5, master=(host, port), **changes)
        no_root.say(launch, error, 6.5, reached=reached)
        return capsys.readouterr().err

    yield say
    for one in held:
        one.close()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_a_port_at_which_nobody_listens_is_told_with_the_whole_time(said):
    port = free_port()
    line = said(port)
    assert line.startswith(
        f"oddrank: rank 5 (node1) finds no rank 0: torch's store at MASTER_ADDR:MASTER_PORT"
        f" 127.0.0.1:{port}, tried for 6 s: 127.0.0.1 refuses connections to port {port}: "
    )
    assert line.count("\n") == 1
    assert "2231ms" not in line


def test_the_ranks_of_a_host_say_it_once_and_those_of_another_job_too(said):
    port, other = free_port(), free_port()
    assert said(port)
    assert said(port, rank=6, local_rank=2) == ""
    assert said(other)


@pytest.mark.parametrize("name", ["nosuch.invalid", "a" * 70 + ".invalid", "no such"])
def test_a_name_that_is_none_is_told_as_such(said, name):
    assert "the name can't be resolved (" in said(free_port(), name)


def test_a_resolver_that_never_answers_is_told_in_time(said, monkeypatch):
    stuck = threading.Event()
    monkeypatch.setattr(no_root, "_LOOK_SECONDS", 0.1)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: stuck.wait(10) and [])
    line = said(free_port(), "node0")
    stuck.set()
    assert "no name server says which address node0 has: getent hosts node0" in line


def test_a_port_that_never_answers_is_told(said, listening):
    """With a full queue the kernel drops whoever knocks."""
    callers = [socket.socket() for _ in range(4)]
    for caller in callers:
        caller.setblocking(False)
        caller.connect_ex(listening.getsockname())
    assert "127.0.0.1 never answered: " in said(listening.getsockname()[1])
    for caller in callers:
        caller.close()


def test_somebody_else_at_the_port_is_told_with_what_torch_says_of_it(said, listening):
    line = said(listening.getsockname()[1])
    assert "is no store of this job (The client socket has timed out after 2231ms)" in line


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"reached": True}, "it answers, but rank 0 has left no address there"),
        ({"error": ImportError("libtorch_cpu.so")}, ": ImportError: libtorch_cpu.so"),
        ({"rank": 0}, "rank 0 (node1) opens no store for the others: "),
    ],
)
def test_what_is_not_the_networks_fault_is_told_otherwise(said, facts, says):
    line = said(free_port(), **facts)
    assert says in line
    assert "refuses" not in line
