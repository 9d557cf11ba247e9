"""Who may attach to a waiting process, and what ends a line that never comes."""

import json
import os
import socket
import threading
import time
from contextlib import ExitStack, closing, contextmanager, suppress

import pytest

from oddrank.debugger import channel
from oddrank.debugger.channel import Channel, Listener
from oddrank.errors import OddrankError
from patience import PATIENCE


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


def opens(listener):
    """Returns the debugger's end of the first connection that is let in."""
    return closing(listener.accept(time.monotonic() + PATIENCE.limit))


def test_the_token_of_the_file_which_only_its_user_reads_opens_the_debugger(listener, tmp_path):
    (file,) = tmp_path.glob("*/debug-*.json")
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o077 == 0
    (session,) = channel.sessions()
    with connect(listener, session.token.encode() + b"p x\nnext\n"), opens(listener) as opened:
        assert [opened.readline(), opened.readline()] == ["p x\n", "next\n"]
    listener.close()
    assert not file.exists()


def test_without_the_token_nobody_gets_in_and_the_next_one_does(listener):
    token = listener.session.token.encode()
    for sends in (b"", b"p x\n", b"0" * 32, b"\xff" * 32):
        with connect(listener, sends), connect(listener, token + b"q\n"), opens(listener) as opened:
            assert opened.readline() == "q\n", sends


def test_silent_strangers_hold_nobody_up_however_many_they_are(listener, monkeypatch):
    monkeypatch.setattr(channel, "_TOKEN_SECONDS", 3600.0)
    token = listener.session.token.encode()
    with ExitStack() as strangers:
        for _ in range(100):
            strangers.enter_context(connect(listener, token[:5]))
        client = strangers.enter_context(connect(listener, token[:5]))
        client.sendall(token[5:] + b"q\n")
        assert strangers.enter_context(opens(listener)).readline() == "q\n"


def test_a_stranger_is_sent_away_after_a_while_and_the_wait_ends_at_the_deadline(listener):
    with connect(listener, b"p x") as stranger:
        assert listener.accept(time.monotonic() + 1) is None
        assert stranger.recv(1) == b""


@contextmanager
def pair(seconds=0.0):
    """Yields a channel that lasts so many seconds, and its client."""
    until = time.monotonic() + (seconds or PATIENCE.limit)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs, closing(Channel(ours.detach(), until)) as opened:
        yield opened, theirs


def test_a_line_that_never_ends_and_a_client_that_leaves_are_the_end():
    with pair(seconds=0.1) as (opened, client):
        client.sendall(b"p x")
        assert (opened.readline(), opened.is_open, opened.is_late) == ("", False, True)
    with pair() as (opened, client):
        client.sendall(b"p x\nhalf")
        client.close()
        assert [opened.readline(), opened.readline()] == ["p x\n", ""]


def test_a_line_of_any_length_takes_no_memory():
    def send_for_ever():
        with suppress(OSError):
            while True:
                client.sendall(b"x" * 65536)

    with pair() as (opened, client):
        sender = threading.Thread(target=send_for_ever)
        sender.start()
        assert opened.readline() == ""
        opened.close()
        sender.join(PATIENCE.limit)
        assert not sender.is_alive()


def test_a_client_that_takes_no_text_is_given_up(monkeypatch):
    monkeypatch.setattr(channel, "_WRITE_SECONDS", 0.1)
    with pair() as (opened, _):
        opened.write("x" * 10**7)
        assert not opened.is_open
        assert opened.readline() == ""


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
