"""Work in child processes: one that hangs, breaks or is cut short costs nothing but itself."""

import os
import signal
import threading
import time

import pytest

from dead_fuse import dead_file_system
from oddrank.errors import OddrankError
from oddrank.run.collect import children
from oddrank.run.collect.children import Stop, Task


def run(*tasks, seconds=60.0, stop=None):
    return children.run(list(tasks), time.monotonic() + seconds, stop or Stop())


def hangs(say):
    say({"at": "/nfs/data"})
    say({"done": 1})
    signal.pause()


def answers(say):
    say({"done": 2})


def test_one_that_hangs_is_named_with_what_it_did_and_the_others_are_done():
    hung, done = run(Task("hangs", hangs, 0.5), Task("answers", answers, 30.0))
    assert (hung.why, hung.of("done")) == ("no answer within 0.5 s, at /nfs/data", [1])
    assert (done.why, done.of("done")) == ("", [2])


def test_one_that_raises_says_why():
    def refuses(say):
        raise OddrankError("no such job")

    def breaks(say):
        os.kill(os.getpid(), signal.SIGSEGV)

    refused, broken = run(Task("refuses", refuses, 30.0), Task("breaks", breaks, 30.0))
    assert (refused.why, broken.why) == ("no such job", "signal 11 ended it")


def test_a_child_has_no_open_file_of_its_parent_that_could_outlive_it():
    ours, theirs = os.pipe()
    os.set_inheritable(theirs, True)

    def lists(say):
        say({"open": [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")
                      if os.path.lexists(f"/proc/self/fd/{n}")]})  # fmt: skip

    (result,) = run(Task("lists", lists, 30.0))
    os.close(ours)
    os.close(theirs)
    (opened,) = result.of("open")
    assert opened[:3] == ["/dev/null"] * 3
    assert sum(name.startswith("pipe:") for name in opened) == 1


def test_after_a_signal_what_runs_is_cut_short_and_what_is_done_is_kept():
    stop = Stop()
    with stop.on_signals():
        timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM))
        timer.start()
        begin = time.monotonic()
        done, hung = run(Task("answers", answers, 60), Task("hangs", hangs, 600), stop=stop,
                         seconds=600)  # fmt: skip
        timer.join()
    assert (done.why, stop.by) == ("", "SIGTERM")
    assert (hung.why, hung.of("done")) == ("cut short by SIGTERM, at /nfs/data", [1])
    assert time.monotonic() - begin < 300


def test_what_a_child_has_started_ends_with_it(tmp_path):
    def starts(say):
        child = os.fork()
        if child == 0:
            signal.pause()
        say({"pid": child})
        signal.pause()

    (result,) = run(Task("starts", starts, 1.0))
    (pid,) = result.of("pid")
    end = time.monotonic() + 60
    while os.path.exists(f"/proc/{pid}"):
        with open(f"/proc/{pid}/stat") as file:
            if file.read().rpartition(")")[2].split()[0] == "Z":
                break
        assert time.monotonic() < end


@pytest.mark.needs("fuse")
def test_one_that_cannot_be_killed_is_left_behind_and_named(tmp_path):
    dead = tmp_path / "dead"
    dead.mkdir()

    def reads(say):
        say({"at": str(dead)})
        os.listdir(dead)

    with dead_file_system(dead, takes=True):
        (result,) = run(Task("reads", reads, 0.5))
        assert result.why.startswith(f"no answer within 0.5 s, at {dead}; its process ")
        assert "hangs in the kernel" in result.why
        assert result.why.endswith("and was left behind")
