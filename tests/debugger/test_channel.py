"""Who may attach to a waiting process, and what ends a line that never comes."""

import json
import os
import socket
import threading
import time
from contextlib import ExitStack

import pytest

from oddrank.debugger import channel
from oddrank.debugger.channel import Channel, Listener
from oddrank.errors import OddrankError


@pytest.fixture
def listener(tmp_path, monkeypatch):
    monkeypatch.setenv("ODDRANK_DIR", str(tmp_path))
    monkeypatch.setattr(channel, "_TOKEN_SECONDS", 0.2)
    made = Listener(3, "train.py:57", "127.0.0.1")
    yield made
    made.close()


def connect(listener, sends):
    client = socket.create_connection((listener.session.address, listener.session.port))
    client.sendall(sends)
    return client


def soon(seconds):
    return time.monotonic() + seconds


def test_the_token_of_the_file_opens_the_debugger(listener):
    (session,) = channel.sessions()
    with connect(listener, session.token.encode() + b"p x\nnext\n"):
        opened = listener.accept(soon(60))
        assert [opened.readline(), opened.readline()] == ["p x\n", "next\n"]
        opened.close()


def test_only_its_user_reads_the_file(listener, tmp_path):
    (file,) = tmp_path.glob("*/debug-*.json")
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o077 == 0
    listener.close()
    assert not file.exists()


@pytest.mark.parametrize("sends", [b"", b"p x\n", b"0" * 32, b"\xff" * 32])
def test_without_the_token_nobody_gets_in_and_the_next_one_does(listener, sends):
    token = listener.session.token.encode()
    with connect(listener, sends), connect(listener, token) as client:
        opened = listener.accept(soon(60))
        client.sendall(b"q\n")
        assert opened.readline() == "q\n"
        opened.close()


def test_silent_strangers_hold_nobody_up_however_many_they_are(listener, monkeypatch):
    monkeypatch.setattr(channel, "_TOKEN_SECONDS", 3600.0)
    token = listener.session.token.encode()
    with ExitStack() as strangers:
        for _ in range(100):
            strangers.enter_context(connect(listener, token[:5]))
        client = strangers.enter_context(connect(listener, token[:5]))
        client.sendall(token[5:] + b"q\n")
        opened = listener.accept(soon(60))
        assert opened.readline() == "q\n"
        opened.close()


def test_a_stranger_is_sent_away_after_a_while(listener):
    with connect(listener, b"p x") as stranger:
        assert listener.accept(soon(1)) is None
        assert stranger.recv(1) == b""


def test_if_nobody_comes_the_wait_ends_at_the_deadline(listener):
    assert listener.accept(soon(0.1)) is None


def test_a_line_that_never_ends_and_a_client_that_leaves_are_the_end():
    ours, theirs = socket.socketpair()
    theirs.sendall(b"p x")
    opened = Channel(ours.detach(), soon(0.1))
    assert (opened.readline(), opened.is_open, opened.is_late) == ("", False, True)
    opened.close()
    ours, theirs = socket.socketpair()
    opened = Channel(ours.detach(), soon(60))
    theirs.sendall(b"p x\nhalf")
    theirs.close()
    assert [opened.readline(), opened.readline()] == ["p x\n", ""]
    opened.close()


def test_a_line_of_any_length_takes_no_memory():
    ours, theirs = socket.socketpair()
    opened = Channel(ours.detach(), soon(60))
    sender = threading.Thread(target=lambda: _send_for_ever(theirs))
    sender.start()
    assert opened.readline() == ""
    opened.close()
    sender.join(60)
    theirs.close()


def _send_for_ever(stream):
    try:
        while True:
            stream.sendall(b"x" * 65536)
    except OSError:
        pass


def test_a_client_that_takes_no_text_is_given_up(monkeypatch):
    monkeypatch.setattr(channel, "_WRITE_SECONDS", 0.1)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    opened = Channel(ours.detach(), soon(60))
    opened.write("x" * 10**7)
    assert not opened.is_open
    assert opened.readline() == ""
    opened.close()
    theirs.close()


def test_an_address_of_another_host_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("ODDRANK_DIR", str(tmp_path))
    with pytest.raises(OddrankError, match=r"can listen at '192\.0\.2\.1'"):
        Listener(3, "train.py:57", "192.0.2.1")


def test_sessions_of_dead_processes_and_nonsense_are_no_sessions(listener, tmp_path):
    (file,) = tmp_path.glob("*/debug-*.json")
    said = json.loads(file.read_text())
    dead = file.with_name("debug-1.json")
    dead.write_text(json.dumps(said | {"started": 1}))
    file.with_name("debug-2.json").write_text("[")
    file.with_name("debug-3.json").write_text('{"rank": "x"}')
    os.mkfifo(file.with_name("debug-4.json"))
    assert [one.pid for one in channel.sessions()] == [os.getpid()]
    assert not dead.exists()
