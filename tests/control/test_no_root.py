"""Without rank 0 each host prints once why it is not found."""

import os
import re
import socket
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from oddrank.control import no_root
from oddrank.control.no_root import ASK, IMPORT, OPEN, Search
from oddrank.errors import OddrankError
from oddrank.launch import Launch
from patience import until

TIMED_OUT = RuntimeError("The client socket has timed out after 2231ms\nframe #0")
WATCHING = "oddrank-no-root"
RANK_5 = Launch("env", 5, 1, 8, 4, 1, 2, "node1", None, "job")


@pytest.fixture
def listening():
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        yield server


@pytest.fixture
def search(monkeypatch):
    """Yields search(port, rank=...): a rank of a new job that looks for rank 0."""
    held = []
    monkeypatch.setattr(no_root, "_held", held)
    monkeypatch.setattr(no_root, "_LOOK_SECONDS", 60.0)  # it looks in a thread

    def make(port, host="127.0.0.1", seconds=6.5, over=lambda: False, **changes):
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", f"{os.getpid()}-{port}")
        launch = replace(RANK_5, master=(host, port), **changes)
        return Search(launch, time.monotonic() + seconds, over)

    yield make
    for one in held:
        one.close()


@pytest.fixture
def said(search, capsys):
    """Returns said(port, rank=...): what such a rank prints once torch gives up."""

    def say(port, host="127.0.0.1", error=TIMED_OUT, doing=OPEN, **changes):
        one = search(port, host, **changes)
        one.goes_on(doing)
        one.fails(error)
        return capsys.readouterr().err

    return say


def next_words(capsys):
    """Waits until a search prints something; returns it."""
    words = []
    until(lambda: words.append(capsys.readouterr().err) or words[-1])
    return words[-1]


def resolving(monkeypatch, *answers):
    """Replaces the resolver's answers: (address, ) or an exception."""
    places = [
        (socket.AF_INET6 if ":" in one else socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, 1))
        for one in answers
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: places)


def test_a_port_at_which_nobody_listens_is_told_with_the_whole_time(said, port):
    line = said(port)
    assert re.match(
        r"oddrank: rank 5 \(node1\) finds no rank 0: torch's store at MASTER_ADDR:MASTER_PORT"
        rf" 127.0.0.1:{port}, tried for \d+ s: 127.0.0.1 refuses connections to port {port}: ",
        line,
    )
    assert line.count("\n") == 1
    assert "2231ms" not in line


def test_another_rank_of_the_host_says_nothing(search, capsys, port):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as first:
        one = search(port)
        first.bind(f"\0oddrank-no-root-{os.geteuid()}-{os.getpid()}-{port}")
        one.fails(TIMED_OUT)
    assert capsys.readouterr().err == ""


def test_it_is_said_while_there_is_time_and_again_at_the_end(search, capsys, monkeypatch, port):
    """torch's store overstays its timeout meanwhile."""
    monkeypatch.setattr(no_root, "_FIRST_SECONDS", 0.2)
    one = search(port, seconds=200)
    one.start()
    one.goes_on(OPEN)
    first = next_words(capsys)
    assert "finds no rank 0 yet: " in first
    assert re.search(r"at most \d+ s more: 127.0.0.1 refuses connections", first)
    one._end = time.monotonic()
    last = next_words(capsys)
    assert "finds no rank 0: " in last
    assert last.count("\n") == 1
    one.fails(TIMED_OUT)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("ends", [Search.found, lambda search: None])
def test_who_was_found_says_nothing(search, capsys, monkeypatch, port, ends):
    monkeypatch.setattr(no_root, "_FIRST_SECONDS", 60.0)  # nothing is due before it has come
    came = threading.Event()
    one = search(port, seconds=120.0, over=came.is_set)
    one.start()
    one.goes_on(OPEN)
    came.set()
    ends(one)
    until(lambda: WATCHING not in [thread.name for thread in threading.enumerate()])
    assert capsys.readouterr().err == ""


def test_a_name_that_is_none_is_told_as_such(said, monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert "the name can't be resolved (Name or service not known)" in said(1, "nosuch")


def test_a_resolver_that_never_answers_is_told_in_time(said, monkeypatch, port):
    stuck = threading.Event()
    monkeypatch.setattr(no_root, "_LOOK_SECONDS", 0.1)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: stuck.wait(10) and [])
    line = said(port, "node0")
    stuck.set()
    assert "no name server says which address node0 has: getent hosts node0" in line


def test_of_several_addresses_the_one_that_tells_most_counts(said, monkeypatch):
    resolving(monkeypatch, "127.0.0.1", "2001:db8::1")
    assert "127.0.0.1 refuses connections" in said(1, "node0")
    resolving(monkeypatch, "2001:db8::1", "127.0.0.1")
    assert "127.0.0.1 refuses connections" in said(1, "node0")


def test_an_address_that_has_not_answered_when_time_is_up_is_told(said, monkeypatch):
    begun, over = threading.Event(), threading.Event()

    class Looks(threading.Thread):
        def join(self, timeout=None):
            assert begun.wait(60)
            super().join(timeout)

    def knock(*_):
        begun.set()
        over.wait(60)
        return 6, "late"

    resolving(monkeypatch, "127.0.0.1")
    monkeypatch.setattr(no_root, "threading", SimpleNamespace(Thread=Looks, Lock=threading.Lock))
    monkeypatch.setattr(no_root, "_LOOK_SECONDS", 0.2)
    monkeypatch.setattr(no_root, "_knock", knock)
    assert "127.0.0.1 has not answered yet" in said(1, "node0")
    over.set()


def test_a_kernel_without_the_address_family_is_no_traceback(said, monkeypatch):
    def refuse(*_):
        raise OSError(97, "Address family not supported by protocol")

    resolving(monkeypatch, "2001:db8::1")
    monkeypatch.setattr(no_root, "_is_first", lambda: True)
    monkeypatch.setattr(socket, "socket", refuse)
    assert "can't be reached (Address family not supported by protocol)" in said(1, "node0")


def test_a_port_that_never_answers_is_told(said, listening):
    """With a full accept queue the kernel drops connection attempts."""
    callers = [socket.socket() for _ in range(4)]
    for caller in callers:
        caller.setblocking(False)
        caller.connect_ex(listening.getsockname())
    assert "127.0.0.1 never answered: " in said(listening.getsockname()[1])
    for caller in callers:
        caller.close()


def test_somebody_else_at_the_port_is_told(said, listening):
    assert "is no store of this job" in said(listening.getsockname()[1])


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"doing": ASK}, "it answers, but rank 0 has left no address there"),
        ({"doing": IMPORT}, "it is still importing torch"),
        ({"doing": ASK, "error": OddrankError("'x' is no address")}, ": 'x' is no address\n"),
        ({"doing": ASK, "error": RuntimeError("Broken pipe")}, ": RuntimeError: Broken pipe\n"),
        ({"error": ImportError("libtorch_cpu.so")}, ": ImportError: libtorch_cpu.so\n"),
        ({"rank": 0}, "rank 0 (node1) opens no store for the others: "),
        (
            {"rank": 0, "error": RuntimeError("code: -98, name: EADDRINUSE")},
            "EADDRINUSE; is the port taken? ss -ltnp | grep ",
        ),
    ],
)
def test_what_is_not_the_networks_fault_is_told_otherwise(said, port, facts, says):
    line = said(port, **facts)
    assert says in line
    if "rank" not in facts:
        assert "refuses" not in line
