"""oddrank.arm(): its effects in a script, and its warnings at the line of the user's code."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from oddrank import OddrankError
from oddrank.trace import packages
from patience import PATIENCE, until
from processes import captured
from texts import cases, texts


def test_a_running_script_is_seen_alive_without_ptrace(script, source):
    def sleeps():
        (rank,) = script.records(look=0.1)
        asleep = (rank.main.state or "").startswith("asleep") and rank.main.cpu == 0.0
        return asleep and script.functions(rank) == ["<module>", "waits"] and rank

    with script.running(source):
        rank = until(sleeps)
    assert (rank.alive, rank.step, rank.main.name) == (True, 7, "MainThread")


def test_threads_are_recorded_with_their_names_also_those_that_ran_before(script, source):
    def stack_of(thread):
        return [frame.function.rpartition(".")[2] for frame in thread.stack]

    def both_wait_again():
        (rank,) = script.records(look=0.01)
        waiting = [stack_of(thread)[-1:] == ["wait"] for thread in rank.threads]
        return sum(waiting) == 2 and all(
            thread.state.startswith("asleep") for thread in rank.threads
        )

    with script.running(source) as process:
        until(both_wait_again)
        process.communicate("\n", timeout=PATIENCE.limit)
    assert process.returncode == 0
    (rank,) = script.records()
    by_name = {thread.name: thread for thread in rank.threads}
    assert by_name.keys() == {"MainThread", "before", "after"}
    for name in ("before", "after"):
        assert stack_of(by_name[name])[-3:] == ["waits_in_a_queue", "get", "wait"]


def test_forked_and_spawned_children_have_small_files_of_their_own(script, source):
    script(
        source,
        RANK="3", WORLD_SIZE="8", LOCAL_RANK="3", MASTER_ADDR="127.0.0.1", MASTER_PORT="29500"
    )  # fmt: skip
    parents = [rank for rank in script.records() if not rank.is_child]
    children = [rank for rank in script.records() if rank.is_child]
    assert [rank.rank for rank in parents] == [3]
    assert [rank.rank for rank in children] == [3, 3, 3]
    assert all(script.functions(rank)[-1] == "child" for rank in children)
    assert {os.path.getsize(rank.file) for rank in children} == {256 << 10}


def test_a_child_that_imports_a_script_which_arms_at_its_top_is_a_child(script, source):
    script.armed(source)
    assert sorted(rank.is_child for rank in script.records()) == [False, True]


# Up to 3.11 another tool can take all events.
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="no tool can")
def test_a_child_that_arms_before_its_first_event_has_one_record(script, source):
    script(source)
    pids = [rank.pid for rank in script.records()]
    assert len(pids) == len(set(pids)) == 2


# Scripts and what they print.
SAYS = cases(__file__)


@pytest.mark.parametrize("name", SAYS)
def test_how_long_it_is_armed(script, name):
    source, _, says = SAYS[name]
    assert script(source).stdout == says
    assert len(script.records()) == 1


def test_packages_are_names_with_levels_that_replace_the_defaults_below_them():
    assert dict(packages.rules("a=calls,b")).items() >= {"a": "calls", "b": "lines"}.items()
    assert dict(packages.rules(["a"]))["a"] == "lines"
    assert dict(packages.rules())["torch.distributed"] == "where"
    below = dict(packages.rules({"torch": "calls"}))
    assert ("torch.distributed" in below, "threading" in below) == (False, True)
    assert [name for name, _ in packages.rules({"*": "off"}) if "oddrank" not in name] == ["*"]
    with pytest.raises(OddrankError, match="loud"):
        packages.rules({"a": "loud"})
    with pytest.raises(OddrankError, match="packages=5: give names"):
        packages.rules(5)


def test_a_folder_goes_before_the_names_of_what_lies_in_it(script, source):
    (script.folder / "own").mkdir()
    (script.folder / "own" / "mine.py").write_text("def here(work):\n    work()\n")
    script(source)
    (rank,) = script.records()
    assert script.functions(rank) == ["<module>", "<lambda>"]


SUBINTERPRETER = texts(__file__)["subinterpreter"]


@pytest.mark.parametrize(
    "line", ["import oddrank; oddrank.arm()", "from oddrank import _native; _native.core()"]
)
def test_a_subinterpreter_gets_an_error_and_hangs_nothing(line):
    done = captured([sys.executable, "-c", SUBINTERPRETER.format(line=line)])
    if "No module named '_xxsubinterpreters'" in done.stderr:
        pytest.skip("this Python has no subinterpreters")
    assert done.stdout.startswith("oddrank works in the main interpreter only"), done.stderr


def warnings_of(done):
    """Returns (line of the script, its text, message) of each warning."""
    found = re.findall(r"script\.py:(\d+): RuntimeWarning: (.*)\n  (.*)\n", done.stderr)
    assert done.stderr.count("RuntimeWarning") == len(found), done.stderr
    return [(int(line), source, message) for line, message, source in found]


FAULTS = {
    "a size that is none": ({"ODDRANK_TRACE_MB": "much"}, "ODDRANK_TRACE_MB='much' is no size"),
    "a launcher that contradicts itself": (
        {"RANK": "7", "WORLD_SIZE": "2", "LOCAL_RANK": "7", "MASTER_ADDR": "a", "MASTER_PORT": "1"},
        "oddrank records this process as rank 7: ",
    ),
}


@pytest.mark.parametrize(("environ", "says"), FAULTS.values(), ids=FAULTS.keys())
def test_a_warning_is_at_the_line_that_arms(environ, says, script, source):
    done = script(source, **environ)
    found = warnings_of(done)
    assert all(message.startswith(says) for _, _, message in found)
    # Python 3.10 calls a decorator at the line of the decorated function.
    decorated = (10, "@oddrank.arm") if sys.version_info >= (3, 11) else (11, "def function():")
    assert [(line, source) for line, source, _ in found] == [
        (3, "return oddrank.arm()"), (7, "with armed:"), decorated, (13, "function()"),
    ]  # fmt: skip


def test_a_folder_that_cannot_be_used_is_named_and_so_is_the_one_taken_instead(script):
    blocked = script.folder / "blocked"
    blocked.write_text("no folder")
    job = f"test-{os.getpid()}"
    done = script(
        "\nprint(oddrank.arm().path)\n", ODDRANK_DIR=str(blocked), ODDRANK_JOB=job
    )  # fmt: skip
    path = Path(done.stdout.strip())
    try:
        assert path.is_file()
        assert blocked not in path.parents
        ((line, _, message),) = warnings_of(done)
        assert line == 2
        said = f"ODDRANK_DIR={blocked}: the folder must have room, and only you may write to it"
        assert message == f"oddrank cannot use {said}. The record is {path}"
    finally:
        if path.parent.name == job:
            shutil.rmtree(path.parent)


def test_without_room_the_script_runs_as_without_with_one_warning(script, source):
    blocked = script.folder / "blocked"
    blocked.write_text("no folder")
    done = script(source, ODDRANK_DIR=str(blocked))
    assert done.stdout == "ran in 1 thread\n"
    ((line, _, message),) = warnings_of(done)
    assert (line, message.startswith("oddrank records nothing")) == (5, True)


def test_a_process_that_has_all_keys_for_data_of_threads_runs_as_without(script, source):
    done = script(source)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    ((_, _, message),) = warnings_of(done)
    assert message.startswith("oddrank records nothing: no key for data of threads is left")
