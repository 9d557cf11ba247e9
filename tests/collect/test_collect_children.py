"""Work in child processes: one that hangs, breaks or is cut short costs nothing but itself."""

import os
import signal
import time

import pytest

from dead_fuse import dead_file_system
from oddrank.collect import children
from oddrank.collect.children import Stop, Task
from oddrank.errors import OddrankError
from oddrank.machine import process_state
from patience import until
from processes import most_open_files


def run(*tasks, seconds=60.0):
    return children.run_all(list(tasks), time.monotonic() + seconds, Stop())


def hung(work, heard):
    """Runs a task that hangs, with a deadline that is long enough for it to begin."""
    seconds = 0.5
    while True:
        result, done = run(Task("hangs", work, seconds), Task("answers", answers, 600), seconds=600)
        assert (done.why, done.of("done")) == ("", [2])
        assert result.why.startswith(f"no answer within {seconds:.3g} s")
        if heard(result):
            return result
        seconds *= 4


def answers(say):
    say({"done": 2})


def test_one_that_raises_says_why():
    def refuses(say):
        raise OddrankError("no such job")

    def breaks(say):
        os.kill(os.getpid(), signal.SIGSEGV)

    refused, broken = run(Task("refuses", refuses, 600), Task("breaks", breaks, 600), seconds=600)
    assert (refused.why, broken.why) == ("no such job", "SIGSEGV ended it")
    assert (refused.refused, broken.refused) == (True, False)


def test_a_child_has_no_open_file_of_its_parent_however_many_there_are():
    """A judge of 1,300 ranks has as many connections: a child that hangs would keep them open."""

    def lists(say):
        links = [(n, f"/proc/self/fd/{n}") for n in map(int, os.listdir("/proc/self/fd"))]
        say({"open": [(n, os.readlink(link)) for n, link in links if os.path.lexists(link)]})

    high, pipe = 1500, os.pipe()
    try:
        os.set_inheritable(pipe[1], True)
        with most_open_files(high + 1):
            os.dup2(pipe[1], high)
            (result,) = run(Task("lists", lists, 600), seconds=600)
    finally:
        for number in (*pipe, high):
            os.close(number)
    ((*first, (last, own)),) = result.of("open")
    assert first == [[n, os.devnull] for n in range(3)]
    assert own.startswith("pipe:"), last  # to its parent


def test_what_a_child_has_started_ends_with_it(tmp_path):
    def starts(say):
        child = os.fork()
        if child == 0:
            signal.pause()
        say({"pid": child})
        signal.pause()

    (pid,) = hung(starts, lambda result: result.said).of("pid")
    until(lambda: process_state(pid) in ("", "Z"))


def test_one_that_ended_in_time_is_done_though_it_is_read_late(monkeypatch):
    """On a busy machine this process may be paused meanwhile."""
    hear = children._hear

    def hears_late(child):
        until(lambda: process_state(child.pid) == "Z" and time.monotonic() > child.end)
        return hear(child)

    monkeypatch.setattr(children, "_hear", hears_late)
    (result,) = run(Task("answers", answers, 0.5))
    assert (result.why, result.of("done")) == ("", [2])


def test_one_that_says_ever_more_is_ended_all_the_same():
    def floods(say):
        while True:
            say({"more": "x" * 1000})

    (result,) = run(Task("floods", floods, 0.5))
    assert result.why.startswith("no answer within 0.5 s")


def test_one_that_waits_for_a_core_to_end_in_does_not_hang():
    pid = os.fork()
    if pid == 0:
        end = time.monotonic() + 4 * children._LAST_WAIT
        while time.monotonic() < end:
            pass
        os._exit(3)
    status = children._reaped(pid)
    assert status is not None
    assert os.waitstatus_to_exitcode(status) == 3


@pytest.mark.needs("fuse")
def test_one_that_cannot_be_killed_is_left_behind_and_named(tmp_path):
    dead = tmp_path / "dead"
    dead.mkdir()

    def reads(say):
        say({"at": str(dead)})
        os.listdir(dead)

    with dead_file_system(dead, takes=True):
        result = hung(reads, lambda result: "left behind" in result.why)
        assert f" s, at {dead}; its process " in result.why
        assert "hangs in the kernel" in result.why
        assert result.why.endswith("and was left behind")
