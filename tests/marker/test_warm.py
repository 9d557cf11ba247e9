"""Forks of a warm parent are as good as fresh interpreters, and where it can't fork it says so."""

import os
import signal
import sys

import pytest

from oddrank.marker import rank_start, warm
from patience import PATIENCE
from texts import texts

MODULES = ("numpy", "marker.warm_programs")


@pytest.fixture(scope="module")
def parent():
    made = warm.WarmParent.start(MODULES, os.environ)
    yield made
    made.close()


@pytest.fixture
def fork(parent, tmp_path):
    """`fork("tell", "x")` runs a function of warm_programs; returns its exit code and output."""

    def start(function, *arguments, more=(), environ=None, **how):
        with open(tmp_path / "out", "w+b") as out, open(os.devnull, "rb") as nothing:
            process = parent.fork(
                [(f"marker.warm_programs:{function}", arguments)],
                environ={**os.environ, **(environ or {})},
                descriptors=[nothing.fileno(), out.fileno(), out.fileno(), *more],
                argv=["train.py", "--lr"], cwd=str(tmp_path), **how,
            )  # fmt: skip
            code = process.wait(PATIENCE.limit)
            assert not os.path.exists(f"/proc/{process.pid}")  # reaped
            out.seek(0)
            return code, out.read().decode()

    return start


def test_a_fork_has_what_was_ordered_for_it(fork, tmp_path):
    code, said = fork("tell", "x", 3, environ={"COLOR": "red"})
    assert code == 0
    assert said == f"{tmp_path} ['train.py', '--lr'] red True x 3\n"
    assert fork("tell")[1].split()[3] == "None"  # nothing stays of the one before
    assert fork("show_environment", environ={"COLOR": "red"}) == (0, "1\n")


def test_further_descriptors_are_given_as_arguments(fork):
    reads, writes = os.pipe()
    assert fork("write_to", "fd:3", "hello", more=[writes])[0] == 0
    os.close(writes)
    assert os.read(reads, 99) == b"hello"
    os.close(reads)


def test_a_fork_ends_as_python_does(fork):
    assert fork("say_goodbye") == (0, "no newline is flushedthe thread ends\ngoodbye\n")
    codes = {
        "0": 0, "7": 7, "raises": 1, "says": 1, "interrupted": -signal.SIGINT,
        "killed": -signal.SIGKILL,
    }  # fmt: skip
    ends = {how: fork("end", how) for how in codes}
    assert {how: code for how, (code, _) in ends.items()} == codes
    assert ends["says"][1] == "no data\n"
    assert ends["raises"][1].endswith("ValueError: no data\n")


def test_what_c_libraries_have_registered_runs_if_it_is_asked_for(fork):
    assert fork("register_with_c") == (0, "")
    assert fork("register_with_c", runs_exit=True) == (0, "told by C")


def test_forks_draw_different_numbers_and_know_nothing_of_the_users(fork, monkeypatch):
    monkeypatch.setitem(sys.modules, "secret_of_the_user", sys)
    drawn = [fork("draw")[1] for _ in range(3)]
    assert len(set(drawn)) == 3
    assert all(line.endswith(" []\n") for line in drawn)


def test_one_warm_parent_serves_until_a_variable_changes_that_python_reads_at_its_start(
    monkeypatch,
):
    monkeypatch.setattr(warm, "_parent", None)
    first = warm.parent(MODULES, {**os.environ, "COLOR": "red"})
    try:
        assert warm.parent(MODULES, {**os.environ, "COLOR": "blue"}) is first
        second = warm.parent(MODULES, {**os.environ, "PYTHONHASHSEED": "1"})
        assert second is not first
        assert not os.path.exists(f"/proc/{first.pid}")
    finally:
        warm.end()


@pytest.mark.parametrize("when", ["while it ends", "after its end"])
def test_a_warm_parent_that_was_killed_forks_no_more_and_says_so(when):
    made = warm.WarmParent.start(MODULES, os.environ)
    order = dict(environ=os.environ, descriptors=[0, 1, 2], argv=[""], cwd="/")
    process = made.fork([("marker.warm_programs:sleep", [])], **order)
    os.kill(made.pid, signal.SIGKILL)
    if when == "after its end":
        os.waitid(os.P_PID, made.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(warm.Cold, match="ended"):
        made.fork([("marker.warm_programs:sleep", [])], **order)
    process.kill()
    made.close()


def test_a_fork_can_be_a_warm_parent_itself(fork):
    assert fork("tell_from_a_fork", environ={"COLOR": "red"}) == (0, "blue\n1\n")


THREAD_AT_IMPORT = """
import threading, time
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
"""


IS_FORKED = texts(__file__)["is forked"]


@pytest.mark.job  # each starts Pythons that import torch
@pytest.mark.parametrize("why", ["the test asks", "the configuration asks", "threads"])
def test_ranks_are_fresh_interpreters_if_somebody_asks_or_starting_python_starts_threads(
    pytester, monkeypatch, why
):
    pytester.makepyfile(IS_FORKED)
    if why == "threads":
        (pytester.mkdir("site") / "sitecustomize.py").write_text(THREAD_AT_IMPORT)
        monkeypatch.setenv("PYTHONPATH", str(pytester.path / "site"))
    asks = why == "the configuration asks"
    done = pytester.runpytest_subprocess("-rA", *["-o", "ranks_fresh=true"] * asks)
    some = why == "the test asks"
    done.assert_outcomes(passed=3 if some else 1, failed=0 if some else 2)
    said = [line for line in done.outlines if line.startswith("The ranks are fresh interpreters")]
    assert len(said) == (why == "threads")  # once, not for each test
    assert all("starting Python starts threads" in line for line in said)


def test_each_of_four_ranks_that_meet_has_its_own_of_everything_random(pytester, source):
    pytester.makepyfile(source)
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_a_rank_gets_what_json_can_hold_of_the_input_of_an_xdist_worker():
    loops: list[object] = []
    loops.append(loops)
    plain = {"workerid": "gw0", "seed": 1}
    odd = {"tuple": {(1, 2): 3}, "bytes": b"x", "set": {1}, "loops": loops}
    assert rank_start._plain({**odd, **plain}) == plain
