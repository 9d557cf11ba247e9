"""Code that runs too often to be recorded is sampled: its place stays known, and readers say so."""

import re
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

import patience
from oddrank.top import command as top
from oddrank.trace import where
from texts import texts

TEXTS = texts(__file__)

NEW = sys.version_info >= (3, 12)


@pytest.fixture
def limited(script):
    """Runs a script that begins with the functions of `hot`, with a small budget."""

    def run(source, **options):
        return script.armed(TEXTS["hot"] + source, "overhead=1e-3", **options)

    return run


@pytest.fixture
def until(script):
    """Starts such a script; reads its record until it is as wanted. Returns process and rank."""
    with ExitStack() as ends:

        def run(source, wanted):
            begin = "; armed = oddrank.arm(overhead=1e-3); print('armed', flush=True)"
            process = ends.enter_context(script.running(f"{begin}{TEXTS['hot']}{source}"))

            def found():
                assert process.poll() is None
                (rank,) = script.records()
                return wanted(rank) and rank

            return process, patience.until(found)

        yield run


def spins(rank):
    """Returns whether the main thread was sampled in a function that spins."""
    return rank.main is not None and rank.main.sampled and rank.main.stack[-1].function == "spins"


def line_in(script, rank):
    """Returns the source of the innermost frame's line."""
    line = rank.main.stack[-1].line
    assert line is not None
    return (script.folder / "script.py").read_text().splitlines()[line - 1]


def spun_and_killed(script, until):
    process, rank = until(TEXTS["spins"], spins)
    assert ("called too often: all code" in "\n".join(where.text([rank], "job"))) != NEW
    assert re.search(r"MainThread.*, sampled \d.* ago", "\n".join(where.text([rank], "job")))
    process.kill()
    process.wait()
    (dead,) = script.records()
    assert dead.alive is False
    assert [frame.function for frame in dead.main.stack] == ["<module>", "spins"]
    assert "# spins" in line_in(script, dead)
    assert re.search(r"MainThread, sampled at \d", "\n".join(where.text([dead], "job")))
    for file in script.files:
        file.unlink()


@pytest.mark.parametrize("times", [3, pytest.param(100, marks=pytest.mark.soak)])
def test_a_hot_function_that_spins_is_told_with_its_line_also_after_sigkill(script, until, times):
    for _ in range(times):
        spun_and_killed(script, until)


def test_hot_code_that_calls_hot_code_is_told_while_it_runs(script, until):
    def in_both(rank):
        lowered = {each.function for each in rank.lowered}
        if rank.main is None or not (rank.sampled_since or {"outer", "hot"} & lowered):
            return False
        functions = [frame.function for frame in rank.main.stack[-2:]]
        return functions == ["outer", "hot"] and None not in [f.line for f in rank.main.stack]

    until(TEXTS["outer"], in_both)


def test_a_thread_that_starts_while_code_is_sampled_has_its_place(limited, script, source):
    limited(source)
    (rank,) = script.records()
    (late,) = [thread for thread in rank.threads if thread.name == "late"]
    assert late.stack
    at = next(frame for frame in late.stack if frame.function == "waits")
    lines = (script.folder / "script.py").read_text().splitlines()
    assert lines[at.line - 1].strip() == "event.wait()"
    assert (late.sampled is None) == NEW


@pytest.mark.skipif(NEW, reason="its code always gives events")
def test_a_thread_that_sleeps_while_others_are_sampled_and_tried_again_has_no_new_event(until):
    rests, lasts = set(), set()

    def thrice(rank):
        if rank.sampled_since is not None:
            rests.add(round(rank.sampled_since, 3))
            lasts.add(rank.main.last)
        return len(rests) == 3

    until("threading.Thread(target=spins, daemon=True).start()\ntime.sleep(1000)\n", thrice)
    # Each reading has a newer picture of the clocks: the same ticks move by nanoseconds.
    assert max(lasts) - min(lasts) < 0.001


def test_a_tracer_of_the_script_is_left_alone_while_code_is_sampled(limited, script, source):
    done = limited(source)
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")
    assert done.stdout.split() == ["call", "line", "return"]
    (rank,) = script.records()
    assert rank.main.sampled is not None or line_in(script, rank).endswith("# fatal")


def test_a_gil_that_is_held_is_told(until, script):
    _, rank = until(TEXTS["a gil that is held"], lambda rank: rank.gil_wanted is not None)
    assert re.search(r"\n  GIL held for \d", "\n".join(where.text([rank], "job")))
    now = top.look(script.files)
    ((row,),) = [top.rows(now, now)]
    assert "GIL held for" in str(row[top.COLUMNS.index("in")])


def test_a_record_of_code_that_was_quiet_is_not_said_to_be_sampled(script):
    rank = script.rank("\nos.kill(os.getpid(), signal.SIGKILL)\n")
    assert rank.main.sampled is None
    assert rank.gil_wanted is None
    assert "sampled" not in "\n".join(where.text([rank], "job"))


def test_forks_meet_no_thread_and_a_child_samples_itself(limited, script, source):
    done = limited(source)
    assert done.stderr == ""
    parent, child = sorted(script.records(), key=lambda rank: rank.is_child)
    assert parent.is_child is False
    assert child.main.sampled is not None
    assert "# spins" in line_in(script, child)


@pytest.mark.parametrize("how", ["pass", "raise SystemExit(0)", "sys.exit()"])
def test_python_ends_while_it_samples(limited, how):
    for _ in range(2):
        done = limited(f"{TEXTS['ends']}{how}\n")
        assert (done.returncode, done.stderr) == (0, "")


def test_no_signal_is_for_the_sampler(until):
    process, _ = until(TEXTS["spins"], spins)
    (status,) = [
        task / "status"
        for task in Path(f"/proc/{process.pid}/task").iterdir()
        if task.name != str(process.pid)
    ]
    (blocked,) = re.findall(r"^SigBlk:\s+(\w+)$", status.read_text(), flags=re.M)
    # The kernel lets nobody block SIGKILL and SIGSTOP, and libc its own two.
    own = {signal.SIGKILL, signal.SIGSTOP, 32, 33}
    every = {number for number in range(1, 65) if number not in own}
    assert {number for number in every if not int(blocked, 16) >> (number - 1) & 1} == set()


def test_arming_again_ends_and_begins_sampling(limited, script, source):
    limited(source)
    (rank,) = script.records()
    assert spins(rank)
