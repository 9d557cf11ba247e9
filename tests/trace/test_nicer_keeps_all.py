"""NicerTrace prints everything: many events, threads, children, hangs, deaths, full pipes."""

import re
import signal
import time

import pytest

from nicer_scripts import Scripts, missing


@pytest.fixture
def scripts(tmp_path):
    return Scripts(tmp_path)


def test_a_program_with_many_more_lines_than_the_ring_loses_none(scripts):
    out = scripts.run(
        """
        from oddrank import NicerTrace
        def work():
            for i in range(500_000):
                i + 1
        NicerTrace(packages_to_include="uninstalled").runfunc(work)
        """
    )
    assert missing(out) == 0
    assert out.count("script.py:     5:         i + 1\n") == 500_000
    assert out.count("\n") == 1_000_002


def test_without_a_reader_the_program_goes_on_and_the_text_counts_missing_events(scripts):
    process = scripts.start(
        """
        import sys
        from oddrank import NicerTrace
        def work():
            for i in range(1_500_000):
                i + 1
            print("ran", file=sys.stderr, flush=True)
        NicerTrace(packages_to_include="uninstalled").runfunc(work)
        """
    )
    try:
        assert process.stderr.readline() == "ran\n"
        out = process.stdout.read()
        assert process.wait(60) == 0
    finally:
        process.kill()
    assert missing(out) > 0
    # Counts all events of the record; the text shows no returns.
    calls, returns = 1, 1
    shown = sum(not line.startswith("--- ") for line in out.splitlines())
    assert shown + missing(out) - (3_000_002 + calls) in (0, returns)


def test_a_slow_reader_gets_every_line(scripts):
    process = scripts.start(
        """
        from oddrank import NicerTrace
        def work():
            for i in range(400_000):
                i + 1
        NicerTrace(packages_to_include="uninstalled").runfunc(work)
        """
    )
    slowly = b""
    for _ in range(50):
        slowly += process.stdout.buffer.read1(1 << 16)
        time.sleep(0.1)
    out, _ = process.communicate(timeout=60)
    out = slowly.decode() + out
    assert missing(out) == 0
    assert out.count("script.py:     5:         i + 1\n") == 400_000


def test_all_threads_are_traced_and_none_of_their_lines_is_lost(scripts):
    out = scripts.run(
        """
        import threading
        from oddrank import NicerTrace
        def work():
            for i in range(20_000):
                i + 1
        def short():
            return "short"
        def main():
            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for _ in range(100):
                one = threading.Thread(target=short)
                one.start()
                one.join()
        NicerTrace(packages_to_include="uninstalled").runfunc(main)
        """
    )
    assert missing(out) == 0
    assert out.count("script.py:     6:         i + 1\n") == 80_000
    # More threads in a row than a record has slots for.
    assert out.count('script.py:     8:     return "short"\n') == 100


@pytest.mark.parametrize("how", ["os", "multiprocessing"])
def test_forked_children_print_their_own_lines_with_their_pid(scripts, how):
    out = scripts.run(
        f"""
        import multiprocessing, os
        from oddrank import NicerTrace
        def child():
            return "child"
        def forks():
            if os.fork() == 0:
                child()
                return "in both"
            os.wait()
            return "in both"
        def processes():
            process = multiprocessing.get_context("fork").Process(target=child)
            process.start()
            process.join()
        tracer = NicerTrace(packages_to_include="uninstalled", log_pids=True)
        tracer.runfunc(forks if {how == "os"} else processes)
        """
    )
    pids = re.findall(r'^(\d+) script.py: +5:     return "child"$', out, re.M)
    assert len(pids) == 1
    assert len(set(re.findall(r"^\d+", out, re.M)) - set(pids)) == 1  # the parent's
    begins = re.findall(r"^\d+  \S+ (?:forks|processes)$", out, re.M)
    assert len(begins) == 1  # text not yet printed at the fork is not printed twice


def test_a_program_that_hangs_has_printed_its_last_line(scripts):
    process = scripts.start(
        """
        import time
        from oddrank import NicerTrace
        def hangs():
            time.sleep(60)
        NicerTrace(packages_to_include="uninstalled").runfunc(hangs)
        """
    )
    try:
        lines = [process.stdout.readline(), process.stdout.readline()]
    finally:
        process.kill()
        process.communicate()
    assert lines[-1] == "script.py:     5:     time.sleep(60)\n"


def test_the_record_has_the_lines_that_a_killed_program_did_not_print(scripts):
    scripts.run(
        """
        import os, signal
        from oddrank import NicerTrace
        def dies():
            os.kill(os.getpid(), signal.SIGKILL)
        NicerTrace(packages_to_include="uninstalled").runfunc(dies)
        """,
        code=-signal.SIGKILL,
    )
    from oddrank.trace import tail

    (record,) = scripts.folder.glob("records/*/*.trace")
    last = list(tail.text(record, 5, source=True))[-1]
    assert last.endswith("script.py:5: os.kill(os.getpid(), signal.SIGKILL)")
