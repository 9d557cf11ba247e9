"""Lines of many writers stay whole in files, pipes and terminals."""

import os
import pty
import random
import sys
import threading
from pathlib import Path

import pytest

from oddrank import printflock
from patience import PATIENCE
from printing import people

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "printing"))
import soak_mixed_lines as soak

WRITERS, LINES = 4, 150
BEGIN = f"""
import sys
sys.path[:0] = [{str(Path(soak.__file__).parent)!r}]
import soak_mixed_lines as soak
from oddrank import printflock
"""
WRITER = """
sizes = soak.random.Random({writer})
for number in range({lines}):
    printflock(soak.make_line({writer}, number, int({longest} ** sizes.random())))
"""


@pytest.fixture(autouse=True)
def _patient(own_locks, monkeypatch):
    """Lines may mix where a holder gets no core for ten timeouts."""
    monkeypatch.setenv("ODDRANK_PRINT_TIMEOUT", "60")


def writers(stdout: int, longest: int = soak.LONGEST) -> list:
    return [
        people.start(BEGIN + WRITER.format(writer=writer, lines=LINES, longest=longest), stdout)
        for writer in range(WRITERS)
    ]


def assert_all_whole(fd: int, started: list, number: int = WRITERS * LINES) -> None:
    """Reads all that the processes print, to the end."""
    checker = soak.Checker()
    held = b""  # a terminal's \r whose \n comes with the next piece
    while True:
        try:
            piece = os.read(fd, 1 << 20)
        except OSError:  # a terminal whose last writer is gone
            break
        if not piece:
            break
        piece = held + piece
        held = b"\r" if piece.endswith(b"\r") else b""
        checker.feed(piece[: len(piece) - len(held)].replace(b"\r\n", b"\n"))
    checker.feed(held)
    checker.end()
    os.close(fd)
    for process in started:
        people.finish(process)
    assert (checker.cut, checker.blank, checker.mixed) == (0, 0, 0), checker.examples[:3]
    assert checker.whole == number


@pytest.mark.parametrize("flags", [os.O_APPEND, 0], ids=["appended", "shared-offset"])
def test_in_a_file(tmp_path, flags):
    fd = os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT | flags)
    for process in writers(fd):
        people.finish(process)
    os.lseek(fd, 0, os.SEEK_SET)
    assert_all_whole(fd, [])


def test_in_a_pipe():
    source, sink = os.pipe()
    started = writers(sink)
    os.close(sink)
    assert_all_whole(source, started)


def test_on_a_terminal():
    master, terminal = pty.openpty()
    started = writers(terminal, longest=5000)
    os.close(terminal)
    assert_all_whole(master, started)


def test_from_threads_and_forked_children_at_once(source):
    # The children are forked while other threads print: none may inherit a lock that stays held.
    reads, sink = os.pipe()
    process = people.start(BEGIN + source, sink)
    os.close(sink)
    assert_all_whole(reads, [process], 2 * 200 + 10 * 20)


@pytest.mark.parametrize("attempt", range(3))
def test_a_child_forked_while_a_thread_gets_its_first_lock_prints(tmp_path, attempt, source):
    # A fork of many mappings takes tens of milliseconds. Meanwhile the lock becomes free.
    with open(tmp_path / "output", "w") as output:
        holder = people.hold(tmp_path, output.fileno())
        # CPython 3.12 and newer warn of every fork beside a thread.
        quiet = {"PYTHONWARNINGS": "ignore::DeprecationWarning"}
        process = people.start(source, output.fileno(), **quiet)
    assert process.stderr.read(1) == b"f", process.stderr.read()
    people.end(holder)
    assert people.finish(process) == b""
    assert (tmp_path / "output").read_text() == "thread\n"


def test_through_a_file_object_of_their_own_in_each_process(tmp_path):
    # Buffered files, opened by name: the whole line is written while the lock is held.
    code = (
        "from oddrank import printflock\nfile = open({path!r}, 'a')\n"
        "for i in range(100): printflock('{name}' * 3000, file=file)"
    )
    path = tmp_path / "log"
    started = [people.start(code.format(path=str(path), name=name)) for name in "abcd"]
    for process in started:
        people.finish(process)
    lines = sorted(path.read_text().splitlines())
    assert lines == [name * 3000 for name in "abcd" for _ in range(100)]


def test_threads_share_one_python_file_object():
    class Pieces:
        def __init__(self):
            self.text = ""

        def write(self, text):
            for letter in text:
                self.text += letter

    file = Pieces()
    threads = [
        threading.Thread(target=lambda n=n: [printflock(n * 50, file=file) for _ in range(50)])
        for n in "abcd"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE.limit)
    lines = sorted(file.text.splitlines())
    assert lines == [name * 50 for name in "abcd" for _ in range(50)]


def test_a_write_that_prints_is_no_deadlock():
    class Echo:
        def __init__(self):
            self.seen = []

        def write(self, text):
            self.seen.append(text)
            if len(self.seen) < 3:
                printflock("again", file=self)

    file = Echo()
    printflock("first", file=file)
    assert file.seen == ["first\n", "again\n", "again\n"]


def test_a_chain_of_streams_that_print_to_one_another_waits_for_no_lock_of_its_own(
    tmp_path, source
):
    # All locks of the chain are held at once: among 150 outputs some share a lock.
    files = tmp_path / "files"
    files.mkdir()
    chain = people.start(source.format(folder=str(files)), timeout_s=0.1)
    assert people.finish(chain) == b""
    assert [file.read_text() for file in files.iterdir()] == ["all\n"] * 150


@pytest.mark.soak
def test_under_random_kills_no_line_mixes(repeats):
    for row in soak.soak(lines=10_000 * repeats, seed=random.randrange(1 << 30)):
        assert row["mixed"] == 0, row
        assert row["cut"] <= row["kills"], row
