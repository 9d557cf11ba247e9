"""Without rank 0 each host prints once why it is not found."""

import os
import re
import socket
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from unittest.mock import Mock

import pytest

from oddrank.control import rendezvous
from oddrank.control.rendezvous import ASK, IMPORT, OPEN, Search
from oddrank.errors import OddrankError
from oddrank.launch import Launch
from patience import PATIENCE, until

TIMED_OUT = RuntimeError("The client socket has timed out after 2231ms\nframe #0")
WATCHING = "oddrank-no-root"
RANK_5 = Launch("env", 5, 1, 8, 4, 1, 2, "node1", None, "job")


@pytest.fixture
def search(monkeypatch):
    """Yields search(port, rank=...): a rank of a new job that looks for rank 0."""
    held = []
    monkeypatch.setattr(rendezvous, "_held", held)
    monkeypatch.setattr(rendezvous, "_LOOK_SECONDS", 60.0)  # it looks in a thread

    def make(port, host="127.0.0.1", seconds=6.5, over=lambda: False, **changes):
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", f"{os.getpid()}-{port}")
        launch = replace(RANK_5, master=(host, port), **changes)
        return Search(launch, time.monotonic() + seconds, over)

    yield make
    for one in held:
        one.close()


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
    by_address = {place[4][0]: [place] for place in places}
    answer = lambda host, *_, **__: by_address.get(host, places)  # noqa: E731
    monkeypatch.setattr(socket, "getaddrinfo", answer)


def test_it_is_said_while_there_is_time_and_again_at_the_end(search, capsys, monkeypatch, port):
    """torch's store overstays its timeout meanwhile."""
    monkeypatch.setattr(rendezvous, "_FIRST_SECONDS", 0.2)
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


@pytest.mark.parametrize("ends", [Search.ends, lambda search: None])
def test_who_was_found_says_nothing(search, capsys, monkeypatch, port, ends):
    monkeypatch.setattr(rendezvous, "_FIRST_SECONDS", 60.0)  # nothing is due before it has come
    came = threading.Event()
    one = search(port, seconds=120.0, over=came.is_set)
    one.start()
    one.goes_on(OPEN)
    came.set()
    ends(one)
    until(lambda: WATCHING not in [thread.name for thread in threading.enumerate()])
    assert capsys.readouterr().err == ""


def test_why_rank_0_is_not_found_is_told_in_one_line(search, capsys, port, monkeypatch, golden):
    def said(port, host="127.0.0.1", error=TIMED_OUT, doing=OPEN, **changes):
        one = search(port, host, **changes)
        one.goes_on(doing)
        one.fails(error)
        return capsys.readouterr().err

    lines = {
        "nobody listens": said(port),
        "torch is slow": said(port, doing=IMPORT),
        "no address in the store": said(port, doing=ASK),
        "a bad address": said(port, doing=ASK, error=OddrankError("'x' is no address")),
        "another error": said(port, doing=ASK, error=RuntimeError("Broken pipe")),
        "no torch": said(port, error=ImportError("libtorch_cpu.so")),
        "rank 0 itself": said(port, rank=0),
        "the port is taken": said(port, rank=0, error=RuntimeError("-98, name: EADDRINUSE")),
        "taken, but later": said(port, doing=ASK, error=RuntimeError("-98, name: EADDRINUSE")),
    }
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        other = server.getsockname()
        lines["somebody else listens"] = said(other[1])
        with ExitStack() as callers:  # with a full accept queue the kernel drops attempts
            for _ in range(4):
                caller = callers.enter_context(socket.socket())
                caller.setblocking(False)
                caller.connect_ex(other)
            lines["nothing answers"] = said(other[1])
    resolving(monkeypatch, "127.0.0.1", "2001:db8::1")
    lines["the first of two addresses"] = said(1, "node0")
    with monkeypatch.context() as patched:
        unknown = socket.gaierror(-2, "Name or service not known")
        patched.setattr(socket, "getaddrinfo", Mock(side_effect=unknown))
        lines["unknown name"] = said(1, "nosuch")
    with monkeypatch.context() as patched:
        stuck = threading.Event()
        patched.setattr(rendezvous, "_LOOK_SECONDS", 0.1)
        places = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1))]
        answer = lambda *_, **__: stuck.wait(PATIENCE.limit) and places  # noqa: E731
        patched.setattr(socket, "getaddrinfo", answer)
        lines["a resolver that never answers"] = said(1, "node0")
        stuck.set()
    with monkeypatch.context() as patched:
        resolving(patched, "2001:db8::1")
        patched.setattr(rendezvous, "_is_first", lambda: True)
        no_family = OSError(97, "Address family not supported by protocol")
        patched.setattr(socket, "socket", Mock(side_effect=no_family))
        lines["no IPv6"] = said(1, "node0")
    assert all(line.count("\n") == 1 for line in lines.values())
    text = "".join(f"{name}: {line}" for name, line in lines.items())
    text = re.sub(f"{port}|{other[1]}", "PORT", text)
    golden(re.sub(r"tried for \d+ s", "tried for N s", text))


def test_only_a_rank_0_that_hosts_the_store_minds_that_its_port_is_taken(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        here = replace(RANK_5, rank=0, master=("127.0.0.1", port))
        with pytest.raises(OddrankError, match=f"MASTER_PORT {port} is taken by another program"):
            rendezvous.refuse_taken_port(here)
        rendezvous.refuse_taken_port(replace(here, rank=5))
        rendezvous.refuse_taken_port(replace(here, master=None))
        with monkeypatch.context() as launcher:
            launcher.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
            rendezvous.refuse_taken_port(here)
        assert rendezvous._no_answer(f"127.0.0.1:{port}#word") == ""
    rendezvous.refuse_taken_port(here)
    assert rendezvous._no_answer(f"127.0.0.1:{port}#word").startswith("no answer from 127.0.0.1 at")


def test_an_address_counts_as_silent_until_it_answers(monkeypatch):
    resolving(monkeypatch, "127.0.0.1")
    seen = []
    monkeypatch.setattr(rendezvous, "_knock", lambda *_: seen.append(f"not yet: {seen[-1]}"))
    rendezvous._look_into("node0", 1, seen)
    assert seen[1] == "not yet: 127.0.0.1 has not answered yet"
