"""NicerTrace changes nothing in a program: signals, files, forks, exit."""

import pytest

from nicer_scripts import Scripts, missing


@pytest.fixture
def scripts(tmp_path):
    return Scripts(tmp_path)


def test_signals_raise_where_the_program_is_and_stdout_that_fails_raises_nowhere(scripts):
    out = scripts.run(
        """
        import os, signal, sys
        from oddrank import NicerTrace
        class Broken:
            def write(self, text):
                raise OSError("the disk is full")
            def flush(self):
                pass
        def work():
            try:
                signal.raise_signal(signal.SIGINT)
                for i in range(100_000):
                    pass
            except KeyboardInterrupt:
                return "interrupted"
        real, sys.stdout = sys.stdout, Broken()
        result = NicerTrace(packages_to_include="uninstalled").runfunc(work)
        print(result, file=real)
        """
    )
    assert out == "interrupted\n"
    assert "the disk is full" in scripts.errors


def test_a_second_one_inside_the_first_and_one_after_arm_say_what_they_do(scripts):
    out = scripts.run(
        """
        import oddrank
        from oddrank import NicerTrace
        def inner():
            return 7
        def outer():
            return NicerTrace(packages_to_include="uninstalled").runfunc(inner)
        print(NicerTrace(packages_to_include="uninstalled").runfunc(outer))
        oddrank.arm()
        print(NicerTrace(packages_to_include="uninstalled").runfunc(inner))
        """
    )
    assert out.count("script.py:     5:     return 7\n") == 2
    assert "another NicerTrace is running" in scripts.errors
    assert "oddrank.arm() has been called before" in scripts.errors


def test_a_signal_that_the_program_waits_for_is_not_taken_by_the_printing_thread(scripts):
    out = scripts.run(
        """
        import os, signal, sys, threading, time
        from oddrank import NicerTrace
        def begin_late(*_):
            sys.setprofile(None)
            time.sleep(0.5)
        def work():
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
            os.kill(os.getpid(), signal.SIGUSR1)
            return signal.sigwait({signal.SIGUSR1}) == signal.SIGUSR1
        threading.setprofile(begin_late)  # each thread before its run()
        print(NicerTrace(packages_to_include="uninstalled").runfunc(work))
        """
    )
    assert out.endswith("\nTrue\n")


def test_a_program_that_closes_all_files_it_does_not_know_is_traced_on(scripts):
    out = scripts.run(
        """
        import os
        from oddrank import NicerTrace
        def work():
            os.closerange(3, 256)
            files = [os.open("own", os.O_CREAT | os.O_WRONLY) for _ in range(20)]
            for i in range(100_000):
                i + 1
            return os.path.getsize("own")
        print(NicerTrace(packages_to_include="uninstalled").runfunc(work))
        """
    )
    assert out.endswith('    return os.path.getsize("own")\n0\n')
    assert missing(out) == 0
    assert out.count("        i + 1\n") == 100_000


def test_a_record_that_somebody_has_removed_is_traced_on(scripts):
    out = scripts.run(
        """
        import os, shutil
        from oddrank import NicerTrace
        def work():
            return 7
        tracer = NicerTrace(packages_to_include="uninstalled")
        tracer.runfunc(work)
        shutil.rmtree(os.environ["ODDRANK_DIR"])
        tracer.runfunc(work)
        """
    )
    assert out.count("return 7") == 2
    assert scripts.errors == ""


def test_a_thread_that_nobody_waits_for_has_printed_its_lines_when_python_ends(scripts):
    out = scripts.run(
        """
        import threading, time
        from oddrank import NicerTrace
        begun = threading.Event()
        def work():
            begun.set()
            time.sleep(60)
        tracer = NicerTrace(packages_to_include="uninstalled")
        threading.Thread(target=tracer.runfunc, args=(work,), daemon=True).start()
        begun.wait(60)
        """
    )
    assert "script.py:     6:     begun.set()\n" in out


def test_a_thread_that_waits_to_be_printed_does_not_abort_python_as_it_ends(scripts):
    scripts.run(
        """
        import os, signal, sys, threading, time, traceback
        from oddrank import NicerTrace
        class Held:
            def write(self, text):
                held.set()
                threading.Event().wait(60)
            def flush(self):
                pass
        def spin():
            while True:
                pass
        def interrupt():
            main = threading.main_thread().ident
            while True:
                time.sleep(0.05)
                stack = traceback.walk_stack(sys._current_frames()[main])
                if any(frame.f_code.co_name == "_end_thread" for frame, _ in stack):
                    os.kill(os.getpid(), signal.SIGINT)
        def work():
            threading.Thread(target=spin, daemon=True).start()
            held.wait(60)
            sys.setswitchinterval(100)  # who has the GIL keeps it: spin() until it waits, then main
            time.sleep(0.5)
            threading.Thread(target=interrupt, daemon=True).start()
        class GivesTheGil:
            def __del__(self, sleep=time.sleep):
                sleep(0.1)
        held, as_python_ends = threading.Event(), GivesTheGil()
        real, sys.stdout = sys.stdout, Held()
        try:
            NicerTrace(packages_to_include="uninstalled").runfunc(work)
        except KeyboardInterrupt:
            sys.stdout = real
        """
    )
    assert scripts.errors == ""


def test_control_c_while_the_rest_is_written_ends_the_run_and_lets_another_begin(scripts):
    out = scripts.run(
        """
        import os, signal, sys, threading, time, traceback
        from oddrank import NicerTrace
        held = threading.Event()
        class Held:
            def write(self, text):
                held.wait(60)
            def flush(self):
                pass
        def interrupt():
            main, names = threading.main_thread().ident, set()
            while not {"_end_thread", "join"} <= names:
                time.sleep(0.05)
                stack = traceback.walk_stack(sys._current_frames()[main])
                names = {frame.f_code.co_name for frame, _ in stack}
            os.kill(os.getpid(), signal.SIGINT)
        def work():
            return 7
        threading.Thread(target=interrupt, daemon=True).start()
        tracer = NicerTrace(packages_to_include="uninstalled")
        real, sys.stdout = sys.stdout, Held()
        try:
            tracer.runfunc(work)
        except KeyboardInterrupt:
            print("interrupted", file=real)
        sys.stdout = real
        held.set()
        tracer.runfunc(work)
        """
    )
    assert out.splitlines()[0] == "interrupted"
    assert out.splitlines()[2:] == ["script.py:    18:     return 7"]


def test_control_c_as_a_run_begins_leaves_no_thread_and_lets_another_begin(scripts):
    out = scripts.run(
        """
        import os, signal, threading, time
        from oddrank import NicerTrace
        def work():
            return 7
        start = threading.Thread.start
        def start_and_interrupt(thread):
            start(thread)
            os.kill(os.getpid(), signal.SIGINT)
        tracer = NicerTrace(packages_to_include="uninstalled")
        threading.Thread.start = start_and_interrupt
        try:
            tracer.runfunc(work)
        except KeyboardInterrupt:
            print("interrupted")
        threading.Thread.start = start
        end = time.monotonic() + 60
        while threading.active_count() > 1 and time.monotonic() < end:
            time.sleep(0.01)
        print(threading.active_count(), flush=True)
        tracer.runfunc(work)
        """
    )
    assert out.splitlines()[:2] == ["interrupted", "1"]
    assert out.splitlines()[-1] == "script.py:     5:     return 7"


def test_a_reader_that_goes_away_is_nothing_to_complain_of_and_the_program_goes_on(scripts):
    process = scripts.start(
        """
        import sys
        from oddrank import NicerTrace
        def main():
            for i in range(20_000):
                pass
            print("ran to its end", file=sys.stderr)
        NicerTrace().run("main()")
        """
    )
    assert process.stdout.readline()
    process.stdout.close()  # as `| head -n 1`
    errors = process.stderr.read()
    assert (process.wait(timeout=60), errors) == (0, "ran to its end\n")
