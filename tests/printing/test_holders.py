"""A holder of the lock that dies, stops or waits for a reader never blocks or cuts the others."""

import os
import signal
import time

import pytest

from patience import until
from printing import people
from processes import stop

pytestmark = pytest.mark.usefixtures("own_locks")
BIG = "from oddrank import printflock\nprintflock('b' * 300_000)"
CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc")
in_a_container = pytest.param(CONTAINER, marks=pytest.mark.needs("pid-namespace"))


def say(count: int, text: str, times: int = 1) -> str:
    begin = "from oddrank import printflock"
    return f"{begin}\nfor _ in range({count}): printflock({text!r} * {times})"


@pytest.fixture
def out(tmp_path):
    fd = os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    yield fd
    os.close(fd)


@pytest.fixture
def pipe():
    source, sink = os.pipe()
    yield source, sink
    os.close(source)


def inside_a_write(code: str, sink: int):
    writer = people.start(code, sink)
    until(lambda: people.is_inside(writer, people.WRITE))
    return writer


def drain(source: int) -> bytes:
    pieces = []
    while piece := os.read(source, 1 << 20):
        pieces.append(piece)
    return b"".join(pieces)


def test_a_killed_holder_is_followed_at_once_and_without_a_word(tmp_path, out):
    holder = people.hold(tmp_path, out)
    # Other threads of a process run while one waits.
    code = (
        "import threading\nfrom oddrank import printflock\n"
        "thread = threading.Thread(target=printflock, args=('late',)); thread.start()\n"
        "open({ready!r}, 'w').close()\nthread.join()"
    )
    ready = tmp_path / "runs"
    writer = people.start(code.format(ready=str(ready)), out, timeout_s=3600)
    until(ready.exists)
    people.end(holder)
    assert people.finish(writer) == b""
    assert (tmp_path / "out").read_bytes() == b"late\n"


@pytest.mark.parametrize("within", [(), in_a_container], ids=["here", "in-another-pid-namespace"])
def test_a_stopped_holder_is_left_behind_after_the_deadline_with_one_warning(tmp_path, out, within):
    """Of two containers that share /dev/shm, a process id of one means nothing in the other."""
    holder = people.hold(tmp_path, out)
    stop(holder.pid)
    writer = people.start(say(20, "on"), out, timeout_s=0.2, within=within)
    warning = people.finish(writer).decode()
    people.end(holder)
    assert warning.count("\n") == (not within)
    assert (f"process {holder.pid} is stopped" in warning) == (not within)
    assert (tmp_path / "out").read_bytes() == b"on\n" * 20


def test_all_the_others_still_print_whole_lines_while_one_is_stopped(tmp_path, out):
    holder = people.hold(tmp_path, out)
    stop(holder.pid)
    # One of them that does not get a core for ten timeouts would be left behind, too.
    others = [people.start(say(50, name, 30_000), out, timeout_s=2) for name in "abc"]
    warnings = [people.finish(other) for other in others]
    people.end(holder)
    lines = (tmp_path / "out").read_text().splitlines()
    assert sorted(lines) == [name * 30_000 for name in "abc" for _ in range(50)]
    # One of them moved the lock on and said so.
    assert sum(bool(warning) for warning in warnings) == 1


def test_a_writer_killed_in_the_middle_of_a_line_leaves_a_cut_line_alone(pipe):
    source, sink = pipe
    victim = inside_a_write(BIG, sink)
    people.end(victim)
    writer = people.start(say(2, "whole"), sink)
    os.close(sink)
    cut, *rest = drain(source).split(b"\n")
    assert people.finish(writer) == b""
    assert set(cut) == {ord("b")}
    assert len(cut) < 300_000
    assert rest == [b"whole", b"whole", b""]


def test_a_writer_stopped_in_the_middle_of_a_line_writes_it_again_when_it_goes_on(pipe):
    source, sink = pipe
    victim = inside_a_write(BIG, sink)
    stop(victim.pid)
    writer = people.start(say(1, "whole"), sink, timeout_s=0.2)
    os.close(sink)
    got = b""
    while b"whole\n" not in got:
        got += os.read(source, 1 << 20)
    assert b"is stopped" in people.finish(writer)
    victim.send_signal(signal.SIGCONT)
    got += drain(source)
    people.finish(victim)
    cut, *rest = got.split(b"\n")
    assert set(cut) == {ord("b")}
    assert len(cut) < 300_000
    assert rest == [b"whole", b"b" * 300_000, b""]


def test_a_slow_reader_is_waited_for_beyond_the_deadline_and_nothing_mixes(pipe):
    # While the pipe is full no process could write, so no holder is given up. One that does not get
    # a core for ten timeouts while there is room would be.
    source, sink = pipe
    writers = [people.start(say(1, name, 200_000), sink, timeout_s=1) for name in "abc"]
    os.close(sink)
    until(lambda: any(people.is_inside(writer, people.WRITE) for writer in writers))
    time.sleep(6)
    lines = drain(source).decode().splitlines()
    assert [people.finish(writer) for writer in writers] == [b""] * 3
    assert sorted(lines) == [name * 200_000 for name in "abc"]


def test_a_non_blocking_pipe_is_waited_for_as_long_as_it_moves_and_then_is_an_error(pipe):
    source, sink = pipe
    os.set_blocking(sink, False)
    code = (
        "import os\nfrom oddrank import printflock\ntry: printflock('b' * 300_000)\n"
        "except BlockingIOError: os._exit(0)\nos._exit(1)"
    )
    people.finish(people.start(code, sink, timeout_s=0.1))  # nobody reads
    cut = os.read(source, 1 << 20)
    writer = people.start(BIG, sink, timeout_s=60)  # this reader may wait for a core
    os.close(sink)
    assert drain(source) == b"\n" * (cut[-1:] != b"\n") + b"b" * 300_000 + b"\n"
    people.finish(writer)


def test_ctrl_c_ends_the_wait_for_the_lock(tmp_path, out):
    holder = people.hold(tmp_path, out)
    code = (
        "import os\nfrom oddrank import printflock\n"
        "try: open({ready!r}, 'w').close(); printflock('x')\n"
        "except KeyboardInterrupt: os._exit(0)\nos._exit(1)"
    )
    ready = tmp_path / "waiting"
    waiter = people.start(code.format(ready=str(ready)), out, timeout_s=3600)
    until(ready.exists)
    until(lambda: people.is_inside(waiter, people.FUTEX))
    waiter.send_signal(signal.SIGINT)
    people.finish(waiter)
    people.end(holder)


def test_a_signal_handler_that_prints_inside_a_write_comes_after_the_line(pipe):
    source, sink = pipe
    code = (
        "import signal\nfrom oddrank import printflock\n"
        "signal.signal(signal.SIGUSR1, lambda *_: printflock('handler'))\n"
        "printflock('b' * 300_000)"
    )
    writer = inside_a_write(code, sink)
    os.close(sink)
    writer.send_signal(signal.SIGUSR1)
    time.sleep(0.1)
    assert drain(source) == b"b" * 300_000 + b"\nhandler\n"
    people.finish(writer)
