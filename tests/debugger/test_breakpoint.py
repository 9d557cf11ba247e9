"""One process stops, is debugged, and goes on: whatever the debugger does or does not do."""

import os
import pty
import signal
import subprocess
import sys
import termios

import pytest

import oddrank
from debugger.programs import LONGEST, attach, started, talk
from oddrank.errors import OddrankError
from patience import until
from processes import Marked

LOOP = """
import oddrank
total = 0
for i in range(3):
    total += i
    oddrank.breakpoint(when=lambda: i == 1, deadline={deadline})
    total += 10
print("total", total, flush=True)
"""


def program(folder, code=LOOP, deadline=600):
    (folder / "train.py").write_text(code.format(deadline=deadline))
    return [str(folder / "train.py")]


def test_a_debugger_looks_steps_changes_and_leaves(tmp_path):
    with started(tmp_path, program(tmp_path)) as job:
        (session,) = job.waits()
        assert (session.rank, session.pid) == (0, job.popen.pid)
        done = attach(tmp_path, typed="p total\n!total = 5\nn\nprint('shown')\nq\n")
        assert done.returncode == 0, done.stderr
        assert "(Pdb) 11" in done.stdout
        assert "(Pdb) shown" in done.stdout
        assert "total 27" in job.ends()  # the rest of the loop adds 22
        assert f"pid {job.popen.pid}) stops at train.py:6 for a debugger" in job.said
        assert "oddrank attach 0" in job.said


@pytest.mark.parametrize("typed", ["", "c\n", "q\n", "p total\n", "run\ninteract\nc\n"])
def test_however_a_debugger_leaves_the_program_goes_on(tmp_path, typed):
    with started(tmp_path, program(tmp_path)) as job:
        (session,) = job.waits()
        assert "(Pdb) " in talk(session, typed)
        assert "total 33" in job.ends()


def test_a_breakpoint_of_pdb_s_own_is_reached_under_the_same_debugger(tmp_path):
    with started(tmp_path, program(tmp_path)) as job:
        (session,) = job.waits()
        shown = talk(session, "b 8\nc\np total, i\nc\n")
        assert "total 33" in job.ends()
    assert "(33, 2)" in shown


EACH = """
import oddrank
for i in range(3):
    oddrank.breakpoint()
    print("turn", i, flush=True)
"""


def test_a_debugger_that_steps_to_the_next_breakpoint_stays(tmp_path):
    with started(tmp_path, program(tmp_path, EACH)) as job:
        (session,) = job.waits()
        # From Python 3.13 on, pdb stops at the breakpoint's own line: one step behind.
        shown = talk(session, "n\n" * 6 + "p 'then', i > 0\nq\n")
        assert "('then', True)" in shown


def test_a_debugger_that_is_killed_lets_the_program_go_on(tmp_path):
    with started(tmp_path, program(tmp_path)) as job:
        job.waits()
        client = subprocess.Popen(
            [sys.executable, "-m", "oddrank", "attach"],
            env={**os.environ, "ODDRANK_DIR": str(tmp_path)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with client:
            assert client.stdout is not None
            assert client.stdout.readline().startswith("> ")
            client.kill()
        assert "total 33" in job.ends()


@pytest.mark.parametrize("attaches", [False, True])
def test_at_the_deadline_the_program_goes_on(tmp_path, attaches):
    with started(tmp_path, program(tmp_path, deadline=15 if attaches else 0.3)) as job:
        if attaches:
            (session,) = job.waits()
            assert "the deadline has passed" in talk(session, "", leaves=False)
        assert "total 33" in job.ends()
        assert attaches or "nobody has attached" in job.said


CHILDREN = """
import multiprocessing, os, sys
import oddrank

def work(number):
    seen = number * 7
    oddrank.breakpoint(rank=None)
    print("went on", seen, flush=True)

if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=work, args=(n,)) for n in (1, 2)]
    for child in children:
        child.start()
    os.close(0)
    if os.fork() == 0:
        work(3)
        os._exit(0)
    for child in children:
        child.join()
    os.wait()
"""


def test_forked_children_without_stdin_stop_and_are_chosen_by_pid(tmp_path):
    with started(tmp_path, program(tmp_path, CHILDREN)) as job:
        sessions = job.waits(3)
        asked = attach(tmp_path, typed="")
        assert asked.returncode == 2
        assert "3 processes wait for a debugger: choose one" in asked.stderr
        seen = set()
        for session in sessions:
            shown = talk(session, "p 'seen', seen\nq\n")
            seen.add(shown.partition("('seen', ")[2].partition(")")[0])
        assert seen == {"7", "14", "21"}
        job.ends()
        assert job.said.count("went on") == 3


@pytest.mark.parametrize("killed", [False, True])
def test_at_its_terminal_it_reads_lines_and_leaves_the_terminal_as_it_was(tmp_path, killed):
    mark = Marked()
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(mark.environ, ODDRANK_DIR=str(tmp_path))
        os.execv(sys.executable, [sys.executable, *program(tmp_path)])
    shown = b""
    before = termios.tcgetattr(terminal)

    def shows(text):
        def look():
            nonlocal shown
            shown += os.read(terminal, 4096)
            return text in shown

        return look

    try:
        until(shows(b"(Pdb) "), LONGEST)
        assert not list(tmp_path.glob("*/debug-*.json"))
        os.write(terminal, b"p total\n")
        until(shows(b"11\r\n(Pdb) "), LONGEST)
        if killed:
            os.kill(pid, signal.SIGKILL)
        else:
            os.write(terminal, b"!import tty; tty.setraw(0); print('raw')\n")
            until(shows(b"raw\n(Pdb) "), LONGEST)
            os.write(terminal, b"c\n")
            until(shows(b"total 33"), LONGEST)
        os.waitpid(pid, 0)
        after = termios.tcgetattr(terminal)
        assert after == before
    finally:
        mark.kill_all()
        os.close(terminal)


def test_debuggers_at_two_terminals_do_not_wait_for_each_other(tmp_path):
    mark, terminals = Marked(), []
    try:
        for _ in range(2):
            pid, terminal = pty.fork()
            if pid == 0:
                os.environ.update(mark.environ, ODDRANK_DIR=str(tmp_path))
                os.execv(sys.executable, [sys.executable, *program(tmp_path)])
            terminals.append(terminal)
            shown = b""
            while b"(Pdb) " not in shown:
                shown += os.read(terminal, 4096)
    finally:
        mark.kill_all()
        for terminal in terminals:
            os.close(terminal)


def test_what_is_no_rank_no_deadline_and_no_session_is_refused(tmp_path):
    with pytest.raises(OddrankError, match="this job has the ranks 0 to 0"):
        oddrank.breakpoint(rank=3)
    for deadline in (0, float("inf"), float("nan")):
        with pytest.raises(OddrankError, match="deadline"):
            oddrank.breakpoint(deadline=deadline)
    with pytest.raises(OddrankError, match="when=3: give a function"):
        oddrank.breakpoint(when=3)
    refused = attach(tmp_path, "3", typed="")
    assert refused.returncode == 2
    assert "no process of rank 3 of yours waits for a debugger" in refused.stderr
    refused = attach(tmp_path, "nothing.json", typed="")
    assert refused.returncode == 2
    assert "names no process" in refused.stderr


def test_an_error_of_the_condition_is_the_script_s():
    with pytest.raises(ZeroDivisionError):
        oddrank.breakpoint(when=lambda: 1 / 0)
