"""Who may attach to a waiting process, and what ends a line that never comes."""

import os
import socket
import threading
import time
from contextlib import closing, contextmanager, suppress

import pytest

from oddrank.debugger import channel
from oddrank.debugger.channel import Channel, Listener
from oddrank.errors import OddrankError
from patience import PATIENCE


@pytest.fixture
def listener(tmp_path, monkeypatch):
    monkeypatch.setenv("ODDRANK_DIR", str(tmp_path))
    made = Listener(3)
    yield made
    made.close()


def test_at_a_socket_that_only_its_user_may_connect_to_the_debugger_is_opened(listener, tmp_path):
    (file,) = tmp_path.glob("*/debug-*")
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o077 == 0
    (session,) = channel.sessions()
    assert (session.rank, session.pid) == (3, os.getpid())
    with session.connect() as client:
        client.sendall(b"p x\nnext\n")
        with closing(listener.accept(time.monotonic() + PATIENCE.limit)) as opened:
            assert [opened.readline(), opened.readline()] == ["p x\n", "next\n"]
    listener.close()
    assert not file.exists()


def test_the_wait_for_a_debugger_ends_at_the_deadline(listener):
    assert listener.accept(time.monotonic() + 0.1) is None
    assert listener.accept(time.monotonic() - 1) is None


def test_a_session_that_is_seen_takes_connections(tmp_path, monkeypatch):
    monkeypatch.setenv("ODDRANK_DIR", str(tmp_path))
    seen = []

    class Socket(socket.socket):
        def listen(self):
            seen.append(channel.sessions())
            super().listen()

    monkeypatch.setattr(channel.socket, "socket", Socket)
    with closing(Listener(0)):
        assert (seen, len(channel.sessions())) == ([[]], 1)


def test_a_folder_of_any_length_does(tmp_path, monkeypatch):
    folder = tmp_path / ("a" * 120)
    monkeypatch.setenv("ODDRANK_DIR", str(folder))
    with closing(Listener(0)):
        (session,) = channel.sessions()
        session.connect().close()


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


def test_where_nothing_can_be_written_it_is_said_in_one_line(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("ODDRANK_DIR", str(tmp_path / "file"))
    with pytest.raises(OddrankError, match="no debugger can attach: "):
        Listener(3)


def test_sessions_of_dead_processes_and_nonsense_are_no_sessions(listener, tmp_path):
    (file,) = tmp_path.glob("*/debug-*")
    dead = file.with_name(f"debug-rank3-{os.getpid()}-1")
    dead.touch()
    os.mkfifo(file.with_name("debug-rankx"))
    assert [one.pid for one in channel.sessions()] == [os.getpid()]
    assert not dead.exists()
