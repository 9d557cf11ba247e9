"""oddrank.arm(): what a script that calls it gets, and what it must never do to the script."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from oddrank import OddrankError
from oddrank.trace import jobs, packages, ranks

HOOK = "settrace" if sys.version_info < (3, 12) else "monitoring"


@pytest.fixture
def script(tmp_path):
    """Runs lines of Python as a script of its own; its records are in tmp_path/records."""

    def run(source, *, check=True, wait=True, **environ):
        file = tmp_path / "script.py"
        file.write_text(textwrap.dedent(source))
        process = subprocess.Popen(
            [sys.executable, str(file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "ODDRANK_DIR": str(tmp_path / "records"), **environ},
        )
        if not wait:
            return process
        out, err = process.communicate(timeout=60)
        assert not check or process.returncode == 0, err
        return subprocess.CompletedProcess([], process.returncode, out, err)

    return run


def records(tmp_path):
    found, refused = ranks.read(jobs.files([str(tmp_path / "records")]))
    assert not refused
    return found


def functions(rank):
    assert rank.main is not None
    return [frame.function for frame in rank.main.stack]


def test_a_killed_script_shows_the_line_it_died_in_and_all_its_callers(script, tmp_path):
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
    (rank,) = records(tmp_path)
    assert rank.alive is False
    (name,) = {Path(frame.file).name for frame in rank.main.stack}
    assert name == "script.py"
    lines = [(frame.function, frame.line) for frame in rank.main.stack]
    assert lines == [("<module>", 9), ("outer", 8), ("inner", 6)]


def test_a_running_script_is_seen_alive_without_ptrace(script, tmp_path):
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
        time.sleep(0.1)
        found, _ = ranks.read(jobs.files([str(tmp_path / "records")]), look=0.1)
    finally:
        process.kill()
        process.wait()
    (rank,) = found
    assert (rank.alive, rank.step) == (True, 7)
    assert functions(rank) == ["<module>", "waits"]
    assert (rank.main.state, rank.main.cpu) == ("asleep", 0.0)
    assert rank.main.name == "MainThread"


def test_threads_are_recorded_with_their_names_also_those_that_ran_before(script, tmp_path):
    script(
        """
        import os, queue, threading, time
        import oddrank
        def waits_in_a_queue(q):
            while True:
                q.get()
        before, after = queue.Queue(), queue.Queue()
        threading.Thread(target=waits_in_a_queue, args=(before,), name="before").start()
        time.sleep(0.1)
        oddrank.arm()
        threading.Thread(target=waits_in_a_queue, args=(after,), name="after").start()
        for q in (before, after):
            q.put(1)
        time.sleep(0.3)
        os._exit(0)
        """
    )
    (rank,) = records(tmp_path)
    by_name = {thread.name: thread for thread in rank.threads}
    assert by_name.keys() == {"MainThread", "before", "after"}
    for name in ("before", "after"):
        stack = [frame.function.rpartition(".")[2] for frame in by_name[name].stack]
        assert stack[-3:] == ["waits_in_a_queue", "get", "wait"]


def test_forked_and_spawned_children_have_small_files_of_their_own(script, tmp_path):
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
    parents = [rank for rank in records(tmp_path) if not rank.is_child]
    children = [rank for rank in records(tmp_path) if rank.is_child]
    assert [rank.rank for rank in parents] == [3]
    assert [rank.rank for rank in children] == [3, 3, 3]
    assert all(functions(rank)[-1] == "child" for rank in children)
    assert {os.path.getsize(rank.file) for rank in children} == {256 << 10}


def test_a_child_that_imports_a_script_which_arms_at_its_top_is_a_child(script, tmp_path):
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
    assert sorted(rank.is_child for rank in records(tmp_path)) == [False, True]


def test_armed_for_a_block_and_for_a_function_only(script, tmp_path):
    done = script(
        """
        import sys
        import oddrank
        tool = lambda: sys.gettrace() if sys.version_info < (3, 12) else sys.monitoring.get_tool(4)
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
    assert len(records(tmp_path)) == 1


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


def test_without_room_the_script_runs_as_without_with_one_warning(script, tmp_path):
    blocked = tmp_path / "blocked"
    blocked.write_text("no folder")
    done = script(
        """
        import os
        from oddrank import job
        job.base_folders = lambda: [__import__("pathlib").Path(os.environ["ODDRANK_DIR"])]
        import oddrank
        oddrank.arm()
        oddrank.step(1)
        with oddrank.section("data"):
            oddrank.mark("here")
        print("ran")
        """,
        ODDRANK_DIR=str(blocked),
    )
    assert done.stdout == "ran\n"
    assert done.stderr.count("RuntimeWarning: oddrank records nothing") == 1


def test_marks_are_nothing_without_arm_and_refuse_what_they_cannot_take():
    import oddrank

    oddrank.step(3)
    oddrank.mark("text")
    with oddrank.section("data") as section:
        assert section is not None
    wrong = [
        (oddrank.step, ("3",)),
        (oddrank.mark, (3,)),
        (oddrank.section, (3,)),
        (oddrank.section, ()),
        (oddrank.section, ("a", "b")),
    ]
    for function, arguments in wrong:
        with pytest.raises(TypeError):
            function(*arguments)
    oddrank.step(-1)
    oddrank.mark("stray \udc80 byte")
    with oddrank.section("stray \udc80 byte"):
        pass


def test_marks_from_many_threads_are_all_there(script, tmp_path):
    script(
        """
        import threading
        import oddrank
        oddrank.arm({"*": "off"})
        def work(n):
            for i in range(50):
                with oddrank.section("\\u00e9" * 40):
                    oddrank.step(n * 50 + i)
        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        open_section = oddrank.section("left open")
        open_section.__enter__()
        """
    )
    (rank,) = records(tmp_path)
    assert rank.sections == ("left open",)
    from oddrank import _native

    _, events, _ = _native.core().trace_history(rank.file, 10_000)
    marks = [event[5] for event in events if event[2] == 0]
    assert sorted(int(m.split()[1]) for m in marks if m.startswith("step")) == list(range(200))
    assert marks.count("begin " + "é" * 16) == 200
    assert marks.count("end " + "é" * 16) == 200


@pytest.mark.skipif(HOOK != "settrace", reason="sys.monitoring has a place for every tool")
def test_another_tool_that_takes_the_hook_is_named_and_may_give_it_back(script, tmp_path):
    done = script(
        """
        import sys
        import oddrank
        from oddrank import _native
        armed = oddrank.arm()
        note = lambda: _native.core().trace_snapshot(armed.path)["displaced_by"]
        def other_tool(frame, event, argument):
            return None
        def work():
            return 1
        mine = sys.gettrace()
        print(repr(note()))
        sys.settrace(other_tool)
        work()
        print(repr(note()))
        sys.settrace(mine)
        work()
        print(repr(note()))
        """
    )
    assert done.stdout == "''\n'__main__.other_tool'\n''\n"


def test_python_behaves_as_without(script):
    source = """
        {arm}
        import sys, traceback
        def fails(n):
            if n == 0:
                raise ValueError("deep")
            fails(n - 1)
        def generator():
            try:
                yield 1
            finally:
                print("closed")
        try:
            fails(3)
        except ValueError:
            print(traceback.format_exc())
        for _ in generator():
            break
        def deep(n):
            return 0 if n == 0 else 1 + deep(n - 1)
        try:
            deep(10**6)
        except RecursionError as error:
            print(type(error))
        exec("x = [i for i in range(3)]\\nprint(x)")
    """
    armed = script(source.format(arm="import oddrank; oddrank.arm()"))
    plain = script(source.format(arm="pass"))
    assert armed.stdout == plain.stdout
    assert armed.stderr == plain.stderr == ""


def test_packages_as_text_as_names_and_as_levels():
    assert dict(packages.rules("a=calls,b")).items() >= {"a": "calls", "b": "lines"}.items()
    assert dict(packages.rules(["a"]))["a"] == "lines"
    assert dict(packages.rules())["torch.distributed"] == "where"
    with pytest.raises(OddrankError, match="loud"):
        packages.rules({"a": "loud"})


def test_a_package_takes_away_the_defaults_of_its_subpackages_and_a_star_all_of_them():
    assert "torch.distributed" not in dict(packages.rules({"torch": "calls"}))
    assert "threading" in dict(packages.rules({"torch": "calls"}))
    assert dict(packages.rules({"*": "off"})) == {"oddrank": "off", "*": "off"}


def test_a_hook_of_another_version_is_refused(tmp_path, monkeypatch):
    import oddrank

    other = "monitoring" if HOOK == "settrace" else "settrace"
    with pytest.raises(OddrankError, match=HOOK):
        oddrank.arm(hook=other)


def test_a_child_without_room_runs_with_threads_as_without(script, tmp_path):
    done = script(
        """
        import multiprocessing, os, pathlib, shutil, threading
        import oddrank
        oddrank.arm()
        folder = pathlib.Path(os.environ["ODDRANK_DIR"])
        shutil.rmtree(folder)
        folder.write_text("nothing can be made here")
        def work(n):
            return n if n == 0 else work(n - 1)
        def child():
            threads = [threading.Thread(target=work, args=(20,)) for _ in range(3)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join()
        print(process.exitcode)
        """,
        TMPDIR="/proc/none",
    )
    assert done.stdout == "0\n"


def test_of_workers_that_come_and_go_the_last_few_records_stay(script, tmp_path):
    script(
        """
        import multiprocessing
        import oddrank
        oddrank.arm()
        def child():
            pass
        for _ in range(8):
            process = multiprocessing.get_context("fork").Process(target=child)
            process.start()
            process.join()
        """
    )
    children = [rank for rank in records(tmp_path) if rank.is_child]
    assert 3 <= len(children) <= 5


def test_arming_again_and_again_leaves_nothing_behind_in_the_import_system(script):
    done = script(
        """
        import sys
        import oddrank
        with oddrank.arm():
            before = len(sys.meta_path)
        for _ in range(20):
            with oddrank.arm():
                pass
        print(len(sys.meta_path) - before)
        """
    )
    assert done.stdout == "0\n"


def test_deep_recursion_costs_no_walk_of_the_stack_at_every_call(script):
    done = script(
        """
        import sys, threading, time
        import oddrank
        from oddrank import _native
        armed = oddrank.arm()
        sys.setrecursionlimit(10**6)
        def deep(n):
            return 0 if n == 0 else deep(n - 1)
        def ratio():
            times = []
            for n in (20_000, 120_000):
                begin = time.thread_time()
                deep(n)
                times.append((time.thread_time() - begin) / n)
            print(times[1] / times[0] < 20)
        threading.stack_size(512 << 20)
        thread = threading.Thread(target=ratio)
        thread.start()
        thread.join()
        """
    )
    assert done.stdout == "True\n"


@pytest.mark.skipif(HOOK != "settrace", reason="sys.monitoring has a place for every tool")
def test_a_tracer_that_was_there_first_keeps_its_events_and_is_named(script, tmp_path):
    done = script(
        """
        import sys
        events = []
        def tracer(frame, event, argument):
            events.append(event)
            return tracer
        sys.settrace(tracer)
        import oddrank
        def work():
            return 1
        with oddrank.arm():
            work()
        print(events[-3:], sys.gettrace() is tracer)
        sys.settrace(None)
        """
    )
    assert done.stdout.endswith("True\n")
    assert "'return'" in done.stdout or "'line'" in done.stdout
    assert "RuntimeWarning: oddrank records no lines" in done.stderr


@pytest.mark.skipif(HOOK != "settrace", reason="profilers have no slot of ours above 3.11")
def test_a_profiler_that_comes_and_goes_takes_no_lines_away(script, tmp_path):
    script(
        """
        import cProfile, os
        import oddrank
        oddrank.arm()
        def inside():
            return 1
        def after():
            os._exit(0)
        with cProfile.Profile():
            inside()
        after()
        """
    )
    (rank,) = records(tmp_path)
    assert functions(rank) == ["<module>", "after"]
    assert rank.main.stack[-1].line == 8
