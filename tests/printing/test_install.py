"""install_printing() makes lines whole and prefixed, and remove() puts all back."""

import builtins
import io
import logging
import os
import sys

import pytest

import oddrank
from bench.told import refusal
from oddrank import printflock
from printing import people

PLAIN_PRINT = builtins.print
PLAIN_EMIT = logging.StreamHandler.emit
RANK = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
MASTER = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@pytest.fixture
def logger():
    one = logging.getLogger("oddrank-test-install")
    one.propagate = False
    one.setLevel(logging.INFO)
    yield one
    for handler in list(one.handlers):
        one.removeHandler(handler)
        handler.close()


def test_what_is_asked_for_is_installed_and_undone_leaves_nothing_behind():
    with oddrank.install_printing() as first:
        assert builtins.print is printflock
        second = oddrank.install_printing()
        second.remove()
        assert builtins.print is printflock
        first.remove()
        first.remove()
    assert builtins.print is PLAIN_PRINT
    assert logging.StreamHandler.emit is PLAIN_EMIT
    with oddrank.install_printing(print=False):
        assert builtins.print is PLAIN_PRINT
        assert logging.StreamHandler.emit is not PLAIN_EMIT
    with oddrank.install_printing(logging=False):
        assert builtins.print is printflock
        assert logging.StreamHandler.emit is PLAIN_EMIT


def test_handles_may_be_removed_in_any_order():
    first = oddrank.install_printing(prefix="[A] ")
    second = oddrank.install_printing(prefix="[B] ")
    first.remove()
    file = io.StringIO()
    print("a", file=file)
    second.remove()
    assert builtins.print is PLAIN_PRINT
    with oddrank.install_printing():
        print("b", file=file)
    assert file.getvalue() == "[B] a\nb\n"


def test_handlers_from_before_and_after_write_the_same_lines(logger, tmp_path):
    before = io.StringIO()
    logger.addHandler(logging.StreamHandler(before))
    with oddrank.install_printing():
        after = io.StringIO()
        logger.addHandler(logging.StreamHandler(after))
        logger.addHandler(logging.FileHandler(tmp_path / "log", delay=True))
        logger.info("a %s", 1)
    assert before.getvalue() == after.getvalue() == (tmp_path / "log").read_text() == "a 1\n"


def test_a_handler_is_flushed_after_each_line():
    handler, seen = logging.StreamHandler(io.StringIO()), []
    handler.flush = lambda: seen.append(handler.stream.getvalue())
    with oddrank.install_printing():
        handler.handle(logging.makeLogRecord({"msg": "a"}))
    assert seen == ["a\n"]


def test_an_error_in_a_log_call_is_handled_by_logging_as_before(monkeypatch):
    handled = []
    handler = logging.StreamHandler(io.StringIO())
    monkeypatch.setattr(handler, "handleError", handled.append)
    with oddrank.install_printing():
        handler.handle(logging.makeLogRecord({"msg": "%d", "args": ("no number",)}))
    assert len(handled) == 1


def test_a_stream_that_prints_is_no_endless_circle(logger):
    class Stream(io.StringIO):
        def write(self, text):
            if "again" not in text:
                print("again", file=self)
            return super().write(text)

    stream = Stream()
    logger.addHandler(logging.StreamHandler(stream))
    with oddrank.install_printing():
        logger.info("x")
    assert stream.getvalue() == "again\nx\n"


def test_the_prefix_names_the_rank_on_every_line():
    out, err = people.run(
        "import logging, oddrank\n"
        "oddrank.install_printing(prefix='[{rank}/{world} {local_rank}] ')\n"
        "print('a\\nb'); print(); print(end=''); print('c', end=''); print('d\\ne')\n"
        "logging.warning('careful')", **RANK, **MASTER,
    )  # fmt: skip
    assert out == b"[3/8 1] a\n[3/8 1] b\n[3/8 1] \n[3/8 1] cd\n[3/8 1] e\n"
    assert err == b"[3/8 1] WARNING:root:careful\n"


def test_the_prefix_reaches_redirected_output_and_is_taken_away():
    file = io.StringIO()
    with oddrank.install_printing(prefix="[{host}:{pid}] "):
        print("a", file=file)
        print("b", file=file)
    print("c", file=file)
    me = f"[{os.uname().nodename}:{os.getpid()}] "
    assert file.getvalue() == f"{me}a\n{me}b\nc\n"


def test_a_forked_child_has_its_own_pid_in_the_prefix():
    out, _ = people.run(
        "import os, sys, oddrank\noddrank.install_printing(prefix='{pid} ')\n"
        "pid = os.fork()\n"
        "if pid == 0: print(os.getpid()); os._exit(0)\n"
        "os.waitpid(pid, 0)"
    )
    shown, real = out.split()
    assert shown == real


def test_a_bad_prefix_is_one_clear_error_and_changes_nothing(golden):
    said = []
    for template in ("{nobody} ", "{} ", "{rank", "{rank.real} ", "{rank:q} "):
        said.append(refusal(oddrank.install_printing, prefix=template))
        assert builtins.print is PLAIN_PRINT
        oddrank.printflock("a", file=(file := io.StringIO()))
        assert file.getvalue() == "a\n"
    golden("\n".join(said))


def test_sys_stdout_without_a_stream_stays_silent(logger, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    handler = logging.StreamHandler(io.StringIO())
    handler.stream = None
    logger.addHandler(handler)
    with oddrank.install_printing():
        logger.info("nowhere")
