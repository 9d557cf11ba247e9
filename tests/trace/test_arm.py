"""oddrank.arm(): its effects in a script."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from oddrank import OddrankError
from oddrank.trace import packages
from patience import until


def test_a_killed_script_shows_the_line_it_died_in_and_all_its_callers(script):
    done = script(
        """
        import os, signal
        import oddrank
        oddrank.arm()
        def inner():
            os.kill(os.getpid(), signal.SIGKILL)
        def outer():
            inner()
        outer()
        """,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    (rank,) = script.records()
    assert rank.alive is False
    (name,) = {Path(frame.file).name for frame in rank.main.stack}
    assert name == "script.py"
    lines = [(frame.function, frame.line) for frame in rank.main.stack]
    assert lines == [("<module>", 9), ("outer", 8), ("inner", 6)]


def test_a_running_script_is_seen_alive_without_ptrace(script):
    def sleeps():
        (rank,) = script.records(look=0.01)
        return script.functions(rank) == ["<module>", "waits"] and rank.main.state == "asleep"

    process = script(
        """
        import sys, time
        import oddrank
        oddrank.arm()
        def waits():
            oddrank.step(7)
            print("here", flush=True)
            time.sleep(60)
        waits()
        """,
        wait=False,
    )
    try:
        assert process.stdout.readline() == "here\n"
        until(sleeps)
        (rank,) = script.records(look=0.1)
    finally:
        process.kill()
        process.wait()
    assert (rank.alive, rank.step) == (True, 7)
    assert script.functions(rank) == ["<module>", "waits"]
    assert (rank.main.state, rank.main.cpu) == ("asleep", 0.0)
    assert rank.main.name == "MainThread"


def test_threads_are_recorded_with_their_names_also_those_that_ran_before(script):
    def stack_of(thread):
        return [frame.function.rpartition(".")[2] for frame in thread.stack]

    def both_wait_again():
        (rank,) = script.records(look=0.01)
        waiting = [stack_of(thread)[-1:] == ["wait"] for thread in rank.threads]
        return sum(waiting) == 2 and all(thread.state == "asleep" for thread in rank.threads)

    process = script(
        """
        import os, queue, sys, threading, time
        import oddrank
        def waits_in_a_queue(q):
            while True:
                q.get()
                q.task_done()
        before, after = queue.Queue(), queue.Queue()
        early = threading.Thread(target=waits_in_a_queue, args=(before,), name="before")
        early.start()
        while sys._current_frames()[early.ident].f_code.co_name != "wait":
            time.sleep(0.01)
        oddrank.arm()
        threading.Thread(target=waits_in_a_queue, args=(after,), name="after").start()
        for q in (before, after):
            q.put(1)
            q.join()
        print("taken", flush=True)
        sys.stdin.readline()
        os._exit(0)
        """,
        wait=False,
        stdin=subprocess.PIPE,
    )
    try:
        assert process.stdout.readline() == "taken\n"
        until(both_wait_again)
        process.communicate("\n", timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    (rank,) = script.records()
    by_name = {thread.name: thread for thread in rank.threads}
    assert by_name.keys() == {"MainThread", "before", "after"}
    for name in ("before", "after"):
        assert stack_of(by_name[name])[-3:] == ["waits_in_a_queue", "get", "wait"]


def test_forked_and_spawned_children_have_small_files_of_their_own(script):
    script(
        """
        import multiprocessing, os, signal
        import oddrank
        def child():
            os.kill(os.getpid(), signal.SIGKILL)
        if __name__ == "__main__":
            oddrank.arm()
            for method in ("fork", "spawn", "forkserver"):
                process = multiprocessing.get_context(method).Process(target=child)
                process.start()
                process.join()
                assert process.exitcode == -signal.SIGKILL
        """,
        RANK="3",
        WORLD_SIZE="8",
        LOCAL_RANK="3",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="29500",
    )
    parents = [rank for rank in script.records() if not rank.is_child]
    children = [rank for rank in script.records() if rank.is_child]
    assert [rank.rank for rank in parents] == [3]
    assert [rank.rank for rank in children] == [3, 3, 3]
    assert all(script.functions(rank)[-1] == "child" for rank in children)
    assert {os.path.getsize(rank.file) for rank in children} == {256 << 10}


def test_a_child_that_imports_a_script_which_arms_at_its_top_is_a_child(script):
    script(
        """
        import multiprocessing
        import oddrank
        oddrank.arm()
        def child():
            pass
        if __name__ == "__main__":
            process = multiprocessing.get_context("spawn").Process(target=child)
            process.start()
            process.join()
        """
    )
    assert sorted(rank.is_child for rank in script.records()) == [False, True]


# Another tool can take all events only from settrace.
@pytest.mark.parametrize("script", ["settrace"], indirect=True)
def test_a_child_that_arms_before_its_first_event_has_one_record(script):
    script(
        """
        import os, sys
        import oddrank
        def nothing(*_):
            return None
        oddrank.arm({"*": "off"})
        sys.settrace(nothing)
        sys.setprofile(nothing)
        if os.fork():
            os.wait()
        else:
            sys.settrace(None)
            sys.setprofile(None)
            oddrank.arm({"*": "off"})
            (lambda: 1)()
            os._exit(0)
        """
    )
    pids = [rank.pid for rank in script.records()]
    assert len(pids) == len(set(pids)) == 2


def test_armed_for_a_block_and_for_a_function_only(script):
    done = script(
        """
        import sys
        import oddrank
        new = sys.version_info >= (3, 12)
        tool = lambda: sys.gettrace() or (sys.monitoring.get_tool(4) if new else None)
        with oddrank.arm() as armed:
            inside = tool()
            path = armed.path
        @oddrank.arm
        def bare():
            return tool()
        @oddrank.arm(packages={"*": "off"})
        def configured():
            return tool()
        print(inside is not None, tool(), bare() is not None, configured() is not None, tool())
        with oddrank.arm() as again:
            print(again.path == path)
        """
    )
    assert done.stdout.split("\n")[:2] == ["True None True True None", "True"]
    assert len(script.records()) == 1


def test_a_coroutine_and_a_generator_are_armed_until_they_end(script):
    done = script(
        """
        import asyncio
        import oddrank
        from oddrank import _native
        on = lambda: _native.core().trace_armed()
        @oddrank.arm
        async def coroutine():
            await asyncio.sleep(0)
            return on()
        @oddrank.arm(packages={"*": "off"})
        def generator():
            yield on()
            return on()
        def ends():
            print((yield from generator()))
        print(asyncio.run(coroutine()), on(), list(ends()), on())
        try:
            @oddrank.arm
            async def both():
                yield
        except oddrank.OddrankError as error:
            print(error)
        """
    )
    assert done.stdout.startswith("True\nTrue False [True] False\n")
    assert "both is an asynchronous generator" in done.stdout


def test_armed_twice_the_first_one_counts(script):
    done = script(
        """
        import oddrank
        first = oddrank.arm()
        with oddrank.arm():
            pass
        from oddrank import _native
        print(_native.core().trace_armed(), bool(first.path))
        first.disarm()
        print(_native.core().trace_armed())
        """
    )
    assert done.stdout == "True True\nFalse\n"


def test_packages_as_text_as_names_and_as_levels():
    assert dict(packages.rules("a=calls,b")).items() >= {"a": "calls", "b": "lines"}.items()
    assert dict(packages.rules(["a"]))["a"] == "lines"
    assert dict(packages.rules())["torch.distributed"] == "where"
    with pytest.raises(OddrankError, match="loud"):
        packages.rules({"a": "loud"})


def test_a_package_takes_away_the_defaults_of_its_subpackages_and_a_star_all_of_them():
    assert "torch.distributed" not in dict(packages.rules({"torch": "calls"}))
    assert "threading" in dict(packages.rules({"torch": "calls"}))
    left = [name for name, _ in packages.rules({"*": "off"}) if "oddrank" not in name]
    assert left == ["*"]


def test_a_folder_goes_before_the_names_of_what_lies_in_it(script, tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mine.py").write_text("def here(work):\n    work()\n")
    script(
        """
        import os, sys
        sys.path.insert(0, f"{os.path.dirname(__file__)}/own")
        import oddrank, mine
        oddrank.arm({f"{os.path.dirname(__file__)}/own/": "off", "mine": "lines", "*": "lines"})
        mine.here(lambda: os.kill(os.getpid(), 9))
        """,
        check=False,
    )
    (rank,) = script.records()
    assert script.functions(rank) == ["<module>", "<lambda>"]


SUBINTERPRETER = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
run = getattr(interpreters, "exec", None) or interpreters.run_string
run(interpreters.create(), "try:\\n    {line}\\nexcept RuntimeError as e:\\n print(e, flush=True)")
"""


@pytest.mark.parametrize(
    "line", ["import oddrank; oddrank.arm()", "from oddrank import _native; _native.core()"]
)
def test_a_subinterpreter_gets_an_error_and_hangs_nothing(line):
    done = subprocess.run(
        [sys.executable, "-c", SUBINTERPRETER.format(line=line)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if "No module named '_xxsubinterpreters'" in done.stderr:
        pytest.skip("this Python has no subinterpreters")
    assert done.stdout.startswith("oddrank works in the main interpreter only"), done.stderr
