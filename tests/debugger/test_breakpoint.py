"""One process stops, is debugged, and goes on: whatever the debugger does or does not do."""

import math
import os
import pty
import signal
import sys
import termios

import pytest

import oddrank
from debugger.programs import attach, attached, started, talk
from oddrank.errors import OddrankError
from processes import Marked
from texts import texts

TEXTS = texts(__file__)

LOOP = TEXTS["loop"]


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


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("", ""),
        ("c\n", ""),
        ("q\n", ""),
        ("p total\n", "11"),
        ("run\ninteract\nc\n", ""),
        ("b 8\nc\np total, i\nc\n", "(33, 2)"),  # a breakpoint of pdb's own
    ],
)
def test_however_a_debugger_leaves_the_program_goes_on(tmp_path, typed, shown):
    with started(tmp_path, program(tmp_path)) as job:
        (session,) = job.waits()
        said = talk(session, typed)
        assert "(Pdb) " in said
        assert shown in said
        assert "total 33" in job.ends()


EACH = texts(__file__)["each"]


def test_a_debugger_that_steps_to_the_next_breakpoint_stays(tmp_path):
    with started(tmp_path, program(tmp_path, EACH)) as job:
        (session,) = job.waits()
        # From Python 3.13 on, pdb stops at the breakpoint's own line: one step behind.
        shown = talk(session, "n\n" * 6 + "p 'then', i > 0\nq\n")
        assert "('then', True)" in shown


def test_a_debugger_that_is_killed_lets_the_program_go_on(tmp_path):
    with started(tmp_path, program(tmp_path)) as job:
        job.waits()
        with attached(tmp_path) as client:
            assert client.stdout.readline().startswith("> ")
            client.kill()
        assert "total 33" in job.ends()


def test_at_the_deadline_the_program_goes_on(tmp_path):
    with started(tmp_path, program(tmp_path, deadline=0.3)) as job:
        assert "total 33" in job.ends()
        assert "nobody has attached" in job.said
    with started(tmp_path, program(tmp_path, deadline=15)) as job:
        (session,) = job.waits()
        assert "the deadline has passed" in talk(session, "", leaves=False)
        assert "total 33" in job.ends()


CHILDREN = TEXTS["children"]


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


class Terminal:
    """A program at a terminal of its own."""

    def __init__(self, folder, arguments):
        self.mark = Marked()
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.environ.update(self.mark.environ, ODDRANK_DIR=str(folder))
            os.execv(sys.executable, [sys.executable, *arguments])
        self.shown = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.mark.kill_all()
        os.close(self.descriptor)

    def shows(self, text):
        """Waits until the terminal has shown a text."""
        while text not in self.shown:  # pytest's timeout ends it
            self.shown += os.read(self.descriptor, 4096)

    def types(self, line):
        os.write(self.descriptor, line)


@pytest.mark.parametrize("killed", [False, True])
def test_at_its_terminal_it_reads_lines_and_leaves_the_terminal_as_it_was(tmp_path, killed):
    with Terminal(tmp_path, program(tmp_path)) as terminal:
        before = termios.tcgetattr(terminal.descriptor)
        terminal.shows(b"(Pdb) ")
        assert not list(tmp_path.glob("*/debug-*"))
        terminal.types(b"p total\n")
        terminal.shows(b"11\r\n(Pdb) ")
        if killed:
            os.kill(terminal.pid, signal.SIGKILL)
        else:
            terminal.types(b"c\n")
            terminal.shows(b"total 33")
        os.waitpid(terminal.pid, 0)
        assert termios.tcgetattr(terminal.descriptor) == before


def test_debuggers_at_two_terminals_do_not_wait_for_each_other(tmp_path):
    script = program(tmp_path)  # written once: a script may not change while another starts it
    with Terminal(tmp_path, script) as one, Terminal(tmp_path, script) as other:
        one.shows(b"(Pdb) ")
        other.shows(b"(Pdb) ")


def test_what_is_no_rank_no_deadline_and_no_session_is_refused_in_one_line(tmp_path, golden):
    said = []
    deadlines = [{"deadline": deadline} for deadline in (0, math.inf, math.nan, "1")]
    for options in ({"rank": 3}, {"rank": "a"}, *deadlines, {"when": 3}):
        with pytest.raises(OddrankError) as refused:
            oddrank.breakpoint(**options)
        said.append(str(refused.value))
    for argument in ("3", "x"):
        done = attach(tmp_path, argument, typed="")
        assert done.returncode == 2
        said.append(done.stderr.rstrip())
    golden("\n".join(said).replace(os.uname().nodename, "HOST"))


def test_an_error_of_the_condition_is_the_script_s():
    with pytest.raises(ZeroDivisionError):
        oddrank.breakpoint(when=lambda: 1 / 0)
