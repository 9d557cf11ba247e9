"""Jobs that somebody told to end: nobody is blamed, and where ranks stood is said if known."""

import pytest

from oddrank.triage.evidence import launcher, stacks, tracebacks
from oddrank.triage.facts import Frame, Stack, Stop
from triage.facts_of import Texts, item_of

AGENT = "W0203 08:30:11.250000 900 torch/distributed/elastic/"
TOLD = AGENT + "agent/server/api.py:753] Received {} death signal, shutting down workers\n"
KINDS = (launcher, tracebacks, stacks)


@pytest.fixture
def said(tmp_path):
    """Returns a function: the facts of a log."""
    return lambda *parts: [
        fact for kind in KINDS for fact in Texts(tmp_path, kind.KIND).facts("".join(parts))
    ]


def lines(rank, *several):
    return "".join(f"[rank{rank}]: {line}\n" for line in several)


def failed(rank):
    """A signal waits for the end of a collective: the interrupt comes from behind it."""
    return lines(
        rank, "Traceback (most recent call last):",
        '  File "/env/torch/distributed/c10d_logger.py", line 83, in wrapper',
        '  File "/env/torch/distributed/distributed_c10d.py", line 3252, in all_reduce',
        "RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.1]:99", "",
        "During handling of the above exception, another exception occurred:", "",
        "Traceback (most recent call last):", '  File "/w/t.py", line 9, in main',
        '  File "/env/torch/distributed/c10d_logger.py", line 85, in wrapper',
        '  File "/env/torch/distributed/c10d_logger.py", line 53, in _message',
        "KeyboardInterrupt",
    )  # fmt: skip


def test_an_interrupt_inside_a_failed_collective_stood_in_it(said):
    (found,) = (f for f in said(failed(0)) if isinstance(f, Stack))
    assert [frame.function for frame in found.frames] == ["all_reduce", "wrapper", "main"]
    assert found.frames[-1] == Frame("main", "/w/t.py", 9)


def test_a_stop_has_its_line_time_and_signal(said):
    (stop,) = (f for f in said("x\n", TOLD.format(15)) if isinstance(f, Stop))
    assert (stop.what, stop.signal, stop.source.line, stop.wall) == ("torchrun", 15, 2, True)
    assert stop.time % 86400 == pytest.approx(8 * 3600 + 30 * 60 + 11.25)
    odd = TOLD.format("Signals.\N{SUPERSCRIPT TWO}")
    (stop,) = (f for f in said(odd) if isinstance(f, Stop))
    assert (stop.what, stop.signal) == ("torchrun", None)


def test_a_job_without_any_word_of_its_end_is_healthy(tmp_path):
    path = tmp_path / "quiet.log"
    path.write_text("step 3\nstep 4\n")
    assert not any(kind.KIND.sniff(item_of(path)) for kind in (launcher, tracebacks))
