"""The others wait for a stopped rank, and go on whatever becomes of it."""

import math
import threading

import pytest

from oddrank.debugger import waiting
from oddrank.debugger.waiting import Stopped, Waiting
from oddrank.job_store import JobStore, _OwnMemory
from patience import until


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(waiting, "_BEAT_SECONDS", 0.02)
    monkeypatch.setattr(waiting, "_NOTE_SECONDS", 0.1)


@pytest.fixture
def soon_lost(monkeypatch):
    monkeypatch.setattr(waiting, "_LOST_SECONDS", 0.5)


@pytest.fixture
def stores():
    memory = _OwnMemory()
    return [JobStore(memory, rank, 3, "") for rank in range(3)]


def waits(store, deadline=60.0):
    """Starts to wait for rank 2, as another rank does; returns its thread."""
    thread = threading.Thread(target=Waiting(store, "0/2", 2, deadline).wait)
    thread.start()
    return thread


def test_they_wait_for_the_rank_to_come_and_for_its_debugger_to_end(stores, capfd):
    others = [waits(store) for store in stores[:2]]
    until(lambda: "rank 2 has not come to the breakpoint yet" in capfd.readouterr().err)
    stopped = Stopped(stores[2], "0/2", 60.0)
    stopped.stops("rank 2 stops at train.py:57")
    until(lambda: "rank 2 stops at train.py:57" in capfd.readouterr().err)
    assert all(one.is_alive() for one in others)
    stopped.over()
    for one in others:
        one.join(60)
        assert not one.is_alive()
    assert capfd.readouterr().err == ""


def test_they_go_on_when_it_steps(stores):
    other = waits(stores[0])
    stopped = Stopped(stores[2], "0/2", 60.0)
    stopped.stops("rank 2 stops")
    stopped.steps()
    other.join(60)
    assert not other.is_alive()
    stopped.over()


def test_they_go_on_when_it_does_not_stop(stores, capfd):
    other = waits(stores[0])
    Stopped(stores[2], "0/2", 60.0).over()
    other.join(60)
    assert not other.is_alive()
    assert "stops" not in capfd.readouterr().err


def test_they_go_on_when_its_heartbeat_ends(stores, capfd, soon_lost):
    said = []

    def says(text):
        said.append(capfd.readouterr().err)
        return text in "".join(said)

    other = waits(stores[0])
    stopped = Stopped(stores[2], "0/2", 60.0)
    stopped.stops("rank 2 stops")
    until(lambda: says("rank 2 stops"))
    stopped._poller.stop()  # it is killed, say
    other.join(60)
    assert not other.is_alive()
    assert says("rank 2 is dead or stopped: the others go on")


def test_a_thread_that_hears_too_late_that_the_rank_stops_notes_no_pause(
    stores, monkeypatch, soon_lost
):
    """The store answers the thread only after the rank has gone on without it."""
    heard = threading.Event()
    look = stores[0].look

    def look_late(key):
        assert heard.wait(60)
        return look(key)

    monkeypatch.setattr(stores[0], "look", look_late)
    own = Waiting(stores[0], "0/2", 2, 0.2)
    own.wait()
    own._deadline, own._end = 60.0, math.inf
    monkeypatch.setattr(waiting, "_LOST_SECONDS", 60.0)
    stopped = Stopped(stores[2], "0/2", 60.0)
    stopped.stops("rank 2 stops")
    until(lambda: stores[2].has(["0/2/state"]))
    heard.set()
    until(lambda: own._state == waiting.STOPS)
    until(lambda: own._beat[0] > 0)
    assert not own._paused._is_open
    stopped.over()
    until(lambda: not own._poller._thread.is_alive())


@pytest.mark.parametrize("comes", [False, True])
def test_they_go_on_at_the_deadline(stores, capfd, comes):
    stopped = Stopped(stores[2], "0/2", 60.0)
    if comes:
        stopped.stops("rank 2 stops")
    other = waits(stores[0], deadline=0.2)
    other.join(60)
    assert not other.is_alive()
    assert "the deadline has passed: the others go on" in capfd.readouterr().err
    stopped.over()


def test_they_go_on_when_the_store_is_gone(stores, capfd, monkeypatch):
    def gone(key):
        raise ConnectionError("closed")

    monkeypatch.setattr(stores[0], "look", gone)
    other = waits(stores[0])
    other.join(60)
    assert not other.is_alive()
    assert "does not answer (ConnectionError)" in capfd.readouterr().err
