"""The others wait for a stopped rank, and go on whatever becomes of it."""

import io
import math
import sys
import threading
from unittest.mock import Mock

import pytest

from oddrank.debugger import waiting
from oddrank.debugger.waiting import Stopped, Waiting
from oddrank.job_store import JobStore, _OwnMemory
from patience import PATIENCE, until


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(waiting, "_BEAT_SECONDS", 0.02)
    monkeypatch.setattr(waiting, "_NOTE_SECONDS", 0.1)


def job():
    """Returns the stores of a job's three ranks."""
    memory = _OwnMemory()
    return [JobStore(memory, rank, 3, "") for rank in range(3)]


def waits(store, deadline=600.0):
    """Starts to wait for rank 2, as another rank does; returns its thread."""
    thread = threading.Thread(target=Waiting(store, "0/2", 2, deadline).wait)
    thread.start()
    return thread


def goes_on(thread):
    thread.join(PATIENCE.limit)
    assert not thread.is_alive()


def test_they_wait_for_the_rank_to_come_and_for_its_debugger_to_end(monkeypatch):
    monkeypatch.setattr(sys, "stderr", printed := io.StringIO())
    stores = job()
    others = [waits(store) for store in stores[:2]]
    until(lambda: "rank 2 has not come to the breakpoint yet" in printed.getvalue())
    stopped = Stopped(stores[2], "0/2", 600.0)
    stopped.stops("rank 2 stops at train.py:57")
    until(lambda: "rank 2 stops at train.py:57" in printed.getvalue())
    assert all(one.is_alive() for one in others)
    stopped.over()
    for one in others:
        goes_on(one)
    assert printed.getvalue().count("\n") == 2


def test_they_go_on_when_it_steps_does_not_stop_is_killed_or_is_late(monkeypatch):
    monkeypatch.setattr(sys, "stderr", printed := io.StringIO())
    late = "the deadline has passed: the others go on"
    for why, states, deadline, said in (
        ("steps", ("stops", "steps"), 600.0, ""),
        ("does not stop", ("over",), 600.0, ""),
        ("is killed", ("stops", "is killed"), 600.0, "rank 2 is dead or stopped: the others go on"),
        ("does not come", (), 0.2, late),
        ("stops for long", ("stops",), 0.2, late),
    ):
        # A rank that lives may be silent for long on a busy machine.
        monkeypatch.setattr(waiting, "_LOST_SECONDS", 0.5 if why == "is killed" else 600.0)
        stores, before = job(), len(printed.getvalue())
        other, stopped = waits(stores[0], deadline), Stopped(stores[2], "0/2", 600.0)
        for state in states:
            if state == "stops":
                stopped.stops("rank 2 stops")
            elif state == "is killed":
                until(lambda: "rank 2 stops" in printed.getvalue()[before:])  # noqa: B023
                stopped._poller.stop()
            else:
                getattr(stopped, state)()
        goes_on(other)
        words = printed.getvalue()[before:]
        assert said in words, why
        assert "stops" not in words or why != "does not stop"
        stopped.over()


def test_a_thread_that_hears_too_late_that_the_rank_stops_notes_no_pause(monkeypatch):
    """The store answers the thread only after the rank has gone on without it."""
    monkeypatch.setattr(waiting, "_LOST_SECONDS", 0.5)
    stores, heard = job(), threading.Event()
    look = stores[0].look

    def look_late(key):
        assert heard.wait(PATIENCE.limit)
        return look(key)

    monkeypatch.setattr(stores[0], "look", look_late)
    own = Waiting(stores[0], "0/2", 2, 0.2)
    own.wait()
    own._deadline, own._end = 600.0, math.inf
    monkeypatch.setattr(waiting, "_LOST_SECONDS", 600.0)
    stopped = Stopped(stores[2], "0/2", 600.0)
    stopped.stops("rank 2 stops")
    until(lambda: stores[2].has(["0/2/state"]))
    heard.set()
    until(lambda: own._state == waiting.STOPS)
    until(lambda: own._beat[0] > 0)
    assert not own._paused._is_open
    stopped.over()
    until(lambda: not own._poller._thread.is_alive())


def test_they_go_on_when_the_store_is_gone(capfd, monkeypatch):
    store = job()[0]
    monkeypatch.setattr(store, "look", Mock(side_effect=ConnectionError("closed")))
    goes_on(waits(store))
    assert "does not answer (ConnectionError)" in capfd.readouterr().err
